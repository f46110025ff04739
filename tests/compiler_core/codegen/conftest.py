"""Fixtures of the code generator's tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compiler_core.config import config
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture


@pytest.fixture(scope="module", autouse=True)
def _optimised(optimised: None) -> None:
    """All of them."""


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2024)


@pytest.fixture
def no_cache() -> Iterator[None]:
    """What the fake compiles must not be found by others."""
    with config.patch(use_cache=False):
        yield
