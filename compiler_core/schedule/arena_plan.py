"""Where each temp lies in the arena: temps whose lives do not meet share bytes.

In: temps with the first and last step that touch them. Out: byte offsets, 64-byte aligned, and the arena's size.
Method: largest first, each at the lowest offset free during its whole life (greedy by size, as in Pisarchyk and Lee,
"Efficient memory management for deep neural net inference", 2020). Temps of a page and more begin at different offsets
within their page: a kernel that streams several of them would otherwise meet the same few sets of the L1 cache with
all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def plan_memory(lives: Sequence[Life]) -> tuple[dict[str, int], int]:
    """name -> offset in bytes, and the bytes of the whole arena."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Life]] = []  # begin, end, life
    total = 0
    by_birth = {life.name: k for k, life in enumerate(sorted(lives, key=lambda life: (life.first, life.name)))}
    for life in sorted(lives, key=lambda life: (-life.nbytes, life.first, life.name)):
        meeting = sorted((b, e) for b, e, other in placed if other.first <= life.last and life.first <= other.last)
        is_large = life.nbytes >= PAGE
        unit = PAGE if is_large else ALIGNMENT
        skew = by_birth[life.name] * _STEP % PAGE if is_large else 0
        size = -(-(life.nbytes + skew) // ALIGNMENT) * ALIGNMENT
        begin = 0
        for taken_begin, taken_end in meeting:
            if begin + size <= taken_begin:
                break
            begin = max(begin, -(-taken_end // unit) * unit)
        offsets[life.name] = begin + skew
        placed.append((begin, begin + size, life))
        total = max(total, begin + size)
    return offsets, total
