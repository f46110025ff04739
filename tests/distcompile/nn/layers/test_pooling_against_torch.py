"""Pooling of every kind, with all arguments: as torch's, eager and compiled; places, NaN, infinities, dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from calls_against_torch import CallF, assert_like_torch

import distcompile as dc
from compiler_core.errors import ShapeError
from compiler_core.ops.registry import Array

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RNG = np.random.default_rng(0)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ties(*shape: int) -> Array:
    return RNG.integers(0, 2, shape).astype(np.float32)


X1, X2, X3 = f(2, 3, 9), f(2, 3, 9, 8), f(1, 2, 5, 6, 5)
LOWEST = np.full((1, 2, 5, 5), -np.inf, np.float32)
CALLS: dict[str, tuple[CallF, tuple[Array, ...]]] = {
    "max1d": (lambda F, x: F.max_pool1d(x, 2), (X1,)),
    "max2d": (lambda F, x: F.max_pool2d(x, 3, 2, 1), (X2,)),
    "max2d_dilated_ceil": (lambda F, x: F.max_pool2d(x, (3, 2), 2, 1, 2, True), (X2,)),
    "max2d_places": (lambda F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (X2,)),
    "max2d_ties": (lambda F, x: F.max_pool2d(x, 3, 1, 1, return_indices=True), (ties(2, 3, 7, 7),)),
    "max2d_all_minus_infinity": (lambda F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (LOWEST,)),
    "max2d_nan": (lambda F, x: F.max_pool2d(x, 2), (np.where(X2 > 1.5, np.nan, X2).astype(np.float32),)),
    "max2d_int64": (lambda F, x: F.max_pool2d(x, 3, 2, 1), ((X2 * 9).astype(np.int64),)),
    "max2d_unbatched": (lambda F, x: F.max_pool2d(x, 3), (f(3, 7, 7),)),
    "max3d": (lambda F, x: F.max_pool3d(x, 2, 1, 1, return_indices=True), (X3,)),
    "avg1d": (lambda F, x: F.avg_pool1d(x, 3, 2, 1), (X1,)),
    "avg2d": (lambda F, x: F.avg_pool2d(x, 3, 2, 1), (X2,)),
    "avg2d_ceil_without_pad": (lambda F, x: F.avg_pool2d(x, 3, 2, 1, True, False), (X2,)),
    "avg2d_ceil_with_pad": (lambda F, x: F.avg_pool2d(x, (2, 3), 2, 1, True), (X2,)),
    "avg2d_divisor": (lambda F, x: F.avg_pool2d(x, 2, divisor_override=3), (X2,)),
    "avg3d": (lambda F, x: F.avg_pool3d(x, 2, 2, 1, True, False), (X3,)),
    "lp1d": (lambda F, x: F.lp_pool1d(x, 3, 2, ceil_mode=True), (np.abs(X1) + 0.1,)),
    "lp2d": (lambda F, x: F.lp_pool2d(x, 2, 3, 2), (np.abs(X2) + 0.1,)),
    "lp3d": (lambda F, x: F.lp_pool3d(x, 2, 2), (np.abs(X3) + 0.1,)),
    "unpool2d": (
        lambda F, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(9, 8)),
        (X2,),
    ),
    "unpool1d": (lambda F, x: F.max_unpool1d(*F.max_pool1d(x, 3, return_indices=True), 3), (X1,)),
}
for size in ((1, 1), (3, 4), (4, 3), (12, 5), (None, 2)):
    CALLS[f"adaptive_avg_{size}"] = (lambda F, x, o=size: F.adaptive_avg_pool2d(x, o), (X2,))
    CALLS[f"adaptive_max_{size}"] = (lambda F, x, o=size: F.adaptive_max_pool2d(x, o, return_indices=True), (X2,))
CALLS["adaptive_avg1d"] = (lambda F, x: F.adaptive_avg_pool1d(x, 4), (X1,))
CALLS["adaptive_avg3d"] = (lambda F, x: F.adaptive_avg_pool3d(x, (2, 3, 4)), (X3,))
CALLS["adaptive_max3d"] = (lambda F, x: F.adaptive_max_pool3d(x, (2, 3, 4)), (X3,))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CALLS)
def test_values_places_and_gradients_are_torchs(name: str, compiled: bool) -> None:
    call, arrays = CALLS[name]
    assert_like_torch(call, *arrays, compiled=compiled)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_float_dtypes(dtype: str) -> None:
    for call in (lambda F, x: F.avg_pool2d(x, 3, 2), lambda F, x: F.max_pool2d(x, 3, 2)):
        mine = call(dc.nn.functional, dc.tensor(X2).to(getattr(dc, dtype)))
        want = call(torch.nn.functional, torch.tensor(X2).to(getattr(torch, dtype)))
        assert str(mine.dtype).split(".")[1] == dtype
        np.testing.assert_allclose(mine.float().numpy(), want.float().numpy(), rtol=1e-2, atol=1e-2)


def test_what_does_not_fit_is_a_named_error() -> None:
    F = dc.nn.functional
    for bad in (
        lambda: F.max_pool2d(dc.ones(1, 2, 4, 4), 2, padding=2),
        lambda: F.max_pool2d(dc.ones(4, 4), 2),
        lambda: F.avg_pool2d(dc.ones(1, 2, 4, 4), 5),
        lambda: F.avg_pool2d(dc.ones(1, 2, 4, 4), 2, divisor_override=0),
        lambda: F.adaptive_avg_pool2d(dc.ones(1, 2, 4, 4), (1, 2, 3)),
    ):
        with pytest.raises(ShapeError):
            bad()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_place_of_a_maximum_is_that_of_the_last_nan(rank: int, compiled: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, *(6,) * rank)).astype("f4")
    x[rng.random(x.shape) < 0.3] = np.nan
    name, options = f"max_pool{rank}d", {"stride": 2, "padding": 1, "return_indices": True}

    def pooled(t: dc.Tensor) -> tuple[dc.Tensor, dc.Tensor]:
        return getattr(dc.nn.functional, name)(t, 3, **options)

    theirs, mine = torch.tensor(x, requires_grad=True), dc.tensor(x, requires_grad=True)
    want, want_places = getattr(torch.nn.functional, name)(theirs, 3, **options)
    got, places = (dc.compile(pooled, fullgraph=True) if compiled else pooled)(mine)
    want.backward(torch.ones_like(want))
    got.backward(dc.ones_like(got))
    assert np.array_equal(got.detach().numpy(), want.detach().numpy(), equal_nan=True)
    assert np.array_equal(places.numpy(), want_places.numpy())
    assert np.array_equal(mine.grad.numpy(), theirs.grad.numpy())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_maxima_and_places_are_a_plain_tuple(compiled: bool) -> None:
    for name, arguments in (
        ("max_pool2d", (2,)),
        ("adaptive_max_pool2d", (3,)),
        ("fractional_max_pool2d", (2, 3)),
    ):
        pool = getattr(dc.nn.functional, name)
        found = (dc.compile(pool) if compiled else pool)(dc.tensor(X2), *arguments, return_indices=True)
        assert type(found) is tuple
        assert type(getattr(torch.nn.functional, name)(torch.tensor(X2), *arguments, return_indices=True)) is tuple
