"""On MPI ranks: a fault at any collective ends in a named error within the limit, on every engine; nothing leaks."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

import numpy as np
import pytest
from mpi_engines import everyone_is_here, open_communicator

from collectives import Communicator, Stamp
from collectives.errors import CollectiveError, CollectiveMismatchError, CollectiveTimeoutError, RankFailedError

pytestmark = pytest.mark.mpi(min_size=2)
LIMIT_S = 0.5
Make = Callable[..., Communicator]


def collectives_of(world: Communicator) -> dict[str, Callable[[], None]]:
    """One call of each kind."""
    n, size = 40, world.world_size
    mine, whole = np.ones(n), np.ones(n * size)
    return {
        "all_reduce": lambda: world.all_reduce(mine),
        "large all_reduce": lambda: world.all_reduce(np.ones(1 << 18)),
        "reduce": lambda: world.reduce_async(mine, root=0).wait(),
        "broadcast": lambda: world.broadcast(mine),
        "all_gather": lambda: world.all_gather(whole, mine),
        "gather": lambda: world.gather_async(whole if world.rank == 0 else None, mine).wait(),
        "scatter": lambda: world.scatter_async(mine, whole if world.rank == 0 else None).wait(),
        "reduce_scatter": lambda: world.reduce_scatter(mine, whole),
        "all_to_all": lambda: world.all_to_all_async(whole, whole.copy()).wait(),
        "barrier": lambda: world.barrier(),
        "gate": lambda: world.open_gate([1, 2], 1).wait() and None,
        "objects": lambda: world.all_gather_object(1) and None,
    }


KINDS = tuple(collectives_of(type("", (), {"world_size": 1, "rank": 0})()))  # type: ignore[arg-type]
SOME = ("large all_reduce", "broadcast", "gate", "objects")  # each takes a time limit


@pytest.mark.parametrize("kind", SOME)
def test_a_rank_that_does_not_come_is_named(kind: str, new_world: Make) -> None:
    world = new_world(timeout_s=60)
    world.barrier()
    world.timeout_s = LIMIT_S
    began_s = time.perf_counter()
    if world.rank != 1:
        with pytest.raises(CollectiveTimeoutError, match=r"\[.*1.*\]|rank 1"):
            collectives_of(world)[kind]()
        assert time.perf_counter() - began_s < 40
    everyone_is_here()  # rank 1 closes after the others gave up, however busy the machine is
    world.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "objects"])
def test_a_rank_that_enters_another_call_is_named(kind: str, new_world: Make) -> None:
    world = new_world(timeout_s=60)
    calls = collectives_of(world)
    calls["another"] = lambda: world.all_reduce_async(np.zeros(7, np.int16), "max", stamp=Stamp(5, 6, 7)).wait()
    with pytest.raises(CollectiveMismatchError) as caught:
        calls["another" if world.rank == 1 else kind]()
    assert "all_reduce(int16[7], max) at step 6, bucket 7" in str(caught.value)
    world.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_closes_is_named(kind: str, new_world: Make) -> None:
    world = new_world(timeout_s=60)
    if world.rank != 1:
        with pytest.raises(RankFailedError, match=r"rank\(s\) \[1\]"):
            collectives_of(world)[kind]()
    world.close()


def test_a_rank_that_gave_up_lets_the_others_close(new_world: Make) -> None:
    world = new_world(timeout_s=60)
    if world.rank == 1:
        world.give_up(CollectiveTimeoutError("a GPU did not answer"))
    began_s = time.perf_counter()
    world.close()
    assert time.perf_counter() - began_s < 40
    everyone_is_here()


def test_what_was_launched_after_a_failure_ends_too(new_world: Make) -> None:
    world = new_world(timeout_s=60)
    lengths = [4, 4, 4 + (world.rank == 1), 4, 4]
    works = [world.all_reduce_async(np.zeros(n), held=k == 0) for k, n in enumerate(lengths)]
    works[0].release()  # by now all are launched
    held = None
    for work in works[:2]:
        work.wait()
    for work in works[2:]:
        with pytest.raises(CollectiveMismatchError):
            work.wait(60)
    with pytest.raises(CollectiveError):
        held = world.all_reduce_async(np.zeros(3), held=True)
    assert held is None
    world.close()


def test_holding_gradients_costs_no_descriptors(world: Communicator) -> None:
    kept = []
    before = 0
    gc.collect()  # what earlier tests broke has descriptors of its own
    for step in range(60):
        buffers = [world.allocate(1000 + k, np.dtype(np.float32)) for k in range(8)]
        works = [world.all_reduce_async(b, stamp=Stamp(1, step, k)) for k, b in enumerate(buffers)]
        for work in works:
            work.wait()
        if step < 50:
            kept.append(buffers[0])
        if step == 20:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) == before
    del kept, buffers
    gc.collect()


def resident_nbytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("engine", ["native", "native messages"])
def test_two_thousand_steps_do_not_grow(engine: str) -> None:
    world = open_communicator(engine)
    arrays = [np.ones(500, np.float32) for _ in range(4)]

    def steps(count: int) -> None:
        for step in range(count):
            gate = world.open_gate([1, step], 2)
            for k, array in enumerate(arrays):
                world.all_reduce_async(array, "max", stamp=Stamp(1, step, k), gate=gate)
            assert gate.wait()
        world.barrier()

    steps(300)
    before = resident_nbytes()
    steps(2000)
    assert resident_nbytes() - before < 3 << 20
    world.close()


def test_communicators_come_and_go(new_world: Make) -> None:
    before = 0
    for k in range(8):
        world = new_world()
        array = world.allocate(1 << 16, np.dtype(np.float32))
        array[:] = 1
        world.all_reduce(array)
        assert (array == world.world_size).all()
        del array
        world.close()
        gc.collect()
        if k == 3:
            before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= before
