"""How one object is made again: a `RebuildPlan`, pieces of code with the objects that they mention.

In: text, objects to be rebuilt (`Part`), objects that stay the very ones (`Fixed`), the object itself (`SELF`).
Out: `RebuildPlan`. `recipes.py` finds the order in which plans run and turns pieces into text.
Invariant: what `make` mentions must exist before the object does; what `fill` and `hashing` mention may come later, so
cycles go through these. `whole`, where there is one, does all of it in one expression, for objects on no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from compiler_core.records import dataclass


class CannotRebuild(Exception):
    """An object left behind by captured code that a later call could not make again.

    thing: the object. where: how it is reached, e.g. "the variable 'gen'". why, remedy: sentences.
    """

    def __init__(self, thing: Any, where: str, why: str, remedy: str) -> None:
        super().__init__(f"{where} is {_kind(thing)}: {why}")
        self.thing, self.where, self.why, self.remedy = thing, where, why, remedy


class Refusal(Exception):
    """Why an object has no plan, and what to do; its place is added by who knows it."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why, self.remedy = why, remedy


@dataclass(frozen=True, slots=True)
class Part:
    """An object that is to be rebuilt too. access: how it is reached from the one that holds it: `[0]`, `.x`."""

    value: Any
    access: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """An object that, if it does not come from outside, stays the very one it is (a function's globals)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fixed:
    """An object that stays the very one it is. stem: what the name for it begins with."""

    value: Any
    stem: str


class _Itself:
    """The object that the plan is for."""


SELF = _Itself()
Piece: TypeAlias = "str | Part | Found | Fixed | _Itself"
Code: TypeAlias = tuple[Piece, ...]


@dataclass(slots=True)
class RebuildPlan:
    """make: an expression for the new object. fill: statements that complete it. hashing: those that hash parts, last.

    whole: all of that as one expression. table: its `__dict__`, to be filled too. stem: what its variable begins with.
    immutable: whether it is a constant if all parts are. pure: whether making it reads nothing that effects may change.
    """

    make: Code
    fill: tuple[Code, ...] = ()
    hashing: tuple[Code, ...] = ()
    whole: Code | None = None
    table: dict[str, Any] | None = None
    stem: str = "made"
    immutable: bool = False
    pure: bool = True

    def codes(self) -> tuple[Code, ...]:
        """All code that the plan may run, `make` first."""
        return self.make, *self.fill, *self.hashing

    def parts(self) -> list[Part | Found]:
        """What the plan mentions, in order."""
        return [piece for code in self.codes() for piece in code if isinstance(piece, Part | Found)]


def listed(parts: Iterable[Part], before: str, after: str, single: str = "") -> Code:
    """`before`, the parts with commas between, `after`; single: what follows an only part (a tuple's comma)."""
    pieces: list[Piece] = [before]
    for part in parts:
        pieces += [part, ", "]
    if len(pieces) > 1:
        pieces.pop()
    return (*pieces, single, after) if len(pieces) == 2 else (*pieces, after)


def items(values: Iterable[Any]) -> list[Part]:
    """The items of a sequence."""
    return [Part(value, f"[{index}]") for index, value in enumerate(values)]


def pairs(table: Iterable[tuple[Any, Any]], before: str, after: str, colon: str = ": ") -> Code:
    """`before`, key and value of each item, `after`."""
    pieces: list[Piece] = [before]
    for key, value in table:
        pieces += [Part(key, f", its key {shown(key)}"), colon, Part(value, f"[{shown(key)}]"), ", "]
    if len(pieces) > 1:
        pieces.pop()
    return (*pieces, after)


def shown(key: Any) -> str:
    """A dict's key, or what it is."""
    return repr(key) if type(key) in (str, int, float, bool, bytes, type(None)) else f"a {type(key).__name__}"


def _kind(thing: Any) -> str:
    name = type(thing).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
