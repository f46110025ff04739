"""SyncBatchNorm and ZeroRedundancyOptimizer in training, on MPI ranks. Run by test_under_mpi.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sync_cases import CASES

from collectives import Communicator

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.mark.parametrize("world", ["native", "python messages"], indirect=True)  # collective kinds have all four
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_mpi(world: Communicator, case: Callable[[Communicator], None]) -> None:
    case(world)
