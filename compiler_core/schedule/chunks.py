"""In how many pieces rows are summed, so that they can run in parallel with the same bits on any number of threads.

In: the outermost row axis of a kernel and the size of the results. Out: the number of chunks, fixed by the shapes
alone, and so is whether a loop is worth threads. Each chunk sums its rows in order into a partial result of its own;
the partial results are added at the end, as a balanced tree. One chunk where the partial results would cost more than
an eighth of the data that is read.
Of a graph that comes in many sizes (`Target.many_sizes`) rows are shared out to PARTS chunks, the last of which may be
smaller, or empty; flat loops are cut where dims end, as far as can be; and whether to use threads is asked when they
run: more sizes then make the same code, but for its numbers.
"""

from __future__ import annotations

from collections.abc import Collection

from compiler_core.lowering.target import Target

MAX_CHUNKS = 16
PARTS = 8  # chunks of a graph that comes in many sizes
LONG_ROW = 4096  # elements: a flat loop longer than this is cut, so that there is a loop to run in parallel
SHORT_ROW = 64
PARALLEL_NUMEL = 8192  # elements: below this a loop is not worth a second thread


def n_chunks(outer_extent: int, result_numel: int, domain_numel: int, target: Target) -> int:
    """The largest divisor of the outermost row axis up to MAX_CHUNKS, or 1. For many sizes PARTS, or 1."""
    most = PARTS if target.many_sizes else max(k for k in range(1, MAX_CHUNKS + 1) if outer_extent % k == 0)
    return most if most * result_numel * 8 <= domain_numel else 1


def is_worth_threads(numel: int, target: Target) -> bool:
    """Whether a loop over so many elements may be shared out."""
    return numel >= PARALLEL_NUMEL or target.many_sizes


def long_row(cols: int, ends: Collection[int], target: Target) -> int:
    """Where a flat loop over `cols` elements, more than LONG_ROW, is cut; `cols`: nowhere. ends: where dims end."""
    fits = [k for k in range(SHORT_ROW, LONG_ROW + 1) if cols % k == 0]
    if target.many_sizes:
        fits = [k for k in fits if k in ends] or fits
    return fits[-1] if fits else cols
