"""Slopes by central differences: right within the uncertainty they state, also where rounding is most of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distcompile.parity.differences import central


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
