"""Lessons: what earlier captures of a place found out, for the next one.

In: guards that failed, and changes that captured code makes. Out: `Memory`: what is to be guarded one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from types import CodeType
from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.deaths import Mortal
from compiler_core.capture.guards.sources import Item, Source
from compiler_core.config import config

if TYPE_CHECKING:
    from compiler_core.capture.captured import Captured
    from compiler_core.capture.marks import Asked


NO_DIMS: frozenset[int] = frozenset()


class Along(IntEnum):
    """Which sizes that have not changed are symbols with those that have: none, the tensor's own, and of other tensors
    those that equal these. Each has those before it."""

    NONE = 0
    OWN = 1
    EQUAL = 2


class Memory:
    """dynamic: numbers that change from call to call. unstable: modules, registries of modules and tensors that the
    captured code, or somebody between its calls, changes. all_sizes_change: of tensors that come anew with every call;
    None: as the settings say. makes_symbols: whether sizes may be symbols, and along: which sizes that have not changed
    with those that have: fewer, where capture has failed with them. ends_anyway: failures (why, where) that have
    nothing to do with that. takes_leaves: whether leaves that the code makes are the graph's; takes_picked: and parts
    that numbers in tensors select. declared: what an export says of the dims of argument tensors, by id."""

    def __init__(self, *, skips_hooks: bool = False, all_sizes_change: bool | None = None) -> None:
        self.skips_hooks, self.all_sizes_change = skips_hooks, all_sizes_change
        self.makes_symbols, self.along = True, Along.EQUAL
        self.takes_leaves = self.takes_picked = True
        self.ends_anyway: set[tuple[str, str]] = set()
        self.declared: Mapping[int, Mapping[int, Asked]] = {}
        self.breaks_in: dict[CodeType, str] = {}  # functions that are captured whole or not at all (breaking.py)
        self.changing_dims: dict[Source, frozenset[int]] = {}  # of tensors, where sizes were seen to change
        self.equal_dims: dict[Source, frozenset[int]] = {}  # of others, which may change with these
        self.dynamic: set[Source] = set()
        self.unstable: IdentitySet = IdentitySet()
        self.refilled: set[Source] = set()  # containers of tensors that hold others after a while
        self._tables: set[Source] = set()  # of which two items are such numbers: all are
        self._in_one: dict[Source, Source] = {}  # of a table -> its only item that is

    def note_dynamic(self, source: Source) -> None:
        """The number at `source` changes."""
        self.dynamic.add(source)
        if isinstance(source, Item) and self._in_one.setdefault(source.base, source) != source:
            self._tables.add(source.base)

    def learn(
        self, captured: Captured, failed: int, args: tuple[Any, ...], kwargs: dict[str, Any], *, sizes: bool
    ) -> None:
        """Guard `failed` of a capture does not hold: numbers, and with `sizes` shapes, that are not what they were are
        remembered. All at once, for they tend to change together."""
        guards, numbers, shapes = captured.guards, captured.numbers, captured.shapes if sizes else {}
        if failed not in numbers and failed not in shapes:
            return
        changed = guards.changed(numbers.keys() | shapes.keys(), args, kwargs)
        for number in changed:
            if number in numbers:
                self.note_dynamic(numbers[number])
        known = {shapes[number].code: shapes[number] for number in changed if number in shapes}
        for shape, now in zip(known.values(), guards.values(known, max(changed), args, kwargs)):
            self.note_shapes(shape.source, shape.shape, now)
        self._note_equal({shape.source: shape.shape for shape in shapes.values()})

    def note_shapes(self, source: Source, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        """The tensor at `source` has another shape. Of another number of dims it is another tensor."""
        if len(before) == len(now):
            changed = frozenset(dim for dim, (a, b) in enumerate(zip(before, now)) if a != b)
            if changed:
                self.changing_dims[source] = self.changing_dims.get(source, NO_DIMS) | changed

    def _note_equal(self, shapes: Mapping[Source, tuple[int, ...]]) -> None:
        """A call had these shapes. Sizes of a tensor of which none has changed may do so with one that they equal, and
        that is taken along: there is one label for each text."""
        own = {source: self.changing_dims.get(source, NO_DIMS) for source in shapes}
        sizes = {shapes[source][dim] for source, seen in own.items() for dim in _other_dims(seen, len(shapes[source]))}
        for source in (source for source, seen in own.items() if not seen):
            equal = frozenset(dim for dim, size in enumerate(shapes[source]) if size in sizes)
            self.equal_dims[source] = self.equal_dims.get(source, NO_DIMS) | equal

    def changing(self, source: Source, ndim: int, *, along: Along) -> Collection[int]:
        """The dims of the tensor at `source` that are taken to change: if one was seen to, `along` with it all but the
        last. A batch is smaller at the end of an epoch; the last dim is mostly one of features, which parameters fix.
        """
        seen = self.changing_dims.get(source, NO_DIMS)
        if along is Along.EQUAL and not seen:
            return self.equal_dims.get(source, seen)
        return seen if along is Along.NONE else seen | _other_dims(seen, ndim)

    def give_sizes_up(self, *, along: Along) -> None:
        """Capture failed with symbols, `along` with those that changed others: fewer, or none, from here on."""
        if along is Along.NONE or not self.changing_dims:
            self.makes_symbols = False
        else:
            more = along is Along.EQUAL and any(self.equal_dims.values())
            self.along = min(self.along, Along.OWN if more else Along.NONE)

    def is_dynamic(self, source: Source) -> bool:
        """Whether the number at `source` changes, as far as is known."""
        return source in self.dynamic or (isinstance(source, Item) and source.base in self._tables)

    @property
    def all_sizes_are_symbols(self) -> bool:
        """Whether all are that may be."""
        return not config.assume_static_by_default if self.all_sizes_change is None else self.all_sizes_change


def _other_dims(seen: frozenset[int], ndim: int) -> frozenset[int]:
    """The dims of a tensor that are taken along with those that were seen to change."""
    return frozenset(range(ndim - 1)) - seen if seen else NO_DIMS


def told_of(error: Exception) -> str:
    """An error of the program's, by its texts alone: traced tensors have no data, and sizes no numbers."""
    return f"{type(error).__name__}: {', '.join(arg for arg in error.args if isinstance(arg, str))}"


class IdentitySet:
    """A set of objects, told apart by identity. It keeps none of them alive that can go without it."""

    def __init__(self) -> None:
        self._things: dict[int, Any] = {}

    def add(self, thing: Any) -> None:
        self._things[id(thing)] = Mortal(thing) if type(thing).__weakrefoffset__ else thing

    def __contains__(self, thing: object) -> bool:
        kept = self._things.get(id(thing))
        return kept is not None and (kept() if type(kept) is Mortal else kept) is thing
