"""The composite functions against torch: same values, shapes, dtypes and gradients from the same expression."""

from __future__ import annotations

import pytest
from against_torch import assert_gradients, assert_second_gradients, assert_values
from composite_checks import ALL, draw

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", ALL)
def test_values(name: str) -> None:
    assert_values(ALL[name].call, draw(ALL[name]), rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("name", [name for name, check in ALL.items() if check.smooth])
def test_gradients(name: str) -> None:
    assert_gradients(ALL[name].call, draw(ALL[name]), rtol=ALL[name].rtol)


TORCH_HAS_NONE = {"hardsigmoid", "norm_zero"}  # not implemented; NaN


@pytest.mark.parametrize("name", [n for n, check in ALL.items() if check.smooth and n not in TORCH_HAS_NONE])
def test_second_gradients(name: str) -> None:
    assert_second_gradients(ALL[name].call, draw(ALL[name]), rtol=max(ALL[name].rtol, 1e-8))
