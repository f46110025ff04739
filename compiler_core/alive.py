"""Which objects are alive: the garbage collector's lists, without a hold on what other threads are making.

In: types. Out: objects of them. A list of everything that the collector knows holds tuples, too, that another thread
is still filling, and a tuple that somebody else holds cannot grow: `tuple(generator)` ends with a SystemError there.
So each question is one call into C, from the list to what is chosen of it: no other thread runs meanwhile, and none of
its objects is in what comes out unless it was asked for. While it lasts nothing is collected, which could run Python.
Method: a list and the types of the same objects, from a second list, side by side. The second has at its end what the
first brought into being. Both hold the iterators that walk them, which is a circle: each is walked to its end, where an
iterator lets go of its list; and nobody but the call's argument refers to them.
Limit: CPython with the GIL.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, compress, repeat, starmap, tee
from operator import not_
from typing import Any, TypeVar

T = TypeVar("T")


def objects(kind: type[T]) -> list[T]:
    """All of `kind`."""
    with collector_paused():
        return list(_known(kind, generations=3))


def referrers(things: Sequence[Any], kind: type[T]) -> list[T]:
    """All of `kind` that refer to one of `things`. Looks at everything."""
    with collector_paused():
        return list(_of_kind(kind, *tee(chain.from_iterable(starmap(gc.get_referrers, (things,))))))


def young_referrers(things: Iterable[Any], kind: type[T], older: Iterable[T] = ()) -> list[T]:
    """Those of the two young generations, and of `older`, that refer to one of `things`."""
    made = set(map(id, things))
    with collector_paused():
        return list(_referring(made, *tee(chain(_known(kind, generations=2), older))))


def _known(kind: type[T], generations: int) -> Iterator[T]:
    """Those of `kind` in the collector's young generations, which are asked for when they are come to."""
    return chain.from_iterable([_in_generation(kind, number) for number in range(generations)])


def _in_generation(kind: type[T], number: int) -> Iterator[T]:
    first, second = (chain.from_iterable(map(gc.get_objects, (number,))) for _ in range(2))
    to_the_end: Iterator[T] = compress(second, repeat(False))
    return chain(_of_kind(kind, first, second), to_the_end)


def _of_kind(kind: type[T], things: Iterator[Any], again: Iterator[Any]) -> Iterator[T]:
    """Those of `things` that are of `kind`, by `again`, which is the same."""
    return compress(things, map(partial(type.__subclasscheck__, kind), map(type, again)))


def _referring(made: set[int], things: Iterator[T], again: Iterator[T]) -> Iterator[T]:
    """Those that refer to something whose id is in `made`."""
    are_others = map(made.isdisjoint, map(partial(map, id), map(gc.get_referents, again)))
    return compress(things, map(not_, are_others))


@contextmanager
def importing() -> Iterator[None]:
    """Nothing is collected meanwhile, and what was made is old from then on: definitions stay, and would be looked
    through twice more before the collector knows."""
    with collector_paused():
        yield
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # into the oldest generation


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
