"""What this machine can do at most, measured once a process: a copy of large arrays, a large product of matrices.

In: nothing. Out: bytes, and operations, a second: what a kernel's profile is compared with (profiler.py). Williams,
Waterman and Patterson, "Roofline" (2009): a step takes no less than its bytes, or its operations, at these rates.
Of float32, by NumPy, on as many threads as its BLAS has. What lies in caches moves faster than a copy of large arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import numpy as np

_NUMEL, _SIZE, _TIMES = 1 << 24, 1024, 5


@cache
def copy_rate() -> float:
    """Bytes a second, read and written, of a copy in the host's memory."""
    source, target = np.ones(_NUMEL, np.float32), np.ones(_NUMEL, np.float32)
    return 2 * source.nbytes / _shortest(lambda: np.copyto(target, source))


@cache
def product_rate() -> float:
    """Operations a second of a product of two matrices of float32."""
    matrix, out = np.ones((_SIZE, _SIZE), np.float32), np.empty((_SIZE, _SIZE), np.float32)
    return 2 * _SIZE**3 / _shortest(lambda: np.matmul(matrix, matrix, out))


def _shortest(call: Callable[[], object]) -> float:
    """Seconds of the shortest of several calls."""
    times = []
    for _ in range(_TIMES):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return min(times)
