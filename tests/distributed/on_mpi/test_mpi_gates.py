"""On MPI ranks: the promises of gates, held tasks, stamps and subgroups (tests/collectives/gate_cases.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collectives import Communicator
from tests.collectives.gate_cases import BREAKING, CASES

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("case", CASES)
def test_on_mpi(case: Callable[[Communicator], None], world: Communicator) -> None:
    case(world)


@pytest.mark.parametrize("case", BREAKING)
def test_errors_on_mpi(case: Callable[[Communicator], None], new_world: Callable[..., Communicator]) -> None:
    communicator = new_world(timeout_s=60)
    case(communicator)
    communicator.close()
