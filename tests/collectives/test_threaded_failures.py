"""The threaded transport never hangs: late, different, failing and leaving ranks end in named errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from collectives import Communicator, ThreadedWorld, run_ranks
from collectives.errors import (
    ClosedError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    RankFailedError,
)


def test_a_rank_that_raises_ends_the_others_with_a_named_error() -> None:
    seen: list[str] = []

    def step(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise ZeroDivisionError("boom")
        try:
            communicator.all_reduce(np.zeros(2))
        except RankFailedError as error:
            seen.append(str(error))
            raise

    with pytest.raises(ZeroDivisionError) as caught:
        run_ranks(3, step, timeout_s=60)
    assert "rank 1 of 3" in caught.value.__notes__[0]
    assert len(seen) == 2
    assert "rank 1 raised ZeroDivisionError: boom" in seen[0]


def test_different_sizes_name_both_sides() -> None:
    def step(communicator: Communicator) -> None:
        communicator.all_reduce(np.zeros(2 + (communicator.rank == 2)), label="bucket 4")

    with pytest.raises(CollectiveMismatchError) as caught:
        run_ranks(3, step, timeout_s=60)
    assert "bucket 4: all_reduce(float64[2], sum) on rank(s) [0, 1]" in str(caught.value)
    assert "all_reduce(float64[3], sum) on rank(s) [2]" in str(caught.value)


def test_different_object_exchanges_are_a_mismatch() -> None:
    def step(communicator: Communicator) -> None:
        if communicator.rank:
            communicator.broadcast_object(1)
        else:
            communicator.all_gather_object(1)

    with pytest.raises(CollectiveMismatchError, match="broadcast_object"):
        run_ranks(2, step, timeout_s=60)


def test_a_wait_for_a_late_rank_times_out_naming_it_and_can_go_on() -> None:
    world = ThreadedWorld(2)
    array = np.ones(2)
    work = world.communicator(0).all_reduce_async(array, label="bucket 0")
    with pytest.raises(CollectiveTimeoutError, match=r"bucket 0: .* within 0.01 s") as caught:
        work.wait(0.01)
    assert "waiting for rank(s) [1]" in str(caught.value)
    world.communicator(1).all_reduce(np.ones(2))
    work.wait(60)
    assert array.tolist() == [2, 2]


def test_an_object_exchange_times_out_naming_the_missing() -> None:
    with pytest.raises(CollectiveTimeoutError, match=r"waiting for rank\(s\) \[1\]"):
        ThreadedWorld(2, timeout_s=0.01).communicator(0).all_gather_object(1)


def test_a_rank_that_closes_early_fails_the_ones_that_need_it() -> None:
    world = ThreadedWorld(2, timeout_s=60)
    work = world.communicator(0).all_reduce_async(np.ones(2), label="bucket 0")
    world.communicator(1).close()
    with pytest.raises(RankFailedError, match="rank 1 closed"):
        work.wait()
    with pytest.raises(RankFailedError, match="closed"):
        world.communicator(0).barrier()


def test_a_closed_communicator_says_so() -> None:
    communicator = ThreadedWorld(1).communicator(0)
    communicator.close()
    with pytest.raises(ClosedError):
        communicator.barrier()


def test_abort_fails_every_rank() -> None:
    world = ThreadedWorld(2, timeout_s=60)
    work = world.communicator(0).barrier_async()
    world.communicator(1).abort(3)
    with pytest.raises(RankFailedError, match="exit code 3"):
        work.wait()


def test_a_rank_that_never_ends_is_named() -> None:
    forever = threading.Event()
    with pytest.raises(CollectiveTimeoutError, match="rank 1 did not end"):
        run_ranks(2, lambda c: forever.wait() if c.rank else None, timeout_s=1)
    forever.set()
