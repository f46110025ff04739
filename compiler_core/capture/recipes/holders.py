"""Who holds what a segment made, where no table says: its tensors may lie in anything of the program's.

In: objects made since a moment (`now()`). Out: objects of a type that refer to them. Method: the garbage collector
knows who refers to what (`alive.py`). A search through everything takes as long as the process is large, so it is left
out while all that was made since then is young: as long as only the youngest generation was collected.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from compiler_core.alive import referrers, young_referrers

T = TypeVar("T")
Moment = tuple[int, ...]


def now() -> Moment:
    """How often objects became old so far."""
    return tuple(generation["collections"] for generation in gc.get_stats()[1:])


def holders(things: Sequence[Any], kind: type[T], since: Moment, older: Iterable[T] = ()) -> list[T]:
    """Objects of `kind` that refer to one of `things`. since: before these were made. older: objects from before that
    may refer to them too.
    """
    if not things:
        return []
    young = young_referrers(things, kind, older)
    return young if now() == since else referrers(things, kind)
