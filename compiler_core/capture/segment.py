"""One segment of captured code: from a start (a call, or the point after a graph break) to its end, and what it found.

In: values loaded through sources while the machine runs. Out: guards (made where a value is loaded, once), the table of
what came from outside, the modules visited, and the record of changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any

from compiler_core.bytecode.frame import Marker
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.ambient import Ambient
from compiler_core.capture.arrays import Arrays, is_numpy_number
from compiler_core.capture.contents import Contents
from compiler_core.capture.guards.arguments import module_tensors, require_gradient, require_layout, require_meta
from compiler_core.capture.guards.builtin_names import BuiltinNames
from compiler_core.capture.guards.classes import ClassNames
from compiler_core.capture.guards.deaths import can_be_bound
from compiler_core.capture.guards.guards import Check, Guards
from compiler_core.capture.guards.kinds import (
    is_constant,
    is_identified,
    is_registry,
    key_of,
    own_attributes,
)
from compiler_core.capture.guards.module_protocol import ModuleProtocol, is_module
from compiler_core.capture.guards.sources import (
    AtEnd,
    Attribute,
    Bound,
    InDict,
    Item,
    Raw,
    Source,
    Variable,
    expression,
)
from compiler_core.capture.lessons import Memory
from compiler_core.capture.numbers.selections import Selections
from compiler_core.capture.numbers.symbols import (
    KINDS,
    Input,
    code_of,
    is_symbol,
    plain_of,
    plain_parts,
    render,
    settled,
    specialised,
    symbol,
)
from compiler_core.capture.outside import Outside
from compiler_core.capture.recipes.holders import now
from compiler_core.capture.trace import CaptureTrace, Known
from compiler_core.location import is_ours
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.tensor import Tensor

ABSENT = object()  # what is read where there is nothing


class CaptureSegment(Contents):
    """See the head of this file. memory: what earlier captures of this place found out (see points.py)."""

    def __init__(self, name: str, memory: Memory) -> None:
        super().__init__()
        self.name, self.memory = name, memory
        self.began = now()
        self.guards = Guards()
        self.trace = CaptureTrace(name, [])
        self.trace.knows_all = True
        self.outside: dict[int, Outside] = {}
        self.operations: list[str] = []  # functions and operators that recorded something
        self.listed: set[int] = set()  # ids of modules whose tensors are in `names`
        self.unstable: set[int] = set()  # ids of modules that this code changes
        self.names: dict[int, Known] = {}  # id of a module's tensor -> its role and the name that the user knows
        self.module_reads: list[tuple[int, str, Source, Any]] = []  # of attributes that are left to the watch
        self.symbols: dict[Source, Any] = {}
        self.selections = Selections()
        self.lifted: dict[tuple[str, Any], Tensor] = {}
        self._required: set[str] = set()
        self.numbers: dict[int, Source] = {}  # guard -> the number it is about
        self.values: list[Any] = []  # at the places that the check function hands over
        self.arrays = Arrays(self)
        self.ambient = Ambient.now()
        self.ambient.guard(self.guards)
        self.clocks: list[Any] = []  # that are read when the graph has run
        self._locals: dict[Source, str] = {}
        self._places: dict[str, int] = {}
        self.tables: dict[int, Source] = {}  # id of an object's attributes -> where they were met first
        self.named_classes: set[type] = set()  # whose attributes' names are guarded
        self.class_names: ClassNames | None = None  # of those among them that are ours
        self.builtin_names: dict[int, BuiltinNames] = {}  # by the id of the table that they are from

    # -- code for sources

    def local(self, source: Source) -> str:
        """The name that holds `source` in the check function."""
        name = self._locals.get(source)
        if name is None:
            code = expression(source, self.local, self.guards.refer)
            name = code if code.isidentifier() else self.guards.let("v", code, text=source.text)
            self._locals[source] = name
            if type(source) is Bound and name != code:
                self.require(f"{name} is not None", f"there is {source.text}")
        return name

    def place(self, source: Source, value: Any) -> int:
        """The index, among what the check function hands over, of `value`, which is at `source`."""
        name = self.local(source)
        if name not in self._places:
            self._places[name] = len(self.guards.outside)
            self.guards.outside.append(name)
            self.values.append(value)
        return self._places[name]

    def number_expression(self, value: Any) -> str | None:
        """Code, over what the check function hands over, for a number computed from numbers from outside."""
        if not is_symbol(value):
            return None

        def leaf(part: Input) -> str:
            if isinstance(part.source, AtEnd):
                return part.source.name
            return f"outside[{self.place(part.source, part.value)}]"

        return render(value, leaf)

    def require_once(self, code: str, text: str) -> None:
        """A condition that may be asked for again."""
        if code not in self._required:
            self._required.add(code)
            self.require(code, text)

    def check_alone(self) -> Check:
        """A check of the guards alone."""
        self.settle_names()
        guards = copy.copy(self.guards)
        guards.lines, guards.inputs, guards.outside = list(guards.lines), [], []
        return guards.build(f"{self.name} skipped")

    # -- what is known of an object

    def find(self, thing: Any) -> Outside | None:
        """What is known of an object from outside; None of one that the captured code made."""
        found = self.outside.get(id(thing))
        return found if found is not None and found.thing is thing else None

    # -- loading

    def load(self, source: Source, value: Any, *, fixed: bool = False) -> Any:
        """The value at `source`, guarded. fixed: other guards make sure that it is this very object."""
        value = plain_of(value)  # an iterator written in C keeps a number that an earlier segment computed
        if is_constant(value):
            return self.constant(source, value, fixed)
        if (stands_for := self.arrays.load(source, value, fixed)) is not None:
            return stands_for
        if self.find(value) is not None:
            self.same_object(value, source, fixed)
            return value
        identified = is_identified(value)
        if (fixed or identified) and not isinstance(value, Tensor):
            named = Bound(value, source.text) if identified or can_be_bound(value) else source
            self.outside[id(value)] = Outside(value, named, True)
            if not fixed:
                self.guards.require_same(self.local(source), value, source.text)
        else:
            self.outside[id(value)] = Outside(value, source, fixed)
        self._guard_kind(source, value, fixed or identified)
        table = self.tables.get(id(value))
        if isinstance(table, Raw) and source != Attribute(table.base, "__dict__"):
            self.require(f"{self.local(source)} is {self.local(table)}", f"{source.text} are attributes")
        return value

    def note_table(self, known: Outside, own: dict[str, Any]) -> None:
        """Attributes of an object are asked for. Where objects share their `__dict__`, they must do so later."""
        mine = Raw(known.source, own_attributes)
        first = self.tables.setdefault(id(own), mine)
        shared = self.find(own)
        for other in (first, shared.source if shared is not None else mine):
            if other != mine and other != Attribute(known.source, "__dict__"):
                code = f"{self.local(mine)} is {self.local(other)}"
                self.require_once(code, f"{known.source.text} has the attributes of {other.text}")

    def same_object(self, thing: Any, source: Source, fixed: bool) -> None:
        """What is known already must be at `source` too."""
        known = self.outside[id(thing)]
        if known.source != source and not (fixed and known.fixed):
            self.require(f"{self.local(source)} is {self.local(known.source)}", f"{source.text} is {known.source.text}")
            if fixed:
                self.outside[id(thing)] = Outside(thing, known.source, True)

    def constant(self, source: Source, value: Any, fixed: bool) -> Any:
        if source in self.loaded:
            return self.symbols.get(source, value)
        may_change = type(value) in KINDS or is_numpy_number(value)
        if may_change and self.memory.is_dynamic(source):
            made = symbol(self, source, value) if type(value) in KINDS else self.arrays.number(source, value)
            self.symbols[source] = made
            self.loaded.add(source)
            return made
        self.loaded.add(source)
        if fixed:
            return value
        if may_change:
            self.numbers[len(self.guards.texts)] = source
        if isinstance(value, Marker):
            self.require(f"{self.local(source)} is {self.guards.bind(value, 'marker')}", f"{source.text} is {value}")
        else:
            self.guards.require_plain(self.local(source), value, source.text)
        return value

    def _guard_kind(self, source: Source, value: Any, fixed: bool) -> None:
        if isinstance(value, Tensor):
            self._tensor(source, value, fixed)
        elif is_module(value):
            self.visit(value, source.text)
        elif type(value) is FunctionType:
            if not fixed or not is_ours(value.__code__.co_filename):
                self.guard_code(source, value, fixed)
        elif fixed:
            return
        else:
            kind = self.guards.bind(type(value), "type")
            local = self.local(source)
            self.require(f"type({local}) is {kind}", f"{source.text} is a {type(value).__name__}")
            if isinstance(value, tuple):  # whose class may count otherwise, or not at all
                own = type(value).__len__ is not tuple.__len__
                length, count = self.guards.bind(tuple.__len__, "length") if own else "len", tuple.__len__(value)
                self.require(f"{length}({local}) == {count}", f"{source.text} has {count} items")

    def guard_code(self, source: Source, function: FunctionType, fixed: bool = False) -> None:
        """A function has the code that it has now."""
        if fixed:
            self.guards.keep_code(function, source.text)
            return
        code = self.guards.bind(function.__code__, "code")
        self.require(f"{self.local(source)}.__code__ is {code}", f"{source.text} has the same code")

    def _tensor(self, source: Source, tensor: Tensor, fixed: bool) -> None:
        """A tensor from outside: what the graph depends on is guarded; it is lifted when an op reads it."""
        if isinstance(tensor._cell.raw, MetaValue):
            raise Break("a tensor of device meta cannot be compiled", "give it data first")
        if hasattr(type(tensor), "materialize"):  # a parameter without a shape: only who asks for it can go on
            if not fixed:
                self.guards.require_same(self.local(source), tensor, source.text)
            return
        if Tensor not in self.named_classes:  # what runs natively may call its methods, too
            self.named_classes.add(Tensor)
            self.names_of_ours().add(Tensor)
        guards = self.guards
        named = self.names.get(id(tensor)) or Known(tensor, "input", source.text)
        if fixed and tensor not in self.memory.unstable:
            known = named
        else:
            local = self.local(source)
            kind = guards.bind(type(tensor), "type")
            self.require(f"type({local}) is {kind}", f"{source.text} is a {type(tensor).__name__}")
            require_meta(guards, f"{local}._cell.value", meta_of(tensor), source.text)
            require_layout(guards, f"{local}._cell", tensor, source.text)
            require_gradient(guards, local, tensor, source.text)
            known = Known(tensor, named.role, named.source, local, self.place(source, tensor))
        self.trace.know(known)

    def visit(self, module: ModuleProtocol, text: str) -> None:
        """A module whose attributes may be read from here on: the watch, or guards of its own, will cover them."""
        if id(module) in self.modules:
            return
        if id(module) not in self.listed:
            self.listed.update(id(part) for part in module.modules())
            for known in module_tensors(module, text):
                self.names.setdefault(id(known.handle), known)
        self.modules[id(module)] = module, text
        if module in self.memory.unstable:
            self.unstable.add(id(module))

    # -- attributes

    def read_attribute(self, owner: Any, known: Outside, source: Source, name: str, value: Any) -> Any:
        """An attribute that an object from outside has of its own."""
        if key_of(owner, name) in self.record.written:
            return self.record.written[key_of(owner, name)]
        if is_module(owner) and (id(owner) not in self.unstable or self.is_left_to_the_watch(value)):
            self.module_reads.append((id(owner), name, source, value))
            return self.load(source, value, fixed=not self.memory.is_dynamic(source))
        return self.load(source, value)

    def is_left_to_the_watch(self, value: Any) -> bool:
        """Whether `value` is a registry of a module, as far as is known not changed by captured code."""
        return is_registry(value) and value not in self.memory.unstable

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
            self.module_reads.append((id(known.thing), name, source, ABSENT))
        else:
            self.require_absent(source, known.thing)

    def require_absent(self, source: InDict, thing: Any) -> None:
        """There must be nothing at `source`, an attribute of `thing`."""
        if source not in self.loaded:
            self.loaded.add(source)
            own = f"{self.local(source.base)}.__dict__"
            if isinstance(type(thing).__getattribute__, FunctionType):
                own = self.local(Raw(source.base, own_attributes))
            self.require(f"{source.name!r} not in {own}", f"{source.text} is its class's")

    def names_of_ours(self) -> ClassNames:
        """What must still hold of the attributes of classes of ours."""
        if self.class_names is None:
            self.class_names = ClassNames(self.guards)
        return self.class_names

    def read_builtin(self, table: dict[str, Any], name: str) -> Any:
        """What Python has under a name: it must stay there. Of the program's it is guarded as any variable is."""
        value = table[name]
        if not isinstance(value, type) and not isinstance(getattr(value, "__self__", None), ModuleType):
            return self.load(Variable(Bound(table, "builtins"), name), value)
        if id(table) not in self.builtin_names:
            self.builtin_names[id(table)] = BuiltinNames(self.guards, table)
        self.builtin_names[id(table)].read[name] = value
        return value

    def settle_names(self) -> None:
        """Nothing more will be read."""
        if self.class_names is not None:
            self.class_names.settle(self.guards)
        for names in self.builtin_names.values():
            names.settle(self.guards)

    def require_present(self, source: Source, thing: Any, name: str) -> None:
        """`thing` must have an attribute of its own at `source`, whatever it is."""
        if key_of(thing, name) not in self.record.written:
            own = self.local(source.base)  # type: ignore[union-attr]
            own = own if isinstance(source, Item) else f"{own}.__dict__"
            self.require_once(f"{name!r} in {own}", f"there is {source.text}")

    def identify(self, source: Source, value: Any, *, fixed: bool) -> None:
        """`value`, of whatever kind, must be this very object."""
        if self.find(value) is not None:
            self.same_object(value, source, fixed)
            return
        named = Bound(value, source.text) if can_be_bound(value) else source
        self.outside[id(value)] = Outside(value, named, True)
        if not fixed:
            self.guards.require_same(self.local(source), value, source.text)

    def identify_cell(self, source: Source, cell: CellType, fixed: bool) -> None:
        """A closure's cell, of a function from outside."""
        if self.find(cell) is not None:
            self.same_object(cell, source, fixed)
        else:
            self.outside[id(cell)] = Outside(cell, source, fixed)

    def change_attribute(self, owner: Any, name: str, recorded: Any, function: Callable[..., Any], *args: Any) -> None:
        """Note that `function(owner, *args)` has given an object from outside another attribute."""
        self.record.made(function, owner, *args)
        self.record.note_number(self.find(owner), name, recorded, is_attribute=True)
        self.record.written[key_of(owner, name)] = recorded
        own = own_attributes(owner)
        if own is not None:
            self.record.note_numbers(own, (recorded,))
        if is_module(owner):
            self.unstable.add(id(owner))
            self.memory.unstable.add(owner)

    # -- numbers

    def specialise(self, value: Any) -> Any:
        """A number of the program's as a constant, guarded: for whoever needs its value."""
        return specialised(self, value)

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """`specialise`, of keyword arguments."""
        return {key: specialised(self, value) for key, value in kwargs.items()}

    def settle(self, *values: Any) -> None:
        """Numbers of the program's that these hold, however deep, are constants from here on: C code reads them."""
        if self.symbols:
            for value in values:
                settled(self, value)

    def plain(self, value: Any) -> Any:
        """`value` without what only capture knows: what an object from outside may hold."""
        return self.arrays.itself(plain_parts(value))

    def code_of(self, value: Any) -> str:
        return code_of(self, value)
