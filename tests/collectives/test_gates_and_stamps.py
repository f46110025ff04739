"""Stamps, gates, held tasks, broadcasts on need, and subgroups, on threads; on MPI:
distributed/on_mpi/test_mpi_gates.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from collectives import Communicator, Stamp, run_ranks
from collectives.errors import CollectiveArgumentError, CollectiveMismatchError
from tests.collectives.gate_cases import BREAKING, CASES


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_on_threads(case: Callable[[Communicator], None], world_size: int) -> None:
    run_ranks(world_size, case, timeout_s=60)


@pytest.mark.parametrize("case", BREAKING)
def test_errors_on_threads(case: Callable[[Communicator], None]) -> None:
    run_ranks(3, case, timeout_s=60)


def test_a_gate_has_a_limit() -> None:
    def step(communicator: Communicator) -> None:
        with pytest.raises(CollectiveArgumentError, match="up to 12 words"):
            communicator.open_gate([0] * 13, 1, "g")
        with pytest.raises(CollectiveArgumentError, match="agree=3"):
            communicator.open_gate([1, 2], 3, "g")
        with pytest.raises(CollectiveArgumentError, match="64 bits"):
            communicator.open_gate([1 << 63], 1, "g")

    run_ranks(1, step)


def test_a_stamp_reads_as_a_place() -> None:
    assert str(Stamp(0xAB12, 58, 3)) == "step 58, bucket 3 of plan 000000000000ab12"
    assert str(Stamp(-1, 0, 0)) == "step 0, bucket 0 of plan ffffffffffffffff"


def test_an_error_names_the_step_of_each_side() -> None:
    def step(communicator: Communicator) -> None:
        stamp = Stamp(0xAB12, 57 + (communicator.rank == 1), 0)
        communicator.all_reduce_async(np.zeros(3), label="bucket 0 of 4", stamp=stamp).wait()

    with pytest.raises(CollectiveMismatchError) as caught:
        run_ranks(2, step, timeout_s=60)
    text = str(caught.value)
    assert "rank 0 is at step 57, bucket 0 of plan 000000000000ab12" in text
    assert "rank 1 is at step 58, bucket 0 of plan 000000000000ab12" in text
