"""Slopes by central differences: right within the uncertainty they state, also where rounding is most of them; and what
one random direction finds: a fault in one element of one gradient, wherever it lies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile import nn, parity
from distcompile.parity.differences import central, random_direction


@pytest.mark.parametrize("offset", [0.0, 4.05, 1e3])
@pytest.mark.parametrize("slope", [1e-9, 2.69e-7, 2e-5, 1.0])
def test_a_slope_is_known_as_well_as_it_says(slope: float, offset: float) -> None:
    for size in np.geomspace(1e-2, 1.0, 40):
        measured, uncertainty = central(lambda step: offset + math.sin(slope * step), float(size))
        assert abs(measured - slope) <= 3 * uncertainty + 1e-12


def test_a_great_slope_is_known_well() -> None:
    measured, uncertainty = central(lambda step: 4.0 + math.exp(step), 0.1)
    assert measured == pytest.approx(1.0, rel=1e-6)
    assert uncertainty < 1e-6


class Planted(nn.Module):
    """A linear layer between others whose weight's gradient is changed: at its backward, where every reference sees it.

    change: gradient f64[64, 48] -> what backward gives instead.
    """

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.first, self.weight = nn.Linear(16, 48), nn.Parameter(dc.randn(64, 48) / 7)
        self.change = change

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        change = self.change

        class Passed(dc.autograd.Function):
            @staticmethod
            def forward(ctx: Any, weight: dc.Tensor) -> dc.Tensor:
                return weight.clone()

            @staticmethod
            def backward(ctx: Any, gradient: dc.Tensor) -> dc.Tensor:
                return dc.from_numpy(change(gradient.numpy().copy()))

        return dc.tanh(dc.tanh(self.first(x)) @ Passed.apply(self.weight).T).square().mean()


def failing(change: Callable[[Any], Any], seed: int) -> list[str]:
    """The parameters that one direction each finds wrong."""
    dc.manual_seed(0)
    x = dc.randn(8, 16)
    report = parity.check(Planted(change), x, backend="eager", seed=seed, judges=parity.Judges(samples=0))
    assert sum(row.differences.checked for row in report.rows if row.differences is not None) == 3
    return [row.parameter for row in report.rows if row.failure]


def test_an_honest_gradient_passes_one_direction() -> None:
    assert failing(lambda gradient: gradient, 0) == []


@pytest.mark.parametrize("seed", range(4))
def test_one_direction_finds_one_per_cent_in_one_element(seed: int) -> None:
    """An element of middling size, one of 3,072."""

    def one(gradient: Any) -> Any:
        place = np.argsort(np.abs(gradient), axis=None)[gradient.size // 2 + 97 * seed]
        gradient.flat[place] *= 1.01
        return gradient

    assert failing(one, seed) == ["weight"]


@pytest.mark.parametrize("seed", range(8))
def test_one_direction_finds_two_elements_exchanged(seed: int) -> None:
    """Equal and opposite faults: a direction of ones and minus ones would miss half of them."""

    def exchanged(gradient: Any) -> Any:
        low, *_, high = np.argsort(gradient, axis=None)
        gradient.flat[[low, high]] = gradient.flat[[high, low]]
        return gradient

    assert failing(exchanged, seed) == ["weight"]


def test_a_direction_meets_every_element() -> None:
    direction = random_direction((50, 40), np.random.default_rng(0))
    assert 0.5 <= np.abs(direction).min() < np.abs(direction).max() <= 1.5
    assert 0.4 < (direction > 0).mean() < 0.6
    assert np.unique(np.abs(direction)).size == direction.size
