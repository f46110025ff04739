"""All-reduce through shared memory, each rank a thread with its own mapping of the others' segments."""

from __future__ import annotations

import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from collectives.arena import Place
from collectives.call import CollectiveCall, ReduceOp, Task
from collectives.errors import CollectiveTimeoutError
from collectives.reduce import reduce_in_rank_order
from collectives.shared_memory import HEADER_NBYTES, SharedMemory, map_peer

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memfd is Linux's")


def ranks(world_size: int) -> list[SharedMemory]:
    """Ranks of one process: every rank maps every header anew, as another process would."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, world_size * mmap.PAGESIZE)
    pids = [os.getpid()] * world_size
    boards = [map_peer(os.getpid(), descriptor, world_size * mmap.PAGESIZE) for _ in range(world_size)]
    os.close(descriptor)
    return [
        SharedMemory(r, pids, list(boards[r].reshape(world_size, -1)[:, :HEADER_NBYTES])) for r in range(world_size)
    ]


def reduce_all(world: list[SharedMemory], sources: list[np.ndarray], op: ReduceOp = "sum") -> list[np.ndarray]:
    buffers = [m.arena.allocate(s.nbytes)[: s.nbytes].view(s.dtype) for m, s in zip(world, sources)]
    locations: list[Place] = [m.locate(b) for m, b in zip(world, buffers)]
    call = CollectiveCall("all_reduce", op, sources[0].dtype.name, sources[0].size)

    def run(rank: int) -> None:
        buffers[rank][...] = sources[rank]
        started.wait(60)
        world[rank].all_reduce(Task(call, buffers[rank], buffers[rank]), locations, lambda: time.sleep(0), 60.0)

    started = threading.Barrier(len(world))
    with ThreadPoolExecutor(len(world)) as pool:
        list(pool.map(run, range(len(world))))
    return buffers


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 3, 1000, 300_001])
def test_every_rank_holds_the_rank_order_sum(world_size: int, size: int) -> None:
    sources = [np.random.default_rng(r).standard_normal(size) for r in range(world_size)]
    for buffer in reduce_all(ranks(world_size), sources):
        np.testing.assert_array_equal(buffer, reduce_in_rank_order(sources, "sum"))


@pytest.mark.parametrize("op", ["avg", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_reductions_and_narrow_floats(op: ReduceOp, dtype: str) -> None:
    sources = [np.random.default_rng(r).uniform(0.5, 2, 77).astype(dtype) for r in range(2)]
    for buffer in reduce_all(ranks(2), sources, op):
        np.testing.assert_array_equal(buffer, reduce_in_rank_order(sources, op))


def test_again_and_again_in_the_same_world() -> None:
    world = ranks(3)
    for step in range(20):
        sources = [np.full(1000, float(step * 10 + r)) for r in range(3)]
        for buffer in reduce_all(world, sources):
            assert (buffer == 30 * step + 3).all()


def test_a_rank_that_stops_in_the_middle_is_named() -> None:
    world = ranks(2)
    buffers = [m.arena.allocate(64).view(np.float64) for m in world]
    locations = [m.locate(b) for m, b in zip(world, buffers)]
    task = Task(CollectiveCall("all_reduce", "sum", "float64", 8), buffers[0], buffers[0], "bucket 2")
    with pytest.raises(CollectiveTimeoutError, match="bucket 2") as caught:
        world[0].all_reduce(task, locations, lambda: None, 0.01)
    assert "waiting for rank(s) [1]" in str(caught.value)
