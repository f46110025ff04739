"""Fixtures of the code generator's tests."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture


@pytest.fixture(scope="module", autouse=True)
def _optimised(optimised: None) -> None:
    """All of them."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2024)
