"""Convolutions, transposed ones, unfold and fold, with all their arguments: as torch's, eager and compiled."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from calls_against_torch import CallF, assert_like_torch

import distcompile as dc
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.registry import Array
from distcompile.errors import ArgumentError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RNG = np.random.default_rng(0)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


CALLS: dict[str, tuple[CallF, tuple[Array, ...]]] = {
    "conv1d": (lambda F, x, w, b: F.conv1d(x, w, b, 2, 1), (f(2, 3, 9), f(4, 3, 3), f(4))),
    "conv1d_dilated": (lambda F, x, w: F.conv1d(x, w, dilation=2, padding="same"), (f(2, 3, 9), f(4, 3, 4))),
    "conv2d": (lambda F, x, w, b: F.conv2d(x, w, b, (2, 1), (0, 1)), (f(2, 3, 9, 8), f(4, 3, 3, 3), f(4))),
    "conv2d_grouped": (
        lambda F, x, w, b: F.conv2d(x, w, b, 1, "same", (2, 1), 2),
        (f(2, 4, 9, 8), f(6, 2, 2, 3), f(6)),
    ),
    "conv2d_depthwise": (
        lambda F, x, w: F.conv2d(x, w, None, 2, 2, groups=3),
        (f(2, 3, 9, 8), f(6, 1, 5, 5)),
    ),
    "conv2d_pointwise": (lambda F, x, w, b: F.conv2d(x, w, b), (f(2, 3, 5, 4), f(4, 3, 1, 1), f(4))),
    "conv2d_pointwise_strided": (lambda F, x, w: F.conv2d(x, w, stride=2), (f(2, 3, 5, 4), f(4, 3, 1, 1))),
    "conv2d_unbatched": (lambda F, x, w: F.conv2d(x, w, padding="valid"), (f(3, 5, 6), f(4, 3, 2, 2))),
    "conv2d_no_batch_elements": (lambda F, x, w: F.conv2d(x, w), (f(0, 3, 5, 6), f(4, 3, 2, 2))),
    "conv3d": (lambda F, x, w, b: F.conv3d(x, w, b, 2, 1), (f(2, 3, 5, 6, 5), f(4, 3, 3, 2, 3), f(4))),
    "transposed1d": (
        lambda F, x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2),
        (f(2, 3, 5), f(3, 4, 3), f(4)),
    ),
    "transposed2d": (
        lambda F, x, w, b: F.conv_transpose2d(x, w, b, (2, 3), 1, (1, 0), 2, (1, 2)),
        (f(2, 4, 5, 4), f(4, 3, 3, 3), f(6)),
    ),
    "transposed2d_output_padding_over_stride": (
        lambda F, x, w: F.conv_transpose2d(x, w, None, 1, 0, 2, 1, 3),
        (f(2, 3, 4, 4), f(3, 2, 2, 2)),
    ),
    "transposed3d": (lambda F, x, w: F.conv_transpose3d(x, w, stride=2), (f(1, 2, 2, 3, 2), f(2, 3, 2, 2, 3))),
    "unfold": (lambda F, x: F.unfold(x, (2, 3), 2, 1, 2), (f(2, 3, 9, 8),)),
    "fold": (lambda F, x: F.fold(x, (4, 5), (2, 2), 1, 1, 2), (f(2, 12, 9),)),
    "fold_unbatched": (lambda F, x: F.fold(x, (3, 3), 2), (f(8, 4),)),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients_are_torchs(name: str, compiled: bool) -> None:
    call, arrays = CALLS[name]
    assert_like_torch(call, *arrays, compiled=compiled)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    ("dtype", "call"),
    [
        *[(kind, lambda F, x, w: F.conv1d(x, w, padding=1)) for kind in ("uint8", "int16", "int32", "int64")],
        ("int64", lambda F, x, w: F.conv_transpose1d(x, w)),
    ],
)
def test_integers_wrap_around_as_in_torch(dtype: str, call: CallF, compiled: bool) -> None:
    x, w = (RNG.integers(0, 100, shape).astype(dtype) for shape in ((2, 3, 5), (3, 3, 2)))

    def run(x: Any, w: Any) -> Any:
        return call(dc.nn.functional, x, w)

    mine = (dc.compile(run) if compiled else run)(dc.tensor(x), dc.tensor(w)).numpy()
    want = call(torch.nn.functional, torch.tensor(x), torch.tensor(w)).numpy()
    assert mine.dtype == want.dtype
    np.testing.assert_array_equal(mine, want)


def test_second_gradients_are_torchs() -> None:
    arrays = [f(2, 2, 5, 5).astype(np.float64), f(3, 2, 3, 3).astype(np.float64)]

    def penalty(library: Any, make: Any) -> list[Any]:
        x, w = (make(a).requires_grad_() for a in arrays)
        out = (library.nn.functional.conv2d(x, w, None, 2, 1) ** 3).sum()
        first = library.autograd.grad(out, (x, w), create_graph=True)
        return [g.numpy() for g in library.autograd.grad(sum((g**2).sum() for g in first), (x, w))]

    for mine, want in zip(penalty(dc, dc.tensor), penalty(torch, torch.tensor)):
        np.testing.assert_allclose(mine, want, rtol=1e-9)


ERRORS: dict[str, tuple[CallF, type[Exception]]] = {
    "channels": (lambda F: F.conv2d(dc.ones(1, 3, 4, 4), dc.ones(2, 2, 3, 3)), ShapeError),
    "dims": (lambda F: F.conv2d(dc.ones(4, 4), dc.ones(2, 2, 3, 3)), ShapeError),
    "window": (lambda F: F.conv2d(dc.ones(1, 2, 2, 2), dc.ones(2, 2, 3, 3)), ShapeError),
    "same": (lambda F: F.conv1d(dc.ones(1, 2, 4), dc.ones(2, 2, 3), stride=2, padding="same"), ShapeError),
    "mode": (lambda F: F.conv1d(dc.ones(1, 2, 4), dc.ones(2, 2, 3), padding="full"), ShapeError),
    "ints": (lambda F: F.conv1d(dc.ones(1, 2, 4), dc.ones(2, 2, 3), stride=(1, 1)), ShapeError),
    "bias": (lambda F: F.conv1d(dc.ones(1, 2, 4), dc.ones(2, 2, 3), dc.ones(3)), ShapeError),
    "dtype": (lambda F: F.conv1d(dc.ones(1, 2, 4), dc.ones(2, 2, 3, dtype=dc.float64)), DTypeError),
    "output_padding": (lambda F: F.conv_transpose1d(dc.ones(1, 2, 4), dc.ones(2, 2, 3), output_padding=1), ShapeError),
    "bool": (lambda F: F.conv1d(dc.ones(1, 2, 4).bool(), dc.ones(2, 2, 3).bool()), DTypeError),
    "int32 transposed": (lambda F: F.conv_transpose1d(dc.ones(1, 2, 4).int(), dc.ones(2, 2, 3).int()), DTypeError),
    "fold": (lambda F: F.fold(dc.ones(1, 8, 3), (3, 3), 2), ShapeError),
    "groups": (lambda F: dc.nn.Conv2d(3, 4, 3, groups=2), ArgumentError),
    "padding_mode": (lambda F: dc.nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), ArgumentError),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_a_named_error(name: str) -> None:
    call, error = ERRORS[name]
    with pytest.raises(error):
        call(dc.nn.functional)


def test_windows_and_convolution_are_primitives_anyone_can_apply() -> None:
    """The window of a view is a view: element (i, k) is x[i*stride + k*dilation]."""
    x = np.arange(10.0)
    np.testing.assert_array_equal(prims.windows(x, (3,), (2,), (2,)), [[0, 2, 4], [2, 4, 6], [4, 6, 8]])
    assert prims.windows(x, (3,), (2,), (2,)).base is not None
    np.testing.assert_array_equal(prims.window_sum(x, (2,), (1,), (1,)), x[:-1] + x[1:])


def test_taps_that_never_lie_on_the_image_change_nothing() -> None:
    """Kernels larger than what they see, with margins, strides and gaps: results and both gradients are torch's."""
    draw = random.Random(0)
    met = 0
    for seed in range(300):
        rank, groups = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2])
        kernel, size = [[draw.choice(some) for _ in range(rank)] for some in ([1, 2, 3, 5, 7], [1, 1, 2, 3, 5])]
        stride, gaps = [[draw.choice([1, 1, 2, 3]) for _ in range(rank)] for _ in range(2)]
        padding = [draw.choice([0, 1, 2, 3, 4]) for _ in range(rank)]
        drawn = np.random.default_rng(seed)
        x, w = drawn.normal(size=(2, 2 * groups, *size)), drawn.normal(size=(2 * groups, 2, *kernel))
        seen = []
        for library in (torch, dc):
            a, b = library.tensor(x).requires_grad_(), library.tensor(w).requires_grad_()
            call = getattr(library.nn.functional, f"conv{rank}d")
            try:
                out = call(a, b, None, stride, padding, gaps, groups)
            except RuntimeError:
                seen.append(None)
                continue
            (out * out.detach().cos()).sum().backward()
            seen.append([value.detach().numpy() for value in (out, a.grad, b.grad)])
        assert (seen[0] is None) == (seen[1] is None), (kernel, size, stride, padding, gaps)
        for want, got in zip(*(found or () for found in seen), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-9)
            met += 1
    assert met > 200
