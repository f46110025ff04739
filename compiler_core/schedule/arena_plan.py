"""Where each temp lies in the arena: temps whose lives do not meet share bytes.

In: temps with the first and last step that touch them. Out: byte offsets, 64-byte aligned, and the arena's size.
Method: largest first, each at the lowest offset free during its whole life (greedy by size, as in Pisarchyk and Lee,
"Efficient memory management for deep neural net inference", 2020). Temps of a page and more begin at different offsets
within their page: a kernel that streams several of them would otherwise meet the same few sets of the L1 cache with
all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

from compiler_core.records import dataclass

ALIGNMENT = 64  # bytes: a cache line, and an AVX-512 register
PAGE = 4096  # bytes: addresses this far apart fall into one set of most L1 caches
_STEP = 9 * ALIGNMENT  # from one temp's offset within its page to the next one's


@dataclass(frozen=True, slots=True)
class Life:
    """A temp and the steps, both inclusive, between which its content matters."""

    name: str
    nbytes: int
    first: int
    last: int


class _Bytes:
    """Bytes that are taken, as ranges that do not touch, in order."""

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.ends: list[int] = []

    def add(self, begin: int, end: int) -> None:
        low, high = bisect_left(self.ends, begin), bisect_right(self.begins, end)  # those that touch it
        if low < high:
            begin, end = min(begin, self.begins[low]), max(end, self.ends[high - 1])
        self.begins[low:high], self.ends[low:high] = [begin], [end]


class _Placed:
    """What is taken at which steps: what meets a life is found without a look at all others.

    Two trees over the steps; node 1 stands for all, 2k and 2k+1 for the halves of k's. A life is in the few nodes that
    it is the union of (`lasting`), and its first step in all nodes around it (`born`).
    """

    def __init__(self, steps: int) -> None:
        self._leaves = 1 << (steps - 1).bit_length()
        self._lasting: defaultdict[int, _Bytes] = defaultdict(_Bytes)
        self._born: defaultdict[int, _Bytes] = defaultdict(_Bytes)

    def add(self, life: Life, begin: int, end: int) -> None:
        for node in self._union(life.first, life.last):
            self._lasting[node].add(begin, end)
        for node in self._around(life.first):
            self._born[node].add(begin, end)

    def meeting(self, life: Life) -> list[tuple[int, int]]:
        """Ranges of bytes of temps that live at its first step, or are born later in it; in order."""
        lasting = [self._lasting[node] for node in self._around(life.first) if node in self._lasting]
        born = [self._born[node] for node in self._union(life.first + 1, life.last) if node in self._born]
        return sorted(place for taken in (*lasting, *born) for place in zip(taken.begins, taken.ends, strict=True))

    def _around(self, step: int) -> Iterator[int]:
        node = step + self._leaves
        while node:
            yield node
            node >>= 1

    def _union(self, first: int, last: int) -> Iterator[int]:
        low, high = first + self._leaves, last + self._leaves + 1
        while low < high:
            if low & 1:
                yield low
                low += 1
            if high & 1:
                high -= 1
                yield high
            low, high = low >> 1, high >> 1


def plan_memory(lives: Sequence[Life]) -> tuple[dict[str, int], int]:
    """name -> offset in bytes, and the bytes of the whole arena."""
    offsets: dict[str, int] = {}
    placed = _Placed(max((life.last for life in lives), default=0) + 1)
    total = 0
    by_birth = {life.name: k for k, life in enumerate(sorted(lives, key=lambda life: (life.first, life.name)))}
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first, life.name)):
        is_large = life.nbytes >= PAGE
        unit = PAGE if is_large else ALIGNMENT
        skew = by_birth[life.name] * _STEP % PAGE if is_large else 0
        size = -(-(life.nbytes + skew) // ALIGNMENT) * ALIGNMENT
        begin = 0
        for taken_begin, taken_end in placed.meeting(life):
            if begin + size <= taken_begin:
                break
            begin = max(begin, -(-taken_end // unit) * unit)
        offsets[life.name] = begin + skew
        placed.add(life, begin, begin + size)
        total = max(total, begin + size)
    return offsets, total
