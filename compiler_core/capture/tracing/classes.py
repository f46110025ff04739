"""What classes say: their attributes are guarded where they are looked up, unless they stay what they are.

In: classes, names. Out: what is found; and whether code of the program's answers an operator. Nothing of it runs.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import is_constant
from compiler_core.capture.guards.sources import Attribute, Bound, Item
from compiler_core.capture.tracing.lookup import ABSENT, is_fixed_class, lookup
from compiler_core.capture.tracing.part import Part
from compiler_core.capture.tracing.rules.overriding import asks
from compiler_core.capture.tracing.rules.pure import has_known_zone, is_known_slot, is_ours_class
from compiler_core.location import is_ours
from compiler_core.records import dataclass


@dataclass(eq=False, repr=False)
class Classes(Part):
    """See the head of this file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.class_seen: dict[tuple[int, str], Any] = {}

    def method_of(self, owner: Any, name: str) -> Any:
        """The program's own method `name` of an object, if it is written in Python."""
        self.guard_names(type(owner))
        found, base = lookup(type(owner), name)
        if not isinstance(found, FunctionType):
            return None
        return found if is_fixed_class(base) else self.of_class(base, name, found)

    def program_method(self, value: Any, name: str) -> Any:
        """A method of the program's (not of ours), written in Python, that an operator calls."""
        method = self.method_of(value, name)
        return None if method is None or (is_ours(method.__code__.co_filename) and not asks(value)) else method

    def looked_up(self, cls: type, name: str) -> Any:
        """`lookup`, of what is about to be called: a function has a source, so that what its closure holds has one."""
        self.guard_names(cls)
        found, base = lookup(cls, name)
        if isinstance(found, FunctionType) and not is_fixed_class(base):
            return self.of_class(base, name, found)
        return found

    def guard_names(self, cls: type) -> None:
        """No attribute is added to a class or its bases, where it would hide what was found, or be found itself; none
        goes. Of the program's classes all names are compared, of ours what tells them (`guards/classes.py`)."""
        if cls in self.names.classes:
            return
        for base in cls.__mro__:
            if not is_fixed_class(base) and base not in self.names.classes:
                self._guard_names_of(base)
            self.names.classes.add(base)

    def _guard_names_of(self, cls: type) -> None:
        if is_ours_class(cls):
            self.names.of_ours().add(cls)
            return
        bind, table = self.code.guards.bind, vars(cls)
        code = f"{bind(table.keys(), 'names')} == {bind(frozenset(table), 'known')}"
        if cls.__bases__ != (object,):
            code += f" and {bind(cls, 'class')}.__mro__ is {bind(cls.__mro__, 'order')}"
        self.code.require(code, f"{cls.__name__} has the same attributes and bases")

    def subclasses(self, cls: type) -> list[type]:
        """The classes made of this one that are alive: guarded."""
        bind = self.code.guards.bind
        found: list[type] = type.__subclasses__(cls)
        of = bind(functools.partial(type.__subclasses__, cls), "subclasses")
        self.code.require(f"{of}() == {bind(found, 'known')}", f"{cls.__name__} has the same subclasses")
        return list(found)

    def vouch(self, value: Any, *names: str) -> None:
        """What these operators of an object do, which is about to be done natively. Raises Break for what is written in
        C and is not known to only compute."""
        cls = type(value)
        for name in names:
            found, base = lookup(cls, name)
            if found is ABSENT or found is None or isinstance(found, FunctionType):
                continue
            if not is_known_slot(cls, base, name) or not has_known_zone(value):
                raise Break(f"{name} of a {cls.__name__}, which is written in C")

    def part(self, owner: Any, name: str) -> Any:
        """An attribute that never changes, of a descriptor, a bound method or a partial."""
        value = getattr(owner, name)
        known = self.outside.find(owner)
        return value if known is None else self.outside.load(Attribute(known.source, name), value, fixed=known.fixed)

    def of_class(self, base: type, name: str, found: Any) -> Any:
        """An attribute of a class: guarded, unless it stays what it is."""
        key = (id(base), name)
        if key not in self.class_seen:
            source = Item(Attribute(Bound(base, base.__name__), "__dict__"), name)
            written = self.record.written.get((id(base), name), ABSENT)
            if written is not ABSENT:
                return written
            fixed = is_fixed_class(base)
            if not fixed and is_ours_class(base) and not is_constant(found):
                self.names.of_ours().keep(base, name)
                fixed = True
            if isinstance(found, (property, staticmethod, classmethod, functools.cached_property)):
                self.outside.identify(source, found, fixed=fixed)
                self.class_seen[key] = found
            else:
                self.class_seen[key] = self.outside.load(source, found, fixed=fixed)
        return self.class_seen[key]
