"""One segment of captured code: from a start (a call, or the point after a graph break) to its end, and what it found.

In: values loaded through sources while the machine runs. Out: guards (made where a value is loaded, once), the table of
what came from outside, the modules visited, and the effects: changes of what was there before, recorded in order.
Changes happen for real while they are recorded; what is read after them is what the code itself wrote, and needs no
guard: `written` keeps which attributes and items those are, `originals` what a container held before.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from types import CellType, FunctionType, ModuleType
from typing import Any

from compiler_core.bytecode.frame import Marker
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.ambient import Ambient
from compiler_core.capture.arguments import module_tensors, require_gradient, require_layout, require_meta
from compiler_core.capture.arrays import Arrays, is_numpy_number
from compiler_core.capture.guards import Check, Guards, is_plain
from compiler_core.capture.kinds import (
    _BUFFERS,
    _DATA,
    CONTAINERS,
    VIEWS,
    _key,
    _same,
    is_constant,
    is_identified,
    is_key,
    is_registry,
    key_of,
    own_attributes,
    plain_copy,
    raw_item,
    viewed,
)
from compiler_core.capture.lessons import Memory
from compiler_core.capture.module_protocol import ModuleProtocol, is_module
from compiler_core.capture.outside import Effect, Outside, contents_of, own_source
from compiler_core.capture.sources import Bound, InDict, Item, Raw, Source, expression, shown
from compiler_core.capture.symbols import (
    KINDS,
    code_of,
    is_symbol,
    plain_of,
    plain_parts,
    render,
    shown_number,
    specialised,
    symbol,
)
from compiler_core.capture.trace import CaptureTrace, Known
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import meta_of
from compiler_core.tensor.tensor import Tensor

_NUMBERS = (int, float, str, bytes)
COUNTED = frozenset({int, float, *(kind for plain, kind in KINDS.items() if plain is not str)})
ABSENT = object()  # what is read where there is nothing


class Segment:
    """See the head of this file. memory: what earlier captures of this place found out (see points.py)."""

    def __init__(self, name: str, memory: Memory) -> None:
        self.name, self.memory = name, memory
        self.guards = Guards()
        self.trace = CaptureTrace(name, [])
        self.trace.knows_all = True
        self.outside: dict[int, Outside] = {}
        self.effects: list[Effect] = []
        self.operations: list[str] = []  # functions and operators that recorded something
        self.written: dict[tuple[int, Any], Any] = {}  # (id of the owner, attribute or key) -> value as recorded
        self.originals: dict[int, Any] = {}  # id of a changed container -> a copy of what it held
        self.whole: set[int] = set()  # ids of containers of which every item is guarded
        self.modules: dict[int, tuple[ModuleProtocol, str]] = {}  # visited, and what the user calls them
        self.named: set[int] = set()  # ids of modules whose tensors are in `names`
        self.unstable: set[int] = set()  # ids of modules that this code changes
        self.names: dict[int, Known] = {}  # id of a module's tensor -> its role and the name that the user knows
        self.module_reads: list[tuple[int, str, Source, Any]] = []  # of attributes that are left to the watch
        self.symbols: dict[Source, Any] = {}
        self.lifted: dict[tuple[str, Any], Tensor] = {}
        self._required: set[str] = set()
        self.numbers: dict[int, Source] = {}  # guard -> the number it is about
        self.put_off: list[Any] = []  # frames of generators that were dropped and could not be closed under capture
        self.put_off_because = ""
        self.generators: list[Any] = []  # from outside, in whose bodies the segment starts
        self.values: list[Any] = []  # at the places that the check function hands over
        self.arrays = Arrays(self)
        self.ambient = Ambient.now()
        self.ambient.guard(self.guards)
        self.numbers_in: dict[int, list[Any]] = {}  # id of a container -> symbols of which it holds plain copies
        self.counters: list[Source] = []  # of numbers that this code changes: the next capture takes them as inputs
        self.moved: set[int] = set()  # ids of changed containers in which `written` does not tell every place
        self.keep: list[Any] = []  # what tables name by id
        self._locals: dict[Source, str] = {}
        self._places: dict[str, int] = {}
        self.loaded: set[Source] = set()
        self.counted: set[type] = set()  # classes of which no attribute is added

    # -- code for sources

    def local(self, source: Source) -> str:
        """The name that holds `source` in the check function."""
        name = self._locals.get(source)
        if name is None:
            code = expression(source, self.local, self.guards.bind)
            name = code if code.isidentifier() else self.guards.let("v", code, text=source.text)
            self._locals[source] = name
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
        return render(value, lambda part: f"outside[{self.place(part.source, part.value)}]")

    def require_once(self, code: str, text: str) -> None:
        """A condition that may be asked for again."""
        if code not in self._required:
            self._required.add(code)
            self.require(code, text)

    def require(self, code: str, text: str) -> None:
        self.guards.require(code, text)

    def check_alone(self) -> Check:
        """A check of the guards alone."""
        guards = copy.copy(self.guards)
        guards.lines, guards.inputs, guards.outside = list(guards.lines), [], []
        return guards.build(f"{self.name} skipped")

    # -- what is known of an object

    def find(self, thing: Any) -> Outside | None:
        """What is known of an object from outside; None of one that the captured code made."""
        found = self.outside.get(id(thing))
        return found if found is not None and found.thing is thing else None

    def is_outside(self, thing: Any) -> bool:
        return self.find(thing) is not None

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
            self.outside[id(value)] = Outside(value, Bound(value, source.text), True)
            if not fixed:
                self.require(f"{self.local(source)} is {self.guards.bind(value, 'object')}",
                             f"{source.text} is the same {type(value).__name__}")  # fmt: skip
        else:
            self.outside[id(value)] = Outside(value, source, fixed)
        self._guard_kind(source, value, fixed or identified)
        return value

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
        elif fixed:
            return
        elif type(value) is FunctionType:
            local = self.local(source)
            code = self.guards.bind(value.__code__, "code")
            self.require(f"{local}.__code__ is {code}", f"{source.text} has the same code")
        else:
            kind = self.guards.bind(type(value), "type")
            local = self.local(source)
            self.require(f"type({local}) is {kind}", f"{source.text} is a {type(value).__name__}")
            if type(value) is tuple or isinstance(value, tuple):
                self.require(f"len({local}) == {len(value)}", f"{source.text} has {len(value)} items")

    def _tensor(self, source: Source, tensor: Tensor, fixed: bool) -> None:
        """A tensor from outside: what the graph depends on is guarded; it is lifted when an op reads it."""
        if isinstance(tensor._cell.raw, MetaValue):
            raise Break("a tensor of device meta cannot be compiled", "give it data first")
        if hasattr(type(tensor), "materialize"):  # a parameter without a shape: only who asks for it can go on
            if not fixed:
                self.require(
                    f"{self.local(source)} is {self.guards.bind(tensor, 'object')}", f"{source.text} is the same"
                )
            return
        guards = self.guards
        named = self.names.get(id(tensor)) or Known(tensor, "input", source.text)
        if fixed and tensor not in self.memory.unstable:
            known = named
            guards.covered.add(id(tensor))
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
        if id(module) not in self.named:
            self.named.update(id(part) for part in module.modules())
            for known in module_tensors(module, text):
                self.names.setdefault(id(known.handle), known)
        self.modules[id(module)] = module, text
        if module in self.memory.unstable:
            self.unstable.add(id(module))

    # -- attributes

    def read_attribute(self, owner: Any, known: Outside, source: Source, name: str, value: Any) -> Any:
        """An attribute that an object from outside has of its own."""
        if key_of(owner, name) in self.written:
            return self.written[key_of(owner, name)]
        if is_module(owner) and (id(owner) not in self.unstable or self.is_left_to_the_watch(value)):
            self.module_reads.append((id(owner), name, source, value))
            return self.load(source, value, fixed=not self.memory.is_dynamic(source))
        return self.load(source, value)

    def is_left_to_the_watch(self, value: Any) -> bool:
        """Whether `value` is a registry of a module, as far as is known not changed by captured code."""
        return is_registry(value) and value not in self.memory.unstable

    def absent(self, known: Outside, name: str) -> None:
        """An object from outside has no attribute of its own under `name`."""
        if not hasattr(known.thing, "__dict__") or self.covers(known) or key_of(known.thing, name) in self.written:
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

    def identify(self, source: Source, value: Any, *, fixed: bool) -> None:
        """`value`, of whatever kind, must be this very object."""
        if self.find(value) is None:
            self.outside[id(value)] = Outside(value, Bound(value, source.text), True)
            if not fixed:
                bound = self.guards.bind(value, "object")
                self.require(f"{self.local(source)} is {bound}", f"{source.text} is the same {type(value).__name__}")

    def identify_cell(self, source: Source, cell: CellType, fixed: bool) -> None:
        """A closure's cell, of a function from outside."""
        if self.find(cell) is None:
            self.outside[id(cell)] = Outside(cell, Bound(cell, source.text) if fixed else source, fixed)

    def change_attribute(self, owner: Any, name: str, recorded: Any, function: Callable[..., Any], *args: Any) -> None:
        """Note that `function(owner, *args)` has given an object from outside another attribute."""
        self.effect(function, owner, *args)
        self.note_change(owner, name, recorded)
        self.written[key_of(owner, name)] = recorded
        own = own_attributes(owner)
        if own is not None:
            self.note_numbers(own, (recorded,))
        self.keep.append(owner)
        if is_module(owner):
            self.unstable.add(id(owner))
            self.memory.unstable.add(owner)

    def note_change(self, owner: Any, key: Any, value: Any) -> None:
        """A number is put into an object from outside, as an attribute or an item: another one than was there?"""
        known = self.find(owner)
        if known is None or type(value) not in COUNTED:
            return
        own = own_attributes(owner)
        if isinstance(owner, (list, dict, deque)):
            source: Source = Item(contents_of(known), key)
        elif own is not None:
            source, owner = own_source(known, key), own
        else:
            return
        try:
            before = self.written.get((id(owner), _key(key)), raw_item(self.original(owner), key))
        except LookupError:
            before = None
        if type(before) not in COUNTED or plain_of(before) != plain_of(value):
            self.counters.append(source)

    def effect(self, function: Callable[..., Any], target: Any, *args: Any) -> None:
        """Record a change that has just been made."""
        self.arrays.note_kept(target, args)
        self.effects.append(Effect(function, target, args))

    # -- containers

    def original(self, container: Any) -> Any:
        """What a container from outside held before the captured code changed it."""
        return self.originals.get(id(container), container)

    def before_change(self, container: Any) -> None:
        """A container from outside is about to be changed."""
        if id(container) not in self.originals:
            self.originals[id(container)] = plain_copy(container)
            self.keep.append(container)

    def read_length(self, container: Any) -> None:
        """The number of items counts from here on."""
        known = self.find(container)
        if known is None or id(container) in self.whole or isinstance(container, tuple) or self.covers(known):
            return
        if not self.has_its_places(container):
            self.read_whole(container)
            return
        key = Item(known.source, "<length>")
        if key not in self.loaded:
            self.loaded.add(key)
            size = len(plain_copy(self.original(container)))
            local = self.local(contents_of(known))
            self.require(f"len({local}) == {size}", f"{known.source.text} has {size} items")

    def has_its_places(self, container: Any) -> bool:
        """Whether a sequence from outside has its items in their places as before; some may have been assigned."""
        if isinstance(container, (list, deque)):
            return id(container) not in self.moved
        return id(container) not in self.originals

    def forget_written(self, container: Any) -> None:
        """What was written to its places is no longer there."""
        for key in [key for key in self.written if key[0] == id(container)]:
            del self.written[key]

    def note_numbers(self, container: Any, values: Iterable[Any]) -> None:
        """Plain copies of numbers that change from call to call were put into a container from outside."""
        for value in values:
            if plain_parts(value) is not value:
                self.numbers_in.setdefault(id(container), []).append(value)
            elif isinstance(value, dict):
                self.note_numbers(container, (*value, *value.values()))
            elif isinstance(value, (list, set, deque)):
                self.note_numbers(container, value)

    def read_numbers(self, container: Any) -> None:
        """Their plain copies are read: constants from here on."""
        for value in self.numbers_in.pop(id(container), ()):
            specialised(self, value)

    def read_item(self, container: Any, key: Any) -> Any:
        """container[key], of a container from outside; it is there."""
        known = self.find(container)
        assert known is not None
        if (id(container), _key(key)) in self.written:
            return self.written[id(container), _key(key)]
        value = raw_item(container, key)
        if id(container) in self.moved:
            self.read_numbers(container)
        if id(container) in self.whole:
            return value
        if id(container) in self.originals:
            if id(container) in self.moved:
                self.read_whole(container)
                return value
            value = self.original(container)[key]
        return self.load(Item(contents_of(known), key), value, fixed=self.covers(known))

    def covers(self, known: Outside) -> bool:
        """Whether the items of `known` are as sure as itself: of a tuple, of a registry of a watched module, or of the
        hooks on all modules."""
        if known.fixed and type(known.thing) in (tuple, frozenset):
            return True
        if not known.fixed or not self.modules or id(known.thing) in self.originals:
            return False
        return self.is_left_to_the_watch(known.thing)

    def read_key(self, container: Any, key: Any, present: bool) -> None:
        """Whether `key` is in a dictionary or set from outside counts from here on."""
        known = self.find(container)
        if known is None or id(container) in self.whole or (id(container), _key(key)) in self.written:
            return
        if is_symbol(key) or self.covers(known):  # of a number that changes, `require_without` has told
            return
        if isinstance(container, dict) and is_key(key):
            original = self.original(container)
            if (key in original) is present:
                spelled = self.guards.bind(key, "key") if not is_constant(key) else repr(key)
                mark = Item(known.source, ("in", key))
                if mark not in self.loaded:
                    self.loaded.add(mark)
                    word = "" if present else "not "
                    self.require(f"({spelled} in {self.local(contents_of(known))}) is {present}",
                                 f"{shown(key)} is {word}in {known.source.text}")  # fmt: skip
                return
        self.read_whole(container)

    def require_without(self, known: Outside, key: Any) -> None:
        """A number that changes is no key of a dictionary or set from outside, which is as it was."""
        code = f"{code_of(self, key)} not in {self.local(contents_of(known))}"
        self.require_once(code, f"{shown_number(key)} is not in {known.source.text}")

    def read_whole(self, container: Any) -> None:
        """Every item counts from here on: how many there are, which keys, and each by its kind."""
        known = self.find(container)
        if known is not None:
            self.read_numbers(container)
        if known is None or id(container) in self.whole:
            return
        self.whole.add(id(container))
        held = self.original(container)
        covered = self.covers(known)
        if isinstance(held, (set, frozenset)):
            self._members(known, held)
            return
        if not covered:
            self._keys(known, held)
        for key in list(held) if isinstance(held, dict) else range(len(held)):
            if (id(container), _key(key)) not in self.written or id(container) not in self.originals:
                specialised(self, self.load(Item(contents_of(known), key), held[key], fixed=covered))

    def _keys(self, known: Outside, held: Any) -> None:
        local, text = self.local(contents_of(known)), known.source.text
        self.require(f"len({local}) == {len(held)}", f"{text} has {len(held)} items")
        if isinstance(held, dict):
            if all(map(is_plain, held)):
                self.require(
                    f"list({local}) == {self.guards.bind(list(held), 'keys')}",
                    f"{text} has the keys {', '.join(map(repr, held))}",
                )
            else:
                keys = self.guards.bind(list(held), "keys")
                same = self.guards.bind(_same, "same")
                self.require(f"all(map({same}, {local}, {keys}))", f"{text} has the same keys")

    def _members(self, known: Outside, held: Any) -> None:
        members = self.guards.bind(plain_copy(held), "members")
        if not all(is_plain(member) or is_identified(member) for member in held):
            raise Break(f"{known.source.text} is a set of objects that no guard can tell apart")
        local = self.local(contents_of(known))
        self.require(f"{local} == {members}", f"{known.source.text} has the same members")

    def read_deeply(self, value: Any, depth: int = 0) -> None:
        """All that a value holds counts: it is given to a function that may read any of it."""
        if is_module(value):
            self._read_module(value)
        self.read_data(value)
        if is_constant(value) or isinstance(value, (Tensor, type, FunctionType, ModuleType)) or depth > 8:
            return
        if isinstance(value, CONTAINERS):
            if self.is_outside(value):
                self.read_whole(value)
            items: Iterable[Any] = value.values() if isinstance(value, dict) else value
            for item in list(items):
                self.read_deeply(item, depth + 1)

    def _read_module(self, module: ModuleProtocol) -> None:
        """All of a module from outside, and of those below it, counts."""
        known = self.find(module)
        if known is not None:
            text = known.source.text
            for path, part in module.named_modules():
                self.visit(part, f"{text}.{path}" if path else text)
                self.whole.add(id(part))

    def read_view(self, view: Any) -> None:
        """What a view or proxy from outside shows counts."""
        known = self.find(view)
        if known is not None and isinstance(view, VIEWS):
            self.read_whole(self.load(Raw(known.source, viewed), viewed(view), fixed=known.fixed))

    def read_data(self, value: Any) -> None:
        """The content of an object of a class written in C counts. Raises Break where no guard can tell it."""
        self.read_view(value)
        known = self.find(value)
        base = next((base for base in _NUMBERS if issubclass(type(value), base)), None)
        if base is not None and known is not None and not known.fixed:  # of a class derived from a number's
            same, bound = self.guards.bind(base.__eq__, "equal"), self.guards.bind(value, "value")
            self.require_once(f"{same}({self.local(known.source)}, {bound})", f"{known.source.text} == {value!r}")
        if issubclass(type(value), _BUFFERS) and self.is_outside(value):
            raise Break(f"the content of a {type(value).__name__} from outside is read")
        if isinstance(value, _DATA) and known is not None and not known.fixed:
            bound = self.guards.bind(value, "value")
            self.require_once(f"{self.local(known.source)} == {bound}", f"{known.source.text} == {value!r}")
