"""Memory that outlives a step: the scratch arena of each thread, and the recycled arrays behind a call's outputs.

In: sizes, shapes, dtypes. Out: addresses valid until the thread asks for more; arrays nobody else refers to.
Why: fresh memory costs a page fault per 4 KiB at first touch, which for a pointwise kernel is most of its time.

Invariants:
- The arena holds nothing between calls, so all executables of a thread share one, as large as the largest needs.
- A pool hands an array out again only when the pool holds the last reference to it. Its arrays own their memory, so
  NumPy keeps every view's `base` pointing at the array itself and a living view counts as a reference.
"""

from __future__ import annotations

import threading
from sys import getrefcount

import numpy as np

from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array

ALIGNMENT = 64  # bytes: a cache line, and one AVX-512 register
MAX_ARRAYS_PER_POOL = 4


class _Arena(threading.local):
    """This thread's scratch memory."""

    def __init__(self) -> None:
        self.address = 0
        self.nbytes = 0
        self.block = np.empty(0, np.uint8)


_arena = _Arena()


def arena_address(nbytes: int) -> int:
    """Address of at least `nbytes` bytes of this thread's scratch memory, `ALIGNMENT`-aligned; contents arbitrary."""
    if nbytes > _arena.nbytes:
        _arena.block = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = _arena.block.ctypes.data
        _arena.address = (start + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        _arena.nbytes = nbytes
    return _arena.address


def _idle_refcount() -> int:
    """What `getrefcount` says of an array that only a pool's list refers to, asked as `take` asks."""
    arrays = [np.empty(1)]
    for array in arrays:
        return getrefcount(array)
    raise AssertionError("unreachable")


_IDLE = _idle_refcount()


class OutputPool:
    """Arrays of one shape and dtype, handed out again once nobody else refers to them. Not safe across threads."""

    __slots__ = ("_arrays", "_dtype", "_shape")

    def __init__(self, meta: TensorMeta) -> None:
        self._shape, self._dtype = meta.shape, meta.dtype.numpy
        self._arrays: list[Array] = []

    def take(self) -> Array:
        """An array whose contents are arbitrary and to which nobody else refers."""
        for array in self._arrays:
            if getrefcount(array) == _IDLE:
                return array
        fresh: Array = np.empty(self._shape, self._dtype)
        if len(self._arrays) == MAX_ARRAYS_PER_POOL:
            del self._arrays[0]  # its holders keep it; the pool forgets it
        self._arrays.append(fresh)
        return fresh
