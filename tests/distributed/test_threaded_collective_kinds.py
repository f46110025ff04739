"""Every collective kind and message on the threaded transport, by the cases that MPI ranks run too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from collective_cases import BREAKING, CASES

from collectives import Communicator, run_ranks


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("case", [*CASES, *BREAKING], ids=lambda case: case.__name__)
def test_on_threads(case: Callable[[Communicator], None], ranks: int) -> None:
    run_ranks(ranks, case, timeout_s=30)
