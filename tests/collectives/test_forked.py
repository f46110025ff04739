"""A forked child of thread ranks: every use a named error, also where another thread held a lock at the fork."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from collectives import ThreadedWorld
from tests.distributed.forked_cases import in_child, uses

REFUSED = "ForkedProcessError: a forked process takes no part in the process group of its parent"
NAMES = [name for name in uses(ThreadedWorld(1).communicator(0)) if name != "abort"]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_use_is_refused(name: str, size: int) -> None:
    world = ThreadedWorld(size).communicator(0)
    assert in_child(uses(world)[name]).startswith(REFUSED)


def test_the_parent_goes_on() -> None:
    world = ThreadedWorld(2, timeout_s=60)
    first, second = world.communicator(0), world.communicator(1)
    mine = np.ones(4)
    work = first.all_reduce_async(mine)
    wanted = first.receive_async(np.ones(4), 1)
    assert in_child(work.wait).startswith(REFUSED)
    assert in_child(wanted.wait).startswith(REFUSED)
    second.all_reduce(np.ones(4))
    work.wait()
    assert (mine == 2).all()


def test_a_lock_that_another_thread_held_does_not_stop_the_child() -> None:
    world = ThreadedWorld(2)
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with world.changed:
            is_held.set()
            may_go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(60)
    said = in_child(world.communicator(0).barrier)
    may_go.set()
    thread.join(60)
    assert said.startswith(REFUSED)


def test_a_child_makes_groups_of_its_own() -> None:
    ThreadedWorld(1).communicator(0)

    def child() -> float:
        array = np.ones(3)
        ThreadedWorld(1).communicator(0).all_reduce(array)
        return float(array.sum())

    assert in_child(child) == 3
