"""On MPI ranks: every collective equals its rank-order definition; waiting is cheap; errors name ranks.

Run by test_under_mpi.py; the same file runs by hand with `mpiexec -n 2 python -m pytest --with-mpi`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise

import ml_dtypes  # noqa: F401 - np.dtype("bfloat16")
import numpy as np
import pytest

from collectives import Communicator
from collectives.call import BITWISE_OPS, DTYPES, REDUCE_OPS
from collectives.errors import (
    ClosedError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    RankFailedError,
    SlowRanksWarning,
)
from collectives.over_mpi import rollcall
from collectives.reduce import reduce_in_rank_order

pytestmark = pytest.mark.mpi(min_size=2)
SIZE = 1003  # not a multiple of any number of ranks used


def arrays(world: Communicator, dtype: str, size: int = SIZE) -> list[np.ndarray]:
    """Every rank's array: small integers, so that every order of summation gives the same bits."""
    return [np.random.default_rng(r).integers(0, 3, size).astype(dtype) for r in range(world.world_size)]


def is_defined(op: str, dtype: str) -> bool:
    is_whole = np.dtype(dtype).kind in "iub"
    return is_whole if op in BITWISE_OPS else not (op == "avg" and is_whole)


@pytest.mark.parametrize("memory", ["ordinary", "shared"])
@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op in REDUCE_OPS for d in DTYPES if is_defined(op, d)])
def test_all_reduce_equals_its_definition(world: Communicator, op: str, dtype: str, memory: str) -> None:
    everyones = arrays(world, dtype)
    mine = world.allocate(SIZE, np.dtype(dtype)) if memory == "shared" else np.empty(SIZE, dtype)
    mine[...] = everyones[world.rank]
    world.all_reduce(mine, op)  # type: ignore[arg-type]
    np.testing.assert_array_equal(mine.view(np.uint8), reduce_in_rank_order(everyones, op).view(np.uint8))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_ties_of_16_bits_go_to_the_even_number(world: Communicator, dtype: str) -> None:
    """Every positive number, and on the next rank half of what is between it and the next one."""
    bits = np.arange(np.array(np.inf, dtype).view(np.uint16) - 1, dtype=np.uint16)
    numbers, following = (b.view(dtype).astype(np.float32) for b in (bits, bits + np.uint16(1)))
    everyones = [numbers.astype(dtype), *[np.zeros_like(bits).view(dtype)] * (world.world_size - 1)]
    everyones[-1] = ((following - numbers) / 2).astype(dtype)
    mine = everyones[world.rank].copy()
    world.all_reduce(mine)
    np.testing.assert_array_equal(mine.view(np.uint16), reduce_in_rank_order(everyones, "sum").view(np.uint16))


def test_all_ranks_hold_the_same_bits_whatever_the_values(world: Communicator) -> None:
    mine = np.random.default_rng(world.rank).standard_normal(100_003).astype(np.float32)
    world.all_reduce(mine, "avg")
    assert len({array.tobytes() for array in world.all_gather_object(mine)}) == 1


def test_small_messages_in_chunks_and_rank_order_do_not_depend_on_their_size(
    new_world: Callable[..., Communicator],
) -> None:
    results = []
    for chunk_nbytes in (64, 1 << 20):
        communicator = new_world(reduction="rank_order", chunk_nbytes=chunk_nbytes)
        mine = np.random.default_rng(communicator.rank).standard_normal(SIZE)
        everyones = [np.random.default_rng(r).standard_normal(SIZE) for r in range(communicator.world_size)]
        communicator.all_reduce(mine)
        gathered = np.empty((communicator.world_size, SIZE))
        communicator.all_gather(gathered, everyones[communicator.rank])
        part = np.empty(SIZE)
        communicator.reduce_scatter(part, np.repeat(everyones[communicator.rank], communicator.world_size))
        whole = reduce_in_rank_order([np.repeat(a, communicator.world_size) for a in everyones], "sum")
        np.testing.assert_array_equal(mine, reduce_in_rank_order(everyones, "sum"))
        np.testing.assert_array_equal(gathered, np.stack(everyones))
        np.testing.assert_array_equal(part, whole.reshape(communicator.world_size, SIZE)[communicator.rank])
        results.append(mine)
        communicator.close()
        with pytest.raises(ClosedError):
            communicator.barrier()
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_broadcast_and_gathers_move_bits(world: Communicator, dtype: str) -> None:
    everyones = arrays(world, dtype)
    root = world.world_size - 1
    mine = everyones[world.rank].copy()
    world.broadcast(mine, root=root)
    np.testing.assert_array_equal(mine, everyones[root])
    gathered = np.empty((world.world_size, SIZE), dtype)
    world.all_gather(gathered, everyones[world.rank])
    np.testing.assert_array_equal(gathered, np.stack(everyones))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 63, 100_003])
def test_shared_sums_are_in_rank_order_whatever_their_size(world: Communicator, size: int) -> None:
    for seed in range(3):  # again and again in one buffer: nobody may read an old value, or a new one too early
        everyones = [np.random.default_rng(10 * seed + r).standard_normal(size) for r in range(world.world_size)]
        if seed == 0:
            mine = world.allocate(size + 5, np.dtype(np.float64))[5:]
        mine[...] = everyones[world.rank]
        world.all_reduce(mine, "avg")
        np.testing.assert_array_equal(mine, reduce_in_rank_order(everyones, "avg"))


def test_one_ranks_ordinary_memory_makes_all_ranks_use_messages(world: Communicator) -> None:
    mine = world.allocate(9, np.dtype(np.float64)) if world.rank == 0 else np.zeros(9)
    mine[...] = world.rank + 1
    world.all_reduce(mine)
    assert (mine == sum(range(1, world.world_size + 1))).all()


def test_shared_memory_is_given_back_and_taken_anew(world: Communicator) -> None:
    descriptors = 0
    for value in range(40):
        mine = world.allocate(1 << 16, np.dtype(np.float32))
        mine[...] = value
        world.all_reduce(mine, "max")
        assert (mine == value).all()
        del mine
        if value == 5:
            descriptors = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_empty_arrays_are_fine(world: Communicator) -> None:
    for dtype in ("float32", "float16"):
        world.all_reduce(np.empty((0, 3), dtype))
    world.broadcast(np.empty(0))
    world.all_gather(np.empty((world.world_size, 0)), np.empty(0))


def test_objects_travel_while_buckets_are_in_flight(world: Communicator) -> None:
    big = np.ones(1 << 20, np.float32)
    works = [world.all_reduce_async(big, "avg", label=f"bucket {k}") for k in range(4)]
    assert world.all_gather_object({"rank": world.rank}) == [{"rank": r} for r in range(world.world_size)]
    assert world.broadcast_object(world.rank, root=1) == 1
    for work in works:
        work.wait()
    assert (big == 1).all()


def test_works_run_in_launch_order(world: Communicator) -> None:
    buffers = [np.full(1 << k, float(world.rank)) for k in range(8)]
    works = [world.all_reduce_async(b) for b in buffers]
    for work in reversed(works):
        work.wait()
    for earlier, later in pairwise(works):
        assert earlier.times.ended_s <= later.times.started_s
    assert all((b == sum(range(world.world_size))).all() for b in buffers)


def test_waiting_for_a_late_rank_does_not_burn_the_core(world: Communicator) -> None:
    world.barrier()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    if world.rank == 0:
        time.sleep(0.5)
    work = world.all_reduce_async(np.zeros(8))
    work.wait()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    assert cpu_s < 0.2 + 0.3 * wall_s, f"{cpu_s:.3f} s of CPU in {wall_s:.3f} s of waiting"


def test_a_time_out_names_the_ranks_that_are_missing(world: Communicator) -> None:
    last = world.world_size - 1
    if world.rank != last:
        work = world.all_reduce_async(np.zeros(8), label="bucket 7")
        with pytest.raises(CollectiveTimeoutError, match="bucket 7") as caught:
            work.wait(0.3)
        assert f"waiting for rank(s) [{last}]" in str(caught.value)
        assert world.all_gather_object("timed out")[0] == "timed out"
    else:
        assert world.all_gather_object("late")[0] == "timed out"
        work = world.all_reduce_async(np.zeros(8), label="bucket 7")
    work.wait()


def test_a_long_wait_is_said_once(world: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollcall, "WARN_AFTER_S", 0.05)
    world.barrier()
    if world.rank == 1:
        time.sleep(1.0)
        world.all_gather_object(0)
        return
    with pytest.warns(SlowRanksWarning, match=r"for rank\(s\) \[.*1.*\] in all_gather_object") as caught:
        world.all_gather_object(0)
    assert len(caught) == 1


def test_a_mismatch_names_both_sides_on_every_rank(new_world: Callable[..., Communicator]) -> None:
    communicator = new_world()
    with pytest.raises(CollectiveMismatchError) as caught:
        communicator.all_reduce(np.zeros(4 + (communicator.rank == 1)), label="bucket 3")
    assert "all_reduce(float64[5], sum) on rank(s) [1]" in str(caught.value)
    assert "bucket 3" in caught.value.__notes__[0]
    with pytest.raises(CollectiveMismatchError):
        communicator.barrier()  # broken for good
    communicator.close()


def test_a_rank_that_ends_early_is_named(new_world: Callable[..., Communicator]) -> None:
    communicator = new_world()
    if communicator.rank == 0:
        with pytest.raises(RankFailedError, match=r"ended while rank 0 entered all_reduce"):
            communicator.all_reduce(np.zeros(4))
    communicator.close()
