"""The piecewise fit: exact on exact data, robust against outliers, one piece unless more are worth it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcompile.tuning.cost import CostPoint, fit_costs, linear

SIZES = [1 << k for k in range(10, 27)]


def test_a_line_is_found_exactly() -> None:
    fit = fit_costs([CostPoint(b, 20e-6 + 0.3e-9 * b) for b in SIZES])
    assert len(fit.pieces) == 1
    assert fit.startup_s == pytest.approx(20e-6, rel=1e-3)
    assert fit.bytes_per_s == pytest.approx(1 / 0.3e-9, rel=1e-3)
    assert fit.deviation < 1e-3


def test_an_outlier_does_not_move_it() -> None:
    points = [CostPoint(b, (20e-6 + 0.3e-9 * b) * (5 if b == 1 << 15 else 1)) for b in SIZES]
    fit = fit_costs(points)
    assert fit.seconds(1 << 25) == pytest.approx(20e-6 + 0.3e-9 * (1 << 25), rel=0.02)
    assert fit.seconds(1 << 10) == pytest.approx(20e-6, rel=0.1)


def test_a_switch_of_protocol_is_a_second_piece() -> None:
    def seconds(b: int) -> float:
        return 5e-6 + 2e-9 * b if b < 1 << 16 else 300e-6 + 0.2e-9 * b

    fit = fit_costs([CostPoint(b, seconds(b)) for b in SIZES])
    assert len(fit.pieces) == 2
    assert fit.pieces[1].from_nbytes == 1 << 16
    for b in SIZES:
        assert fit.seconds(b) == pytest.approx(seconds(b), rel=0.02)
    assert "from 65536 bytes" in str(fit)


@settings(deadline=None)
@given(seed=st.integers(0, 10**9))
def test_noise_of_ten_percent_is_followed_within_it(seed: int) -> None:
    rng = random.Random(seed)
    points = [CostPoint(b, (50e-6 + 1e-9 * b) * rng.uniform(0.9, 1.1)) for b in SIZES]
    fit = fit_costs(points)
    for b in SIZES:
        assert fit.seconds(b) == pytest.approx(50e-6 + 1e-9 * b, rel=0.25)
    assert all(p.alpha_s >= 0 and p.beta_s_per_byte >= 0 for p in fit.pieces)


def test_few_points_and_points_that_fall() -> None:
    assert fit_costs([CostPoint(100, 1e-3)]).seconds(10**6) == 1e-3
    assert fit_costs([CostPoint(0, 1e-3), CostPoint(1000, 2e-3)]).seconds(500) == pytest.approx(1.5e-3, rel=1e-2)
    falling = fit_costs([CostPoint(1000 * k, 1e-3 / k) for k in range(1, 6)])
    assert falling.pieces[0].beta_s_per_byte == 0
    assert linear(0.0, 0.0).bytes_per_s == float("inf")
