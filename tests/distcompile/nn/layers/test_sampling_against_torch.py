"""Interpolation, grid sampling, shuffles, fractional pooling and padding modes: as torch's, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from calls_against_torch import CallF, assert_like_torch

import distcompile as dc
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops.registry import Array

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RNG = np.random.default_rng(0)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


X1, X2, X3 = f(2, 3, 7), f(2, 3, 7, 6), f(1, 2, 3, 4, 5)
GRID, GRID3, THETA, THETA3 = f(2, 4, 5, 2) * 1.2, f(1, 2, 3, 2, 3) * 1.2, f(2, 2, 3), f(1, 3, 4)
TARGETS: tuple[dict[str, Any], ...] = (
    {"size": (14, 12)},
    {"size": (5, 9)},
    {"scale_factor": 1.7},
    {"scale_factor": (0.6, 2.0)},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
)
CALLS: dict[str, tuple[CallF, tuple[Array, ...]]] = {
    "linear": (lambda F, x: F.interpolate(x, 11, mode="linear"), (X1,)),
    "trilinear": (lambda F, x: F.interpolate(x, (4, 9, 3), mode="trilinear"), (X3,)),
    "lanczos": (lambda F, x: F.interpolate(x, (4, 9), mode="lanczos", antialias=True), (X2,)),
    "affine": (lambda F, t: F.affine_grid(t, (2, 3, 4, 5), align_corners=False), (THETA,)),
    "affine3": (lambda F, t: F.affine_grid(t, (1, 3, 4, 5, 1), align_corners=True), (THETA3,)),
    "grid3": (lambda F, x, g: F.grid_sample(x, g, align_corners=False), (X3, GRID3)),
    "pixel_shuffle": (lambda F, x: F.pixel_shuffle(x, 2), (f(2, 8, 3, 2),)),
    "pixel_unshuffle": (lambda F, x: F.pixel_unshuffle(x, 2), (f(8, 4, 2),)),
    "channel_shuffle": (lambda F, x: F.channel_shuffle(x, 2), (f(2, 8, 4, 2),)),
    "unfold": (lambda F, x: x.unfold(1, 3, 2), (f(2, 8, 4),)),
    "fractional": (
        lambda F, x, u: F.fractional_max_pool2d(x, (2, 3), (3, 2), None, True, u.detach()),
        (X2, RNG.random((2, 3, 2)).astype(np.float32)),
    ),
    "reflect_of_nothing": (lambda F, x: F.pad(x, (1, 2), "reflect"), (f(0, 3, 3),)),
    "replicate_beyond_a_crop": (lambda F, x: F.pad(x, (-4, 5, 0, 0), "replicate"), (f(2, 3, 4, 4),)),
}
for number, kwargs in enumerate(TARGETS):
    for mode in ("nearest", "nearest-exact", "area", "bilinear", "bicubic"):
        CALLS[f"{mode}_{number}"] = (lambda F, x, m=mode, k=kwargs: F.interpolate(x, mode=m, **k), (X2,))
    for mode in ("bilinear", "bicubic"):
        CALLS[f"{mode}_corners_{number}"] = (
            lambda F, x, m=mode, k=kwargs: F.interpolate(x, mode=m, align_corners=True, **k),
            (X2,),
        )
        CALLS[f"{mode}_antialias_{number}"] = (
            lambda F, x, m=mode, k=kwargs: F.interpolate(x, mode=m, antialias=True, **k),
            (X2,),
        )
for mode in ("bilinear", "nearest", "bicubic"):
    for edge in ("zeros", "border", "reflection"):
        for corners in (True, False):
            CALLS[f"grid_{mode}_{edge}_{corners}"] = (
                lambda F, x, g, m=mode, e=edge, c=corners: F.grid_sample(x, g, m, e, c),
                (X2, GRID),
            )
for mode in ("reflect", "replicate", "circular"):
    CALLS[f"pad_{mode}"] = (lambda F, x, m=mode: F.pad(x, (2, 1, 3, 0), mode=m), (X2,))
    CALLS[f"pad3_{mode}"] = (lambda F, x, m=mode: F.pad(x, (2, 1, 1, 0, 1, 1), mode=m), (X3,))
COMPILED = ("linear", "lanczos", "fractional", "unfold", "pixel_shuffle", "bicubic_1", "nearest_2", "bilinear_0") + (
    "grid_bilinear_zeros_False",
    "grid_bicubic_reflection_True",
    "pad_reflect",
    "pad_replicate",
    "pad_circular",
)


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_torchs(name: str) -> None:
    call, arrays = CALLS[name]
    assert_like_torch(call, *arrays)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_they_are_torchs_too(name: str) -> None:
    call, arrays = CALLS[name]
    assert_like_torch(call, *arrays, compiled=True)


def test_nearest_keeps_bytes_and_takes_no_wider_whole_numbers() -> None:
    x = np.arange(12).reshape(1, 2, 6)
    for library in (dc, torch):
        made = library.nn.functional.interpolate(library.tensor(x, dtype=library.uint8), scale_factor=2)
        assert made.dtype is library.uint8
        np.testing.assert_array_equal(made.numpy(), x.repeat(2, axis=2))
        with pytest.raises(NotImplementedError):
            library.nn.functional.interpolate(library.tensor(x), scale_factor=2)


def test_unfold_is_a_view_that_writes_through_where_windows_do_not_overlap() -> None:
    for library in (dc, torch):
        x = library.zeros(6)
        x.unfold(0, 2, 3).add_(1)
        assert x.tolist() == [1, 1, 0, 1, 1, 0]
    with pytest.raises(ShapeError, match="overlap"):
        dc.zeros(6).unfold(0, 2, 1).add_(1)


def test_fractional_pooling_draws_its_own_windows() -> None:
    values, places = dc.nn.functional.fractional_max_pool2d(dc.tensor(X2), 2, output_ratio=0.5, return_indices=True)
    assert tuple(values.shape) == (2, 3, 3, 3)
    flat = X2.reshape(2, 3, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, places.numpy().reshape(2, 3, -1), 2), values.numpy().reshape(2, 3, -1)
    )


def test_what_does_not_fit_is_a_named_error() -> None:
    F = dc.nn.functional
    for bad, error in (
        (lambda: F.interpolate(dc.ones(1, 2, 4)), ShapeError),
        (lambda: F.interpolate(dc.ones(1, 2, 4), 3, mode="bilinear"), ShapeError),
        (lambda: F.interpolate(dc.ones(1, 2, 4), 3, align_corners=True), ShapeError),
        (lambda: F.interpolate(dc.ones(1, 2, 4, dtype=dc.int64), 3, mode="linear"), DTypeError),
        (lambda: F.grid_sample(dc.ones(1, 2, 4, 4), dc.ones(1, 2, 2, 3)), ShapeError),
        (lambda: F.affine_grid(dc.ones(2, 2, 3), (1, 1, 2, 2)), ShapeError),
        (lambda: F.pixel_shuffle(dc.ones(1, 3, 4, 4), 2), ShapeError),
        (lambda: F.channel_shuffle(dc.ones(1, 3, 4, 4), 2), ShapeError),
        (lambda: F.pad(dc.ones(1, 2, 4), (4, 0), mode="reflect"), ShapeError),
        (lambda: F.fractional_max_pool2d(dc.ones(1, 2, 4, 4), 3, 4), ShapeError),
        (lambda: dc.ones(4).unfold(0, 5, 1), ShapeError),
    ):
        with pytest.raises(error):
            bad()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("antialias", [False, True])
def test_bytes_are_interpolated_with_torchs_rounding(mode: str, antialias: bool) -> None:
    """Images as they are read: each dim rounded by itself, weights of 16 bits, those of one place joined."""
    generator = np.random.default_rng(0)
    for shape, size in (
        ((2, 3, 13, 10), (7, 8)),
        ((1, 1, 8, 17), (21, 9)),
        ((2, 5, 4, 4), (4, 15)),
        ((1, 3, 1, 9), (6, 2)),
    ):
        image = generator.integers(0, 256, shape).astype("uint8")
        options = {"size": size, "mode": mode, "antialias": antialias}
        if mode == "lanczos" and not antialias:
            continue
        expected = torch.nn.functional.interpolate(torch.tensor(image), **options)
        found = dc.nn.functional.interpolate(dc.tensor(image), **options)
        assert found.dtype is dc.uint8
        assert (found.numpy() == expected.numpy()).all()
