"""Objects that were there before: each is guarded where it is loaded, once, and known by where it came from.

In: sources and what is at them. Out: the values, for the machine; guards. A constant is guarded by its value, or is an
input if it changes; a tensor by what the graph depends on; an object by its kind, or by being the very one (`fixed`).
Attributes are asked for here, items in `contents.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from compiler_core.bytecode.frame import Marker
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import Arrays, is_numpy_number
from compiler_core.capture.guards.arguments import require_gradient, require_layout, require_meta
from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.deaths import can_be_bound
from compiler_core.capture.guards.kinds import is_constant, is_identified, key_of, own_attributes
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.capture.guards.modules import ABSENT, Modules
from compiler_core.capture.guards.names import Names
from compiler_core.capture.guards.sources import Attribute, Bound, InDict, Item, Raw, Source, Variable
from compiler_core.capture.lessons import Memory
from compiler_core.capture.marks import require_class
from compiler_core.capture.numbers.numbers import Numbers
from compiler_core.capture.numbers.sizes import OutsideSizes
from compiler_core.capture.numbers.symbols import KINDS, plain_of, symbol
from compiler_core.capture.outside import Outside
from compiler_core.capture.record import Record
from compiler_core.capture.trace import CaptureTrace, Known
from compiler_core.location import is_ours
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import meta_of, use_trace
from compiler_core.tensor.tensor import Tensor


class OutsideObjects:
    """things: by id. tables: id of an object's attributes -> where they were met first. loaded: what has its guard."""

    def __init__(
        self,
        memory: Memory,
        code: Code,
        trace: CaptureTrace,
        names: Names,
        modules: Modules,
        numbers: Numbers,
        arrays: Arrays,
        record: Record,
        sizes: OutsideSizes,
    ) -> None:
        self.memory, self.code, self.guards, self.trace = memory, code, code.guards, trace
        self.names, self.modules, self.numbers, self.arrays, self.record = names, modules, numbers, arrays, record
        self.sizes = sizes
        self.things: dict[int, Outside] = {}
        self.tables: dict[int, Source] = {}
        self.loaded: set[Source] = set()

    def find(self, thing: Any) -> Outside | None:
        """What is known of an object from outside; None of one that the captured code made."""
        found = self.things.get(id(thing))
        return found if found is not None and found.thing is thing else None

    def has(self, thing: Any) -> bool:
        """Whether it was there before."""
        return self.find(thing) is not None

    def load(self, source: Source, value: Any, *, fixed: bool = False) -> Any:
        """The value at `source`, guarded. fixed: other guards make sure that it is this very object."""
        value = plain_of(value)  # an iterator written in C keeps a number that an earlier segment computed
        if is_constant(value):
            return self.constant(source, value, fixed)
        if (stands_for := self._array(source, value, fixed)) is not None:
            return stands_for
        if self.find(value) is not None:
            self.same_object(value, source, fixed)
            return value
        identified = is_identified(value)
        if (fixed or identified) and not isinstance(value, Tensor):
            named = Bound(value, source.text) if identified or can_be_bound(value) else source
            self.things[id(value)] = Outside(value, named, True)
            if not fixed:
                self.guards.require_same(self.code.local(source), value, source.text)
        else:
            self.things[id(value)] = Outside(value, source, fixed)
        self._guard_kind(source, value, fixed or identified)
        table = self.tables.get(id(value))
        if isinstance(table, Raw) and source != Attribute(table.base, "__dict__"):
            self.code.require(f"{self.code.local(source)} is {self.code.local(table)}", f"{source.text} are attributes")
        return value

    def _array(self, source: Source, array: Any, fixed: bool) -> Any:
        """What stands for an array of NumPy's; None of anything else, also of one that no graph can take."""
        known = self.arrays.by_id.get(id(array))
        if known is not None:
            self.same_object(array, source, fixed)
        elif type(array) is np.ndarray and (known := self.arrays.lift(source, array)) is not None:
            for thing in (array, known.traced):
                self.things[id(thing)] = Outside(thing, source, fixed)
        return None if known is None else known.traced

    def same_object(self, thing: Any, source: Source, fixed: bool) -> None:
        """What is known already must be at `source` too."""
        known = self.things[id(thing)]
        if known.source != source and not (fixed and known.fixed):
            self.sizes.note_same(source, known.source)
            self.code.require(
                f"{self.code.local(source)} is {self.code.local(known.source)}", f"{source.text} is {known.source.text}"
            )
            if fixed:
                self.things[id(thing)] = Outside(thing, known.source, True)

    def constant(self, source: Source, value: Any, fixed: bool) -> Any:
        if source in self.loaded:
            return self.numbers.symbols.get(source, value)
        may_change = type(value) in KINDS or is_numpy_number(value)
        if may_change and self.memory.is_dynamic(source):
            made = symbol(self.numbers, source, value) if type(value) in KINDS else self.arrays.number(source, value)
            self.numbers.symbols[source] = made
            self.loaded.add(source)
            return made
        self.loaded.add(source)
        if fixed:
            return value
        if may_change:
            self.numbers.guarded[len(self.guards.texts)] = source
        if isinstance(value, Marker):
            self.code.require(
                f"{self.code.local(source)} is {self.guards.bind(value, 'marker')}", f"{source.text} is {value}"
            )
        else:
            self.guards.require_plain(self.code.local(source), value, source.text)
        return value

    def _guard_kind(self, source: Source, value: Any, fixed: bool) -> None:
        if isinstance(value, Tensor):
            self._tensor(source, value, fixed)
        elif is_module(value):
            self.modules.visit(value, source.text)
        elif type(value) is FunctionType:
            if not fixed or not is_ours(value.__code__.co_filename):
                self.guard_code(source, value, fixed)
        elif fixed:
            return
        else:
            kind = self.guards.bind(type(value), "type")
            local = self.code.local(source)
            self.code.require(f"type({local}) is {kind}", f"{source.text} is a {type(value).__name__}")
            if isinstance(value, tuple):  # whose class may count otherwise, or not at all
                own = type(value).__len__ is not tuple.__len__
                length, count = self.guards.bind(tuple.__len__, "length") if own else "len", tuple.__len__(value)
                self.code.require(f"{length}({local}) == {count}", f"{source.text} has {count} items")

    def guard_code(self, source: Source, function: FunctionType, fixed: bool = False) -> None:
        """A function has the code that it has now."""
        if fixed:
            self.guards.keep_code(function, source.text)
            return
        code = self.guards.bind(function.__code__, "code")
        self.code.require(f"{self.code.local(source)}.__code__ is {code}", f"{source.text} has the same code")

    def _tensor(self, source: Source, tensor: Tensor, fixed: bool) -> None:
        """A tensor from outside: what the graph depends on is guarded; it is lifted when an op reads it."""
        if isinstance(tensor._cell.raw, MetaValue):
            raise Break("a tensor of device meta cannot be compiled", "give it data first")
        if hasattr(type(tensor), "materialize"):  # a parameter without a shape: only who asks for it can go on
            if not fixed:
                self.guards.require_same(self.code.local(source), tensor, source.text)
            return
        if Tensor not in self.names.classes:  # what runs natively may call its methods, too
            self.names.classes.add(Tensor)
            self.names.of_ours().add(Tensor)
        guards = self.guards
        named = self.modules.tensors.get(id(tensor)) or Known(tensor, "input", source.text)
        if fixed and tensor not in self.memory.unstable:
            known = named
        else:
            local = self.code.local(source)
            require_class(guards, local, tensor, source.text)
            first = len(guards.texts)
            with use_trace(None):  # which shows the sizes of what was met before otherwise
                if not self.sizes.take(source, tensor, is_input=named.role == "input"):
                    require_meta(guards, f"{local}._cell.value", meta_of(tensor), source.text)
                    require_layout(guards, f"{local}._cell", tensor, source.text)
                self.sizes.note(source, f"{local}._cell.raw.shape", tensor, first)
            require_gradient(guards, local, tensor, source.text)
            known = Known(tensor, named.role, named.source, local, self.code.place(source, tensor))
        self.trace.know(known)

    def identify(self, source: Source, value: Any, *, fixed: bool) -> None:
        """`value`, of whatever kind, must be this very object."""
        if self.find(value) is not None:
            self.same_object(value, source, fixed)
            return
        named = Bound(value, source.text) if can_be_bound(value) else source
        self.things[id(value)] = Outside(value, named, True)
        if not fixed:
            self.guards.require_same(self.code.local(source), value, source.text)

    def identify_cell(self, source: Source, cell: CellType, fixed: bool) -> None:
        """A closure's cell, of a function from outside."""
        if self.find(cell) is not None:
            self.same_object(cell, source, fixed)
        else:
            self.things[id(cell)] = Outside(cell, source, fixed)

    def note_table(self, known: Outside, own: dict[str, Any]) -> None:
        """Attributes of an object are asked for. Where objects share their `__dict__`, they must do so later."""
        mine = Raw(known.source, own_attributes)
        first = self.tables.setdefault(id(own), mine)
        shared = self.find(own)
        for other in (first, shared.source if shared is not None else mine):
            if other != mine and other != Attribute(known.source, "__dict__"):
                code = f"{self.code.local(mine)} is {self.code.local(other)}"
                self.code.require_once(code, f"{known.source.text} has the attributes of {other.text}")

    def covers(self, known: Outside) -> bool:
        """Whether the items of `known` are as sure as itself: of a tuple, of a registry of a watched module, or of the
        hooks on all modules."""
        if known.fixed and type(known.thing) in (tuple, frozenset):
            return True
        if not known.fixed or not self.modules.visited or id(known.thing) in self.record.originals:
            return False
        return self.modules.is_left_to_the_watch(known.thing)

    def read_attribute(self, owner: Any, known: Outside, source: Source, name: str, value: Any) -> Any:
        """An attribute that an object from outside has of its own."""
        if key_of(owner, name) in self.record.written:
            return self.record.written[key_of(owner, name)]
        if is_module(owner) and (id(owner) not in self.modules.unstable or self.modules.is_left_to_the_watch(value)):
            self.modules.reads.append((id(owner), name, source, value))
            return self.load(source, value, fixed=not self.memory.is_dynamic(source))
        return self.load(source, value)

    def absent(self, known: Outside, name: str) -> None:
        """An object from outside has no attribute of its own under `name`."""
        if (
            not hasattr(known.thing, "__dict__")
            or self.covers(known)
            or key_of(known.thing, name) in self.record.written
        ):
            return
        source = InDict(known.source, name)
        if is_module(known.thing):
            self.modules.reads.append((id(known.thing), name, source, ABSENT))
        else:
            self.require_absent(source, known.thing)

    def require_absent(self, source: InDict, thing: Any) -> None:
        """There must be nothing at `source`, an attribute of `thing`."""
        if source not in self.loaded:
            self.loaded.add(source)
            own = f"{self.code.local(source.base)}.__dict__"
            if isinstance(type(thing).__getattribute__, FunctionType):
                own = self.code.local(Raw(source.base, own_attributes))
            self.code.require(f"{source.name!r} not in {own}", f"{source.text} is its class's")

    def require_present(self, source: Source, thing: Any, name: str) -> None:
        """`thing` must have an attribute of its own at `source`, whatever it is."""
        if key_of(thing, name) not in self.record.written:
            own = self.code.local(source.base)  # type: ignore[union-attr]
            own = own if isinstance(source, Item) else f"{own}.__dict__"
            self.code.require_once(f"{name!r} in {own}", f"there is {source.text}")

    def read_builtin(self, table: dict[str, Any], name: str) -> Any:
        """What Python has under a name: it must stay there. Of the program's it is guarded as any variable is."""
        value = table[name]
        if not isinstance(value, type) and not isinstance(getattr(value, "__self__", None), ModuleType):
            return self.load(Variable(Bound(table, "builtins"), name), value)
        self.names.keep_builtin(table, name)
        return value

    def change_attribute(self, owner: Any, name: str, recorded: Any, function: Callable[..., Any], *args: Any) -> None:
        """Note that `function(owner, *args)` has given an object from outside another attribute."""
        self.record.made(function, owner, *args)
        self.record.note_number(self.find(owner), name, recorded, is_attribute=True)
        self.record.written[key_of(owner, name)] = recorded
        own = own_attributes(owner)
        if own is not None:
            self.record.note_numbers(own, (recorded,))
        if is_module(owner):
            self.modules.note_change(owner)
