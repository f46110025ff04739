"""Temps in the memory of inputs that are the program's to write over, once these have been read for the last time.

In: the lives of temps and of spent inputs, each with its dtype. Out: which temps lie in which input, and where.
A value saved for a backward dies in the course of it; what the backward computes after that may lie there instead of in
an arena beside it. Method: the steps in order, as an allocator: an input that has been read for the last time is free
memory from then on, a temp that is born takes the smallest free piece that it fits into, and gives it back when it
dies. Temps begin on cache lines. Only memory of the same dtype serves: a buffer of the loop IR has one.
On a GPU these inputs lie one after another in one block (a stack), and what is free of it is one piece, whatever lay
there: many small values that are dead make room for a large one.
The arena is what the caches hold, so a temp goes elsewhere only if the arena would be larger for it than for those that
have no other place.
Limits: temps that fit nowhere, and small ones, are the arena's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence

from compiler_core.dtype import DType
from compiler_core.loop_ir.ir import STACKED
from compiler_core.schedule.arena_plan import ALIGNMENT, Life, plan_memory

LEAST = 4096  # bytes below which a temp is not worth looking for a place
STACK = ""  # the block that inputs lie in one after another

Place = tuple[str, int]  # an input, and the first byte


class _Free:
    """Free pieces of inputs of one dtype. by_size: (bytes, input, first byte); begins, ends: the same by their ends."""

    def __init__(self) -> None:
        self.by_size: list[tuple[int, str, int]] = []
        self.begins: dict[Place, int] = {}  # first byte -> the byte after the last
        self.ends: dict[Place, int] = {}

    def give(self, name: str, begin: int, end: int) -> None:
        """These bytes are free, and one piece with those beside them."""
        if (name, end) in self.begins:
            end = self._take_out(name, end)
        if (name, begin) in self.ends:
            begin = self.ends[name, begin]
            self._take_out(name, begin)
        self.begins[name, begin], self.ends[name, end] = end, begin
        insort(self.by_size, (end - begin, name, begin))

    def take(self, nbytes: int) -> tuple[str, int, int] | None:
        """(input, first byte, the byte after the last) in the smallest piece that is large enough; the rest stays."""
        at = bisect_left(self.by_size, (nbytes, "", 0))
        if at == len(self.by_size):
            return None
        _, name, begin = self.by_size[at]
        whole = self._take_out(name, begin)
        end = min(begin + -(-nbytes // ALIGNMENT) * ALIGNMENT, whole)
        if end < whole:
            self.give(name, end, whole)
        return name, begin, end

    def _take_out(self, name: str, begin: int) -> int:
        end = self.begins.pop((name, begin))
        del self.ends[name, end]
        del self.by_size[bisect_left(self.by_size, (end - begin, name, begin))]
        return end


def stack(sizes: Mapping[str, int]) -> dict[str, int]:
    """Input -> first byte, of inputs that lie one after another in one block. sizes: bytes of each; small ones stay."""
    starts, at = {}, 0
    for name, nbytes in sizes.items():
        if nbytes >= LEAST:
            starts[name] = at
            at += -(-nbytes // STACKED) * STACKED
    return starts


def place(
    temps: Sequence[Life], spent: Sequence[Life], dtypes: Mapping[str, DType], starts: Mapping[str, int] | None = None
) -> tuple[dict[str, Place], dict[str, int], int]:
    """Temp -> its place in a spent input; the others -> byte offsets in the arena; the bytes of that.

    spent: none where code is for many sizes, as which temps fit differs from size to size. starts: where these lie, if
    in one block: places are in STACK then.
    """
    offsets, total = plan_memory(temps)
    movable = lend(temps, spent, dtypes, starts)
    if not movable:
        return {}, offsets, total
    _, least = plan_memory([life for life in temps if life.name not in movable])
    high = [life for life in temps if offsets[life.name] + life.nbytes > least + least // 16]  # how tight plans are
    lent = lend(high, spent, dtypes, starts)
    kept = [life for life in temps if life.name not in lent]
    total = max((offsets[life.name] + life.nbytes for life in kept), default=0)
    total = -(-total // ALIGNMENT) * ALIGNMENT
    again, planned = plan_memory(kept)
    return (lent, again, planned) if planned < total else (lent, offsets, total)


def lend(
    temps: Sequence[Life], spent: Sequence[Life], dtypes: Mapping[str, DType], starts: Mapping[str, int] | None = None
) -> dict[str, Place]:
    """Temp -> where it lies in a spent input. The lives of inputs end with what lies in their place as a whole."""
    free: defaultdict[DType | None, _Free] = defaultdict(_Free)
    ending: defaultdict[int, list[tuple[str, int, int, DType | None]]] = defaultdict(list)
    for life in spent:
        piece: tuple[str, int, int, DType | None] = (life.name, 0, life.nbytes, dtypes[life.name])
        if starts is not None:
            begin = starts[life.name]
            piece = (STACK, begin, begin + -(-life.nbytes // STACKED) * STACKED, None)
        ending[life.last].append(piece)
    found: dict[str, Place] = {}
    step = min((life.last for life in spent), default=0)
    for life in sorted(temps, key=lambda life: (life.first, -life.nbytes, life.name)):
        for past in range(step, life.first):  # what a step reads is free for what the next one makes
            for name, begin, end, dtype in ending.pop(past, ()):
                free[dtype].give(name, begin, end)
        step = max(step, life.first)
        dtype = dtypes[life.name] if starts is None else None
        taken = free[dtype].take(life.nbytes) if life.nbytes >= LEAST else None
        if taken is not None:
            found[life.name] = taken[:2]
            ending[life.last].append((*taken, dtype))
    return found
