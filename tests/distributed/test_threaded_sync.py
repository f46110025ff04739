"""SyncBatchNorm and ZeroRedundancyOptimizer in training, on threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sync_cases import CASES

from collectives import Communicator, run_ranks


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_threads(case: Callable[[Communicator], None], ranks: int) -> None:
    run_ranks(ranks, case, timeout_s=60)
