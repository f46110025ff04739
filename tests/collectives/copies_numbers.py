"""What tests of copy engines share: arrays of each rank, what their sum is, and a small piece."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - makes np.dtype("bfloat16") known
import numpy as np
import pytest

from collectives.nccl import copies
from collectives.reduce import reduce_in_rank_order


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 4 KiB; all arrays of floats from 64 bytes on are for copy engines."""
    monkeypatch.setattr(copies, "PIECE_NBYTES", 4096)
    monkeypatch.setattr(copies, "LEAST_NBYTES", 64)


def values(rank: int, n: int, dtype: str, seed: int = 0) -> Any:
    return np.random.default_rng([seed, rank]).standard_normal(n).astype(np.dtype(dtype))


def expected(world: int, n: int, dtype: str, op: Any = "sum", seed: int = 0) -> Any:
    return reduce_in_rank_order([values(rank, n, dtype, seed) for rank in range(world)], op)


def same_bits(got: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))
