"""Watches: whoever relies on a thing is told when it changes, so that asking whether it did costs one comparison.

In: things that keep the list of their watches (`NOBODY` at first, `add_watch` makes it longer) and `tell` them.
Out: `Watch.changed`. What has changed, and whether it matters, `still_same` finds out: it runs only after a change.

Invariants: a thing is changed first and tells then; a watch takes note of what it was told first and compares then. So
no change in another thread is lost: the comparison sees it, or something new has been told since.
A thing holds its watches weakly. A copy of a watch watches nothing, and has changed.
"""

from __future__ import annotations

from threading import RLock
from typing import Any, TypeAlias
from weakref import ReferenceType, ref

Watches: TypeAlias = "tuple[ReferenceType[Watch], ...]"
NOBODY: Watches = ()
_growing = RLock()  # two threads may add a watch to one thing


class Watch:
    """Something to be told of changes.

    told: stands for the latest news. seen: the news up to which all is well. difference: what `still_same` found.
    """

    __slots__ = ("__weakref__", "difference", "seen", "told")

    def __init__(self) -> None:
        self.told, self.seen = object(), object()
        self.difference = ""

    @property
    def changed(self) -> bool:
        """Whether there was a change since `still_same` last said that all is well. Generated code asks the slots."""
        return self.told is not self.seen

    def still_same(self) -> bool:
        """Whether everything watched is as it was; if so, `changed` is False until the next change."""
        told = self.told
        self.difference = self.find_difference()
        if self.difference:
            return False
        self.seen = told
        return True

    def find_difference(self) -> str:
        """The first difference between how things are and how they were, "" if there is none."""
        raise NotImplementedError

    def culprits(self) -> list[Any]:
        """The things that are not as they were, where that can be told."""
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def add_watch(thing: Any, watch: Watch) -> None:
    """Have `thing`, which keeps its watches in `_watches`, tell `watch` too."""
    mine = ref(watch)
    with _growing:
        watches: Watches = getattr(thing, "_watches", NOBODY)
        if mine not in watches:
            thing._watches = (*(other for other in watches if other() is not None), mine)


def tell(watches: Watches) -> None:
    """Each of them has news."""
    news = object()
    for reference in watches:
        watch = reference()
        if watch is not None:
            watch.told = news
