"""How many threads one process computes with: torch.set_num_threads' names, and those beside it.

In: a number. Out: the knob, and the pool of compiled code (runtime/pool.py), also for what is compiled already.
NumPy's eager matrix products and oneDNN's convolutions follow OMP_NUM_THREADS as it was at the start.
"""

from __future__ import annotations

from compiler_core.breaking import breaks_graph
from compiler_core.config import config
from compiler_core.runtime import pool
from distcompile.errors import ArgumentError


@breaks_graph("the number of threads is asked for")
def get_num_threads() -> int:
    """The number of threads that compiled code uses."""
    return config.num_threads


@breaks_graph("the number of threads is set")
def set_num_threads(n: int) -> None:
    """Compute with this many threads from now on. Raises ArgumentError for less than one."""
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"set_num_threads expects a positive integer, got {n!r}")
    config.values["num_threads"] = n
    pool.resize(n)


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told, 1 before. Operations of one process never run side by side here."""
    return _interop["threads"]


def set_num_interop_threads(n: int) -> None:
    """Kept, to be read back. Raises ArgumentError for less than one."""
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"set_num_interop_threads expects a positive integer, got {n!r}")
    _interop["threads"] = n


_interop = {"threads": 1}


def set_flush_denormal(mode: bool) -> bool:
    """False: the processor is not told to, as torch answers where it cannot be."""
    return False
