"""Memory that outlives a step: the scratch arena of each thread, and the recycled arrays behind a call's outputs.

In: sizes, shapes, dtypes. Out: addresses valid until the thread asks for more; arrays nobody else refers to.
Why: fresh memory costs a page fault per 4 KiB at first touch, which for a pointwise kernel is most of its time.

Invariants:
- The arena holds nothing between calls, so all executables of a thread share one, as large as the largest needs that
  there is: it does not grow from a forward to its backward, as what it was would stay with the allocator. A
  call that is made from inside another one (by its events) gets the arena of the next level.
- A pool hands an array out again only when the pool holds the last reference to it. Its arrays rest on a bytearray:
  NumPy skips over an array that is a view of another array when it sets a view's `base`, but stops at anything else,
  so every view refers to the pool's array itself and a living view counts as a reference.
- Memory starts on a cache line (a kernel is 5 to 12 % faster than on NumPy's 16 bytes), and on lines that differ from
  array to array, because arrays at equal places of a page compete for the same sets of the L1 cache.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from sys import getrefcount

import numpy as np

from compiler_core.dtype import float32
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array

ALIGNMENT = 64  # bytes: a cache line, and one AVX-512 register
_PLACES = 32  # lines of a page over which successive arrays are spread
MAX_ARRAYS_PER_POOL = 4


class _Arena:
    """One block of scratch memory."""

    __slots__ = ("address", "block", "nbytes")

    def __init__(self) -> None:
        self.address = 0
        self.nbytes = 0
        self.block = np.empty(0, np.uint8)


class _Arenas(threading.local):
    """This thread's arenas, one a level of nesting, and the one in use."""

    def __init__(self) -> None:
        self.levels = [_Arena()]
        self.current = self.levels[0]


_arenas = _Arenas()
_largest = 0  # bytes of the largest arena that an executable may ask for


def expect_arena(nbytes: int) -> None:
    """An executable may ask for so much. What of an arena is not touched takes no memory."""
    global _largest
    _largest = max(_largest, nbytes)


def arena_address(nbytes: int) -> int:
    """Address of at least `nbytes` bytes of this thread's scratch memory, `ALIGNMENT`-aligned; contents arbitrary."""
    arena = _arenas.current
    if nbytes > arena.nbytes:
        nbytes = max(nbytes, _largest)
        arena.block = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = arena.block.ctypes.data
        arena.address = (start + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        arena.nbytes = nbytes
    return arena.address


def scratch_offset(arena_nbytes: int) -> int:
    """Where, behind an arena of that size, the scratch memory of library routines begins."""
    return (arena_nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


@contextmanager
def nested_arena() -> Iterator[None]:
    """Within the block, a call whose arena is in use may be interrupted by others, which get another arena."""
    before, levels = _arenas.current, _arenas.levels
    position = levels.index(before) + 1
    if position == len(levels):
        levels.append(_Arena())
    _arenas.current = levels[position]
    try:
        yield
    finally:
        _arenas.current = before


_places = count()
_unwritten = ctypes.pythonapi.PyByteArray_FromStringAndSize  # `bytearray` writes zeros
_unwritten.argtypes, _unwritten.restype = (ctypes.c_char_p, ctypes.c_ssize_t), ctypes.py_object


def aligned_empty(meta: TensorMeta) -> Array:
    """An array of its own memory that starts on a cache line; contents arbitrary."""
    place = ALIGNMENT * (7 * next(_places) % _PLACES)
    raw = _unwritten(None, meta.nbytes + ALIGNMENT * (_PLACES + 1))
    start = ctypes.addressof(ctypes.c_char.from_buffer(raw))
    return np.ndarray(meta.shape, meta.dtype.numpy, buffer=raw, offset=-start % ALIGNMENT + place)


def _idle_refcount() -> int:
    """What `getrefcount` says of an array that only a pool's list refers to, asked as `take` asks."""
    arrays = [aligned_empty(TensorMeta((1,), float32))]
    for array in arrays:
        return getrefcount(array)
    raise AssertionError("unreachable")


_IDLE = _idle_refcount()


# no WeakSet: to go through one fails while another thread, which compiles, makes a pool; `keyrefs` is taken at once
_pools: weakref.WeakKeyDictionary[OutputPool, None] = weakref.WeakKeyDictionary()


def _all_pools() -> Iterator[OutputPool]:
    return (pool for refer in _pools.keyrefs() if (pool := refer()) is not None)


def release_unused() -> None:
    """Give back what is kept for the next call: idle outputs of all executables, and this thread's scratch memory.

    Not while another thread runs one.
    """
    for pool in _all_pools():
        pool.release()
    if _arenas.current is _arenas.levels[0]:  # else a call is under way, and this is one of its events
        _arenas.levels = [_Arena()]
        _arenas.current = _arenas.levels[0]


def is_pooled(array: Array) -> bool:
    """Whether a pool has handed out this array, and takes it back when nobody else refers to it."""
    return any(array is other for pool in _all_pools() for other in pool._arrays)


class OutputPool:
    """Arrays of one shape and dtype, handed out again once nobody else refers to them. Not safe across threads."""

    __slots__ = ("__weakref__", "_arrays", "_meta")

    def __init__(self, meta: TensorMeta) -> None:
        self._meta = meta
        self._arrays: list[Array] = []
        _pools[self] = None

    def release(self) -> None:
        """Forget the arrays; who holds one keeps it."""
        self._arrays.clear()

    def take(self) -> Array:
        """An array whose contents are arbitrary and to which nobody else refers."""
        for array in self._arrays:
            if getrefcount(array) == _IDLE:
                return array
        fresh = aligned_empty(self._meta)
        if len(self._arrays) == MAX_ARRAYS_PER_POOL:
            del self._arrays[0]  # its holders keep it; the pool forgets it
        self._arrays.append(fresh)
        return fresh
