"""How many threads one process computes with: torch.set_num_threads' names.

In: a number. Out: the knob that generated kernels are compiled with from now on, and OpenBLAS's own setting.
Graphs that are compiled already keep theirs; NumPy's eager matrix products follow OMP_NUM_THREADS, read at start.
"""

from __future__ import annotations

from compiler_core.config import config
from distcompile.errors import ArgumentError


def get_num_threads() -> int:
    """The number of threads that newly compiled kernels use."""
    return config.num_threads


def set_num_threads(n: int) -> None:
    """Use this many threads from now on. Raises ArgumentError for less than one."""
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"set_num_threads expects a positive integer, got {n!r}")
    from compiler_core.runtime.blas import load_openblas

    config.values["num_threads"] = n
    load_openblas().scipy_openblas_set_num_threads(n)
