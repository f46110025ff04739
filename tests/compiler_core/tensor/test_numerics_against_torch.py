"""Corners of pointwise functions, eager and compiled, judged by torch: rounding, remainders, tails, overflow."""

from __future__ import annotations

import numpy as np
import pytest
from both_libraries import assert_as_torch

pytestmark = pytest.mark.torch
INF = np.inf


def test_a_product_is_rounded_before_it_is_subtracted_from() -> None:
    """x * y - z with z = fl(x * y) is 0: contracted into one rounding it is not, and NaN under a root."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    assert_as_torch(["x * y - z", "torch.sqrt(x * y - z)", "z - x * y"], {"x": x, "y": y, "z": x * y}, rtol=0)


def test_fmod_is_exact() -> None:
    a = np.array([1e8, 1.0, -7.5, INF, 2.0, -1e30, 0.0, -6.0], np.float32)
    b = np.array([3.0, INF, 2.0, 2.0, 0.0, 7.0, -3.0, 3.0], np.float32)
    assert_as_torch(["torch.fmod(a, b)", "torch.remainder(a, b)"], {"a": a, "b": b}, rtol=0)
    assert_as_torch(["torch.fmod(a, b)"], {"a": a.astype(np.float64), "b": b.astype(np.float64)}, rtol=0)


def test_exp_reaches_down_to_the_subnormal_numbers() -> None:
    x = np.linspace(-87.3, 88.7, 4001).astype(np.float32)
    assert_as_torch(["torch.exp(x)", "torch.sigmoid(x)"], {"x": x}, rtol=3e-7)
    tiny = np.array([-87.4, -90.0, -103.0, -104.5, -200.0, -INF], np.float32)
    assert_as_torch(["torch.exp(x) * 2.0 ** 100"], {"x": tiny}, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tails_and_overflow(dtype: type) -> None:
    x = np.array([1e-7, -1e-5, 0.3, -1.0, 2.5, 5.0, 8.0, -8.0, 60.0, 89.0, -89.0, 800.0, INF, -INF, np.nan], dtype)
    assert_as_torch(
        ["torch.sinh(x)", "torch.cosh(x)", "torch.erfc(x)"], {"x": x}, rtol=2e-6 if dtype is np.float32 else 1e-12
    )
    small = np.array([3.0, 5.0, 7.0], dtype)
    assert_as_torch(["torch.erfc(x) * 1e20"], {"x": small}, rtol=2e-6 if dtype is np.float32 else 1e-12)


def test_logaddexp_of_infinities() -> None:
    a = np.array([-INF, INF, -INF, 1.0, INF], np.float32)
    assert_as_torch(["torch.logaddexp(a, b)"], {"a": a, "b": np.array([-INF, INF, 2.0, 1.0, -INF], np.float32)})


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8])
def test_powers_of_integers_wrap(dtype: type) -> None:
    base = np.array([3, 2, 1, 5, 0, 7, 250]).astype(dtype)
    exponent = np.array([39, 70, 2, 3, 0, 22, 3]).astype(dtype)
    assert_as_torch(["a ** b", "a ** 5", "a.pow(b)", "2 ** b"], {"a": base, "b": exponent}, rtol=0)
    if np.dtype(dtype).kind == "i":
        signed = np.array([1, -1, -1, 2, -3], dtype), np.array([-5, -3, -4, -1, -2], dtype)
        assert_as_torch(["a ** b"], {"a": signed[0], "b": signed[1]}, rtol=0)
