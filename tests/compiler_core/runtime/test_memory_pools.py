"""Recycled memory: never handed out twice while somebody looks at it, and aligned."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from compiler_core.dtype import ALL, float32
from compiler_core.meta import TensorMeta
from compiler_core.runtime.lasting_memory import (
    ALIGNMENT,
    MAX_ARRAYS_PER_POOL,
    OutputPool,
    aligned_empty,
    arena_address,
    is_pooled,
    release_unused,
)

META = TensorMeta((4, 5), float32)


def test_a_dropped_array_comes_back() -> None:
    pool = OutputPool(META)
    array = pool.take()
    address = array.ctypes.data
    del array
    assert pool.take().ctypes.data == address


def test_a_held_array_or_view_does_not_come_back() -> None:
    pool = OutputPool(META)
    held = pool.take()
    row = pool.take()[1].reshape(5, 1).T
    addresses = {held.ctypes.data, row.ctypes.data}
    third = pool.take()
    assert third is not held
    assert not any(third.ctypes.data <= a < third.ctypes.data + third.nbytes for a in addresses)


def test_a_memoryview_and_a_bound_method_hold_too() -> None:
    pool = OutputPool(META)
    view = memoryview(pool.take())
    method = pool.take().sum
    third = pool.take()
    third[...] = 7
    assert np.asarray(view) is not third
    assert not np.shares_memory(np.asarray(view), third)
    assert not np.shares_memory(method.__self__, third)


def test_a_pool_forgets_what_is_held_for_long() -> None:
    pool = OutputPool(META)
    held = [pool.take() for _ in range(3 * MAX_ARRAYS_PER_POOL)]
    assert len({a.ctypes.data for a in held}) == len(held)
    last = held[-1].ctypes.data
    held.clear()
    again = [pool.take() for _ in range(MAX_ARRAYS_PER_POOL)]
    assert last in {a.ctypes.data for a in again}


def test_the_arena_is_aligned_grows_and_belongs_to_a_thread() -> None:
    small = arena_address(100)
    assert small % ALIGNMENT == 0
    assert arena_address(50) == small
    assert arena_address(10**6) % ALIGNMENT == 0
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(arena_address(100)))
    thread.start()
    thread.join(60)
    assert others != [arena_address(100)]


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (1000, 300)], ids=str)
def test_aligned_arrays_look_like_any_other(dtype, shape) -> None:
    array = aligned_empty(TensorMeta(shape, dtype))
    assert (array.shape, array.dtype) == (shape, dtype.numpy)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert array.ctypes.data % ALIGNMENT == 0 or array.size == 0
    array[...] = 1
    assert (array == np.ones(shape, dtype.numpy)).all()


def test_views_of_views_refer_to_the_pools_array() -> None:
    array = aligned_empty(META)
    for view in (array[1:], array.T[2], array.reshape(-1)[3:], array.view(np.int32), np.asarray(array.T)[0]):
        assert view.base is array


def test_what_is_kept_for_reuse_can_be_given_back() -> None:
    pool = OutputPool(TensorMeta((8,), float32))
    held = pool.take()
    held[...] = 1.0
    idle = weakref.ref(pool.take())
    arena_address(1 << 20)
    release_unused()
    gc.collect()
    assert idle() is None
    assert np.all(held == 1.0)
    assert pool.take() is not held
    assert arena_address(64) % 64 == 0


def test_pools_are_made_while_another_thread_asks_whose_an_array_is() -> None:
    """`numpy()` asks; ranks that are threads compile at the same time."""
    pools: list[OutputPool] = []
    array, interval = aligned_empty(META), sys.getswitchinterval()
    thread = threading.Thread(target=lambda: pools.extend(OutputPool(META) for _ in range(6000)))
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while thread.is_alive():
            assert not is_pooled(array)
    finally:
        thread.join()
        sys.setswitchinterval(interval)
    assert is_pooled(pools[-1].take())
