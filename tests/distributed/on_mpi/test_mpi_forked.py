"""On MPI ranks: a forked child that uses what its parent has gets a named error, and the ranks never hear of it."""

from __future__ import annotations

import numpy as np
import pytest

from collectives import Communicator
from tests.distributed.forked_cases import in_child, uses

pytestmark = pytest.mark.mpi(min_size=2)
REFUSED = "ForkedProcessError: a forked process takes no part in the process group of its parent"


def check_sum(world: Communicator) -> None:
    array = np.full(8, float(world.rank + 1), np.float32)
    world.all_reduce(array)
    assert (array == world.world_size * (world.world_size + 1) / 2).all()


def test_every_use_is_refused_and_the_ranks_go_on(world: Communicator) -> None:
    for name, use in uses(world).items():
        said = in_child(use) if world.rank == 0 else REFUSED
        assert said.startswith(REFUSED), (name, said)
        assert world.rank or "get_rank() and get_world_size() can be asked here" in said
    check_sum(world)


def test_what_was_under_way_at_the_fork_ends_in_the_child_alone(world: Communicator) -> None:
    peer = (world.rank + 1) % world.world_size
    into = np.zeros(4, np.float32)
    waiting = world.receive_async(into, (world.rank - 1) % world.world_size, tag=5)
    held = world.all_reduce_async(np.ones(4, np.float32), held=True)
    last = world.all_reduce_async(np.ones(4, np.float32))
    world.all_gather_object(None)
    for use in (waiting.wait, held.wait, last.wait, lambda: (held.release(), held.wait()), lambda: waiting.wait(1.0)):
        assert in_child(use).startswith(REFUSED)
    world.all_gather_object(None)
    assert not held.is_done()
    world.send_async(np.full(4, 7, np.float32), peer, tag=5).wait()
    waiting.wait()
    held.release()
    last.wait()
    assert (into == 7).all()
    check_sum(world)


def test_a_child_may_close_and_ask_who_its_parent_is(world: Communicator) -> None:
    def child() -> tuple[int, int]:
        world.close()
        return world.rank, world.world_size

    assert in_child(child) == (world.rank, world.world_size)
    check_sum(world)


def test_a_child_writes_in_memory_of_its_own(world: Communicator) -> None:
    mine = world.allocate(1000, np.dtype(np.float32))
    mine[:] = 3

    def child() -> list[float]:
        mine[:500] = 8
        return [float(mine[0]), float(mine[999])]

    assert in_child(child) == [8, 3]
    assert (mine == 3).all()
    more = world.allocate(1000, np.dtype(np.float32))
    more[:] = world.rank + 1
    world.all_reduce(more)
    assert (more == world.world_size * (world.world_size + 1) / 2).all()
