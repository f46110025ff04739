"""In how many pieces rows are summed, so that they can run in parallel with the same bits on any number of threads.

In: the outermost row axis of a kernel and the size of the results. Out: the number of chunks, fixed by the shapes
alone. Each chunk sums its rows in order into a partial result of its own; the partial results are added at the end, as
a balanced tree. One chunk where the partial results would cost more than an eighth of the data that is read.
"""

from __future__ import annotations

MAX_CHUNKS = 16


def n_chunks(outer_extent: int, result_numel: int, domain_numel: int) -> int:
    """The largest divisor of the outermost row axis up to MAX_CHUNKS, or 1."""
    best = max(k for k in range(1, MAX_CHUNKS + 1) if outer_extent % k == 0)
    return best if best * result_numel * 8 <= domain_numel else 1
