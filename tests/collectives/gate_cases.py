"""What gates, held tasks, stamps and subgroups promise, as functions of a communicator: run on every transport.

CASES leave the communicator in order; BREAKING ones break it, so each gets one of its own.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

from collectives import Communicator, Stamp
from collectives.errors import CollectiveError, CollectiveMismatchError
from collectives.work_events import WorkEvents


def a_gate_gathers_words(world: Communicator) -> None:
    gate = world.open_gate([7, world.rank, -5], 1, "start of a backward")
    assert gate.wait() == tuple((7, rank, -5) for rank in range(world.world_size))
    assert gate.passed is True


def tasks_behind_a_passed_gate_run(world: Communicator) -> None:
    arrays = [np.full(5, float(world.rank)) for _ in range(3)]
    gate = world.open_gate([1, 2], 2)
    works = [world.all_reduce_async(a, stamp=Stamp(1, 2, k), gate=gate) for k, a in enumerate(arrays)]
    for work in works:
        work.wait()
        assert not work.skipped
    assert all((a == sum(range(world.world_size))).all() for a in arrays)


def tasks_behind_a_failed_gate_are_skipped(world: Communicator) -> None:
    array = np.full(5, float(world.rank))
    gate = world.open_gate([1, world.rank], 2)
    launched = 1 + world.rank  # ranks that went different ways launch different numbers of tasks
    works = [world.all_reduce_async(array, gate=gate, held=k == 0) for k in range(launched)]
    for work in works:
        work.release()
        work.wait()
        assert work.skipped == (world.world_size > 1)
        assert math.isfinite(work.times.ended_s)
    assert gate.passed is (world.world_size == 1)
    if world.world_size > 1:
        assert (array == world.rank).all()
    world.barrier()


def a_held_task_waits_for_its_release(world: Communicator) -> None:
    first, second = np.ones(4), np.ones(4)
    held = world.all_reduce_async(first, held=True, label="held")
    later = world.all_reduce_async(second, label="behind it")
    with pytest.raises(TimeoutError):
        later.wait(0.05)
    assert not held.is_done()
    assert math.isnan(held.times.released_s)
    held.release()
    held.release()
    later.wait()
    assert held.times.launched_s <= held.times.released_s <= held.times.started_s <= held.times.ended_s
    assert math.isnan(later.times.released_s)
    assert first[0] == second[0] == world.world_size


def released_out_of_order_they_run_in_order(world: Communicator) -> None:
    arrays = [np.full(2, float(k)) for k in range(4)]
    works = [world.all_reduce_async(a, held=True) for a in arrays]
    for work in reversed(works):
        work.release()
    for work in works:
        work.wait()
    assert [a[0] for a in arrays] == [float(k * world.world_size) for k in range(4)]
    ends = [work.times.ended_s for work in works]
    assert ends == sorted(ends)


def a_cancelled_task_was_never_there(world: Communicator) -> None:
    array = np.ones(2)
    work = world.all_reduce_async(array, held=True)
    work.cancel()
    work.wait()
    assert work.skipped
    assert (array == 1).all()
    world.barrier()


def a_broadcast_moves_only_if_needed(world: Communicator) -> None:
    array = np.full(3, float(world.rank))
    work = world.broadcast_async(array, needed=False)
    work.wait()
    assert work.skipped
    assert (array == world.rank).all()
    last = world.world_size - 1
    work = world.broadcast_async(array, root=last, needed=world.rank == 0)
    work.wait()
    assert not work.skipped
    assert (array == last).all()


def a_subgroup_is_a_communicator_of_its_own(world: Communicator) -> None:
    members = list(range(world.world_size))[::-1][: max(1, world.world_size - 1)]
    group = world.subgroup(members)
    if world.rank not in members:
        assert group is None
    else:
        assert group is not None
        assert (group.rank, group.world_size) == (members.index(world.rank), len(members))
        array = np.full(3, float(world.rank))
        group.all_reduce(array)
        assert (array == sum(members)).all()
        assert group.all_gather_object(world.rank) == members
        assert group.open_gate([4], 1).wait() == ((4,),) * len(members)
        group.close()
    world.barrier()


def different_steps_are_named_on_every_rank(world: Communicator) -> None:
    stamp = Stamp(0xAB12, 57 + (world.rank == 1), 0)
    with pytest.raises(CollectiveMismatchError) as caught:
        world.all_reduce_async(np.zeros(3), label="bucket 0 of 4", stamp=stamp).wait()
    assert "rank 1 is at step 58, bucket 0 of plan 000000000000ab12" in str(caught.value)
    with pytest.raises(CollectiveMismatchError):
        world.barrier()


def a_rank_that_gave_up_its_backward_meets_the_others_by_name(world: Communicator) -> None:
    stamp = Stamp(0xAB12, 57, 2)
    work = world.all_reduce_async(np.zeros(3), stamp=stamp, held=True)
    if world.rank == 1:
        work.cancel()
        work = world.open_gate([1, 58], 1, "step 58", stamp=Stamp(0xAB12, 58, 0)).work
    work.release()
    with pytest.raises(CollectiveMismatchError) as caught:
        work.wait()
    assert "at step 57, bucket 2 of plan" in str(caught.value)
    assert "gate(2 words) at step 58" in str(caught.value)


def closing_with_held_tasks_fails_the_others(world: Communicator) -> None:
    if world.rank == 0:
        world.all_reduce_async(np.zeros(3), held=True)
        world.close()
        return
    with pytest.raises(CollectiveError, match="rank"):
        world.all_reduce(np.zeros(3))


def events_release_and_wait(world: Communicator) -> None:
    arrays = [np.full(3, float(k)) for k in range(3)]
    works = [world.all_reduce_async(a, held=True) for a in arrays]
    events = world.events([works[:2], works[2:], []])
    signal, wait = call_natively(events)
    signal(2)
    signal(0)
    signal(1)
    wait(1)
    wait(0)
    wait(2)
    assert all(work.is_done() for work in works)
    assert [a[0] for a in arrays] == [float(k * world.world_size) for k in range(3)]


def call_natively(events: WorkEvents) -> tuple[Callable[[int], None], Callable[[int], None]]:
    """signal and wait, as compiled code would call them if it can."""
    address = getattr(events, "native_address", 0)
    if not address:
        return events.signal, events.wait
    own, signal, wait = (ctypes.c_int64 * 3).from_address(address)
    signals = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(signal)
    waits = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)(wait)

    def native_wait(event: int) -> None:
        assert waits(own, event) == 0

    return lambda event: signals(own, event), native_wait


CASES = [
    a_gate_gathers_words,
    tasks_behind_a_passed_gate_run,
    tasks_behind_a_failed_gate_are_skipped,
    a_held_task_waits_for_its_release,
    released_out_of_order_they_run_in_order,
    a_cancelled_task_was_never_there,
    events_release_and_wait,
    a_broadcast_moves_only_if_needed,
    a_subgroup_is_a_communicator_of_its_own,
]
BREAKING = [
    different_steps_are_named_on_every_rank,
    a_rank_that_gave_up_its_backward_meets_the_others_by_name,
    closing_with_held_tasks_fails_the_others,
]
