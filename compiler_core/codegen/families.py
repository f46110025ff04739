"""Sources that differ in numbers alone: which numbers are to be variables, so that one code serves them all.

In: sources of one graph at several sizes, as `Tokens`, one after the other. Out: `Holes`, or None: a code of its own.

    skeleton   a source, its numbers left out
    hole       a number of a skeleton that was not the same in all of its sources so far; it is a variable. Holes that
               held equal numbers in each of these sources share a slot

The first source of a skeleton has no holes. One whose numbers differ at other places than those known opens more of
them: that is another code to compile. Mostly the second or third opens all that there are.
Invariant: the code with the slots' numbers in the holes is the source that was given. So nothing is assumed of sizes:
each is lowered by itself, and only a compiler's work is shared.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from threading import Lock

from compiler_core.records import dataclass

_INT = re.compile(r"\d+")
_REAL = re.compile(r"((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(f?)")


@dataclass(frozen=True, slots=True)
class Tokens:
    """A unit: its numbers that may be variables, and what stands between. The text is each piece and the number after
    it."""

    pieces: list[str]
    numbers: list[str]


@dataclass(frozen=True, slots=True)
class Holes:
    """slots: place of a number, counted over all units -> its slot. numbers: by slot, those of the source."""

    slots: dict[int, int]
    numbers: tuple[str, ...]


@dataclass
class _Family:
    """The sources of one skeleton. columns: the numbers of those that opened holes, the first source's first.

    columns[k][i]: number i in source k. large: integers from there on are holes as soon as there are any; 0: they are
    no exception.
    """

    columns: list[list[str]]
    large: int
    slots: dict[int, int] = field(default_factory=dict)  # number that is a hole -> its slot

    def takes(self, numbers: Sequence[str]) -> bool:
        """Whether the holes that there are make the code of a source with these numbers."""
        held: dict[int, str] = {}
        first = self.columns[0]
        for place, number in enumerate(numbers):
            slot = self.slots.get(place)
            if slot is None:
                if number != first[place]:
                    return False
            elif kind_of(number) != kind_of(first[place]) or held.setdefault(slot, number) != number:
                return False
        return True

    def may_differ(self, numbers: Sequence[str]) -> bool:
        """Whether all numbers that differ are of one kind at each place, and can be variables."""
        return all(a == b or kind_of(a) == kind_of(b) != "" for a, b in zip(self.columns[0], numbers))

    def open(self, numbers: Sequence[str]) -> None:
        """Have holes wherever a source with these numbers, too, asks for one."""
        self.columns.append(list(numbers))
        self.slots = {}
        known: dict[tuple[str, ...], int] = {}
        for place, column in enumerate(zip(*self.columns)):
            if len(set(column)) > 1 or self._is_large(column[0]):
                self.slots[place] = known.setdefault(column, len(known))

    def _is_large(self, number: str) -> bool:
        return bool(self.large) and number.isdecimal() and self.large <= int(number) < 1 << 63

    def holes(self, numbers: Sequence[str]) -> Holes:
        found = {slot: numbers[place] for place, slot in self.slots.items()}
        return Holes(dict(self.slots), tuple(found[slot] for slot in range(len(found))))


class Families:
    """The families of sources that a process has seen. large: see `_Family`."""

    def __init__(self, large: int = 0) -> None:
        self._large, self._families, self._lock = large, dict[str, _Family](), Lock()

    def holes(
        self, units: Mapping[str, Tokens], others: Callable[[], Iterable[Mapping[str, Tokens]]] = tuple
    ) -> Holes | None:
        """The holes of a source's code; None: its numbers cannot be variables where they differ. others: asked of a new
        skeleton for further sources; the first code has the holes that these open."""
        numbers, skeleton = [number for unit in units.values() for number in unit.numbers], _skeleton(units)
        with self._lock:
            is_new = skeleton not in self._families
            family = self._families.setdefault(skeleton, _Family([numbers], self._large))
        for other in others() if is_new else ():
            self.holes(other)
        with self._lock:
            if not family.takes(numbers):
                if not family.may_differ(numbers):
                    return None
                family.open(numbers)
            return family.holes(numbers)


def _skeleton(units: Mapping[str, Tokens]) -> str:
    """What is left of units without numbers, as a digest. Gaps are all one, and none where a number stood."""
    text = "".join(f"\0{stem}\0" + "\1".join(unit.pieces) for stem, unit in units.items())
    text = " ".join(text.split()).replace(" \1", "\1").replace("\1 ", "\1")
    return sha256(text.encode()).hexdigest()


def kind_of(number: str) -> str:
    """The type of the variable that may stand for it; empty: none may. A float is written with an f behind it."""
    if _INT.fullmatch(number) and int(number) < 1 << 63:
        return "int64_t"
    real = _REAL.fullmatch(number)
    return "" if real is None else "float" if real.group(2) else "double"


def word_of(number: str) -> int:
    """An integer, or the bits of a real as a double."""
    if kind_of(number) == "int64_t":
        return int(number)
    value: int = struct.unpack("<q", struct.pack("<d", float(number.removesuffix("f"))))[0]
    return value
