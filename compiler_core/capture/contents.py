"""What containers from outside hold, for a segment: guarded as far as it is read, and known where it was changed.

In: containers, keys. Out: guards on lengths, keys and items; what is read after the captured code itself has written.
"""

from __future__ import annotations

import re
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.code import Code
from compiler_core.capture.guards.deaths import is_mortal
from compiler_core.capture.guards.guards import is_plain
from compiler_core.capture.guards.kinds import (
    _BUFFERS,
    _DATA,
    CONTAINERS,
    VIEWS,
    _key,
    is_constant,
    is_identified,
    is_key,
    is_key_of,
    match_content,
    plain_copy,
    raw_item,
    viewed,
)
from compiler_core.capture.guards.module_protocol import ModuleProtocol, is_module
from compiler_core.capture.guards.modules import Modules
from compiler_core.capture.guards.sources import Bound, Item, Raw, shown
from compiler_core.capture.numbers.numbers import Numbers
from compiler_core.capture.numbers.symbols import is_symbol, shown_number
from compiler_core.capture.outside import Outside, contents_of
from compiler_core.capture.outside_objects import OutsideObjects
from compiler_core.capture.record import Record

_NUMBERS = (int, float, str, bytes)


class Contents:
    """whole: ids of containers of which every item is guarded."""

    def __init__(self, code: Code, modules: Modules, numbers: Numbers, outside: OutsideObjects, record: Record) -> None:
        self.code, self.modules, self.numbers, self.outside, self.record = code, modules, numbers, outside, record
        self.whole: set[int] = set()

    def read_length(self, container: Any) -> None:
        """The number of items counts from here on."""
        known = self.outside.find(container)
        if known is None or id(container) in self.whole or isinstance(container, tuple) or self.outside.covers(known):
            return
        if not self.record.has_places(container):
            self.read_whole(container)
            return
        key = Item(known.source, "<length>")
        if key not in self.outside.loaded:
            self.outside.loaded.add(key)
            size = len(plain_copy(self.record.original(container)))
            local = self.code.local(contents_of(known))
            self.code.require(f"len({local}) == {size}", f"{known.source.text} has {size} items")

    def read_numbers(self, container: Any) -> None:
        """Their plain copies are read: constants from here on."""
        for value in self.record.numbers_in.pop(id(container), ()):
            self.numbers.specialise(value)

    def read_item(self, container: Any, key: Any) -> Any:
        """container[key], of a container from outside; it is there."""
        known = self.outside.find(container)
        assert known is not None
        if (id(container), _key(key)) in self.record.written:
            return self.record.written[id(container), _key(key)]
        value = raw_item(container, key)
        if id(container) in self.record.moved:
            self.read_numbers(container)
        if id(container) in self.whole:
            return value
        if id(container) in self.record.originals:
            if id(container) in self.record.moved:
                self.read_whole(container)
                return value
            value = self.record.original(container)[key]
        return self.outside.load(Item(contents_of(known), key), value, fixed=self.outside.covers(known))

    def read_key(self, container: Any, key: Any, present: bool) -> None:
        """Whether `key` is in a dictionary or set from outside counts from here on."""
        known = self.outside.find(container)
        if known is None or id(container) in self.whole or (id(container), _key(key)) in self.record.written:
            return
        if is_symbol(key) or self.outside.covers(known):  # of a number that changes, `require_without` has told
            return
        if isinstance(container, dict) and is_key(key):
            original = self.record.original(container)
            if (key in original) is present:
                spelled = self.code.guards.refer(key, "key") if not is_constant(key) else repr(key)
                mark = Item(known.source, ("in", key))
                if mark not in self.outside.loaded:
                    self.outside.loaded.add(mark)
                    word = "" if present else "not "
                    self.code.require(f"({spelled} in {self.code.local(contents_of(known))}) is {present}",
                                 f"{shown(key)} is {word}in {known.source.text}")  # fmt: skip
                return
        self.read_whole(container)

    def require_without(self, known: Outside, key: Any) -> None:
        """A number that changes is no key of a dictionary or set from outside, which is as it was."""
        code = f"{self.numbers.code_of(key)} not in {self.code.local(contents_of(known))}"
        self.code.require_once(code, f"{shown_number(key)} is not in {known.source.text}")

    def read_whole(self, container: Any) -> None:
        """Every item counts from here on: how many there are, which keys, and each by its kind."""
        known = self.outside.find(container)
        if known is not None:
            self.read_numbers(container)
        if known is None or id(container) in self.whole:
            return
        self.whole.add(id(container))
        held = self.record.original(container)
        covered = self.outside.covers(known)
        if isinstance(held, (set, frozenset)):
            self._members(known, held)
            return
        if not covered and not isinstance(held, tuple):  # a tuple's number of items is told by its kind
            self._keys(known, held)
        count_of = tuple.__len__ if isinstance(held, tuple) else len  # its class may not count
        for key in list(held) if isinstance(held, dict) else range(count_of(held)):
            if (id(container), _key(key)) not in self.record.written or id(container) not in self.record.originals:
                self.numbers.specialise(self.outside.load(Item(contents_of(known), key), held[key], fixed=covered))

    def _keys(self, known: Outside, held: Any) -> None:
        local, text = self.code.local(contents_of(known)), known.source.text
        self.code.require(f"len({local}) == {len(held)}", f"{text} has {len(held)} items")
        if isinstance(held, dict):
            bind = self.code.guards.bind
            if all(type(key) is str for key in held):
                code = f"list({local}) == {bind(list(held), 'keys')}"
            else:  # 1, 1.0 and True are equal
                keys = [self.code.guards.deaths.refer(key) if is_mortal(key) else key for key in held]
                code = f"all(map({bind(is_key_of, 'is_key_of')}, {local}, {bind(keys, 'keys')}))"
            shown = ", ".join(map(repr, held)) if all(map(is_plain, held)) else "the same objects"
            self.code.require(code, f"{text} has the keys {shown}")
            for key in held:
                if not is_plain(key):  # no copy of it
                    self.outside.load(Bound(key, f"a key of {text}"), key, fixed=True)

    def _members(self, known: Outside, held: Any) -> None:
        if not all(is_plain(member) or is_identified(member) for member in held):
            raise Break(f"{known.source.text} is a set of objects that no guard can tell apart")
        local, text = self.code.local(contents_of(known)), f"{known.source.text} has the same members"
        mortal = [member for member in held if is_mortal(member)]
        if mortal:
            there = " and ".join(f"{self.code.guards.refer(member, 'member')} in {local}" for member in mortal)
            others = self.code.guards.bind({member for member in held if not is_mortal(member)}, "members")
            self.code.require(f"len({local}) == {len(held)} and {local} >= {others} and {there}", text)
        else:
            self.code.require(f"{local} == {self.code.guards.bind(plain_copy(held), 'members')}", text)
        if not all(type(member) is str for member in held) and all(map(is_plain, held)):  # 1, 1.0 and True are equal
            spelled = self.code.guards.bind(set(map(repr, held)), "spelled")
            self.code.require(
                f"set(map(repr, {local})) == {spelled}", f"{known.source.text} has them of the same types"
            )

    def read_all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Everything that these hold counts."""
        for value in (*args, *kwargs.values()):
            self.read_deeply(value)

    def read_deeply(self, value: Any) -> None:
        """All that a value holds counts: it is given to a function that may read any of it."""
        seen: dict[int, Any] = {}
        todo = [value]
        while todo:
            value = todo.pop()
            if is_module(value):
                self._read_module(value)
            self.read_data(value)
            if not isinstance(value, CONTAINERS) or id(value) in seen:
                continue
            seen[id(value)] = value
            if self.outside.has(value):
                self.read_whole(value)
            todo += reversed(list(value.values() if isinstance(value, dict) else iter(value)))

    def _read_module(self, module: ModuleProtocol) -> None:
        """All of a module from outside, and of those below it, counts."""
        known = self.outside.find(module)
        if known is not None:
            text = known.source.text
            for path, part in module.named_modules():
                self.modules.visit(part, f"{text}.{path}" if path else text)
                self.whole.add(id(part))

    def read_view(self, view: Any) -> None:
        """What a view or proxy from outside shows counts."""
        if isinstance(view, VIEWS):
            known, table = self.outside.find(view), viewed(view)
            self.read_whole(
                table if known is None else self.outside.load(Raw(known.source, viewed), table, fixed=known.fixed)
            )

    def read_data(self, value: Any) -> None:
        """The content of an object of a class written in C counts. Raises Break where no guard can tell it."""
        self.read_view(value)
        known = self.outside.find(value)
        base = next((base for base in _NUMBERS if issubclass(type(value), base)), None)
        if base is not None and known is not None and not known.fixed:  # of a class derived from a number's
            same, bound = self.code.guards.bind(base.__eq__, "equal"), self.code.guards.bind(value, "value")
            self.code.require_once(
                f"{same}({self.code.local(known.source)}, {bound})", f"{known.source.text} == {value!r}"
            )
        if issubclass(type(value), _BUFFERS) and self.outside.has(value):
            raise Break(f"the content of a {type(value).__name__} from outside is read")
        if type(value) is re.Match and known is not None and not known.fixed:
            content, bound = (self.code.guards.bind(thing, "match") for thing in (match_content, match_content(value)))
            self.code.require_once(
                f"{content}({self.code.local(known.source)}) == {bound}", f"{known.source.text} is as it was"
            )
        if isinstance(value, _DATA) and known is not None and not known.fixed:
            bound = self.code.guards.bind(value, "value")
            local = self.code.local(known.source)  # what is equal need not be spelled alike: Decimal("1.0") and 1.00
            code = f"{local} == {bound} and repr({local}) == {repr(value)!r}"
            self.code.require_once(code, f"{known.source.text} == {value!r}")
