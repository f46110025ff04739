"""Every collective kind and message on MPI ranks, by the cases that threads run too. Run by test_under_mpi.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from collective_cases import BREAKING, CASES

from collectives import Communicator

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_mpi(world: Communicator, case: Callable[[Communicator], None]) -> None:
    case(world)


@pytest.mark.parametrize("case", BREAKING, ids=lambda case: case.__name__)
def test_on_mpi_with_a_communicator_of_its_own(
    case: Callable[[Communicator], None], new_world: Callable[..., Communicator]
) -> None:
    communicator = new_world()
    case(communicator)
    communicator.close()
