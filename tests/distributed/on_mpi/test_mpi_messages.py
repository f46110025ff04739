"""On MPI ranks: what becomes of messages that are given up."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from collectives import Communicator
from collectives.errors import CollectiveTimeoutError

pytestmark = pytest.mark.mpi(min_size=2)


def test_the_array_of_a_send_that_nobody_takes_lives_on(new_world: Callable[..., Communicator]) -> None:
    world = new_world(timeout_s=30)
    array = np.ones(4 << 20, np.float32)
    alive = weakref.ref(array)
    if world.rank == 0:
        with pytest.raises(CollectiveTimeoutError):
            world.send_async(array, 1).wait(0.1)
    world.barrier()
    del array
    world.close()
    gc.collect()
    assert (alive() is not None) == (world.rank == 0)  # MPI may still read it


def test_the_array_of_a_receive_that_nothing_comes_for_is_freed(new_world: Callable[..., Communicator]) -> None:
    world = new_world(timeout_s=30)
    array = np.ones(4 << 20, np.float32)
    alive = weakref.ref(array)
    with pytest.raises(CollectiveTimeoutError):
        world.receive_async(array, (world.rank + 1) % world.world_size).wait(0.1)
    world.barrier()
    del array
    world.close()
    gc.collect()
    assert alive() is None


def test_a_sender_that_waited_long_still_moves_its_data(world: Communicator) -> None:
    array = np.full(16 << 20, float(world.rank), np.float32)
    if world.rank == 0:
        world.send_async(array, 1).wait()
    elif world.rank == 1:
        time.sleep(1.0)
        world.receive_async(array, 0).wait()
        assert (array == 0).all()
    world.barrier()
