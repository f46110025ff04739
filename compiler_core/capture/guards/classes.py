"""Guards on the attributes of classes of ours, which a program may add to, replace and delete.

In: classes that captured code reads from, and what it reads. Out: `ClassNames`: one condition for all of them, that
none was given an attribute, none has lost one, and what was read is the same.
Method: attributes are counted, and those that a program has given are there: see `births.py`, with its limits.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from compiler_core.births import names_given
from compiler_core.capture.guards.deaths import Mortal, is_mortal
from compiler_core.capture.guards.guards import Guards
from compiler_core.capture.guards.kinds import is_key_of, viewed


class ClassNames:
    """The classes of one `Guards`: each with its size, and the attributes that count: those that were given to it by
    name alone, those that were read with what they hold."""

    def __init__(self, guards: Guards) -> None:
        self.deaths = guards.deaths
        self.sizes: dict[type, int] = {}
        self.given: dict[type, list[str]] = {}
        self.read: dict[type, dict[str, Any]] = {}
        self.place = guards.require_explained("True", "", self)

    def add(self, cls: type) -> None:
        """`cls` too must have the attributes that it has."""
        if cls not in self.sizes:
            self.sizes[cls], self.given[cls], self.read[cls] = len(vars(cls)), names_given(cls), {}

    def keep(self, cls: type, name: str) -> None:
        """Its attribute `name` must be the very object that it is."""
        self.add(cls)
        value = vars(cls)[name]
        self.read[cls][name] = self.deaths.refer(value) if is_mortal(value) else value

    def settle(self, guards: Guards) -> None:
        """All is added: the condition."""
        bind, conditions = guards.bind, []
        for cls, size in self.sizes.items():
            local = bind(viewed(vars(cls)), "table")
            conditions.append(f"len({local}) == {size}")
            conditions += [f"{name!r} in {local}" for name in self.given[cls] if name not in self.read[cls]]
            mortal = {name: value for name, value in self.read[cls].items() if type(value) is Mortal}
            conditions += [guards.same(f"{local}[{name!r}]", value()) for name, value in mortal.items()]
            read = {name: value for name, value in self.read[cls].items() if name not in mortal}
            if len(read) == 1:
                ((name, value),) = read.items()
                conditions.append(f"{local}[{name!r}] is {bind(value, 'object')}")
            elif read:
                get, values = bind(itemgetter(*read), "get"), bind(tuple(read.values()), "read")
                conditions.append(f"{get}({local}) == {values}")
        text = f"{', '.join(cls.__name__ for cls in self.sizes)}: the same attributes"
        guards.replace(self.place, " and ".join(conditions), text)

    @property
    def difference(self) -> str:
        """The condition that does not hold, of the class that it is about."""
        for cls, size in self.sizes.items():
            now, read = vars(cls), self.read[cls]
            if len(now) != size or any(name not in now for name in (*self.given[cls], *read)):
                return f"{cls.__name__} has the same attributes"
            changed = next((name for name, value in read.items() if not is_key_of(now[name], value)), "")
            if changed:
                return f"{cls.__name__}.{changed} is the same"
        return ""

    def culprits(self) -> list[Any]:
        """None: a class does not change at every call."""
        return []
