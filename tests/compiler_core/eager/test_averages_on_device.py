"""Means of 16-bit floats on a CUDA device by kernels that the stand-in runs, which read elements once: float64's
numbers rounded once, gradients, gradients of gradients, in any order of memory; what is kept to the composition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distcompile as dc
from compiler_core.eager.device import proof as device_proof
from compiler_core.tensor.autograd.tape import WholeNode
from distcompile.nn import functional as F
from tests.fake_cupy import on_fake_device

NARROW = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16)]
SLACK = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 1e-6, "float64": 1e-14}  # half a unit of the last digit
FORMS = ["rows", "last", "every second", "backwards", "repeated"]
CASES: list[tuple[tuple[int, ...], Any, bool]] = [
    ((3, 8, 5, 7), (2, 3), True),
    ((2, 72, 14, 14), (2, 3), True),
    ((2, 16, 40, 50), (-1, -2), False),
    ((3, 8, 5, 7), (0, 2, 3), False),
    ((3, 8, 5, 7), 1, True),
    ((3, 8, 5, 7), (0, 3), False),
    ((3, 8, 5, 7), None, False),
    ((1, 8, 1, 1), (2, 3), True),
]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


def lying(x: np.ndarray, form: str, where: str) -> Any:
    """x, lying in that way, as a tensor of its own; repeated: of its first row."""
    if form == "last" and x.ndim == 4:
        return dc.tensor(np.moveaxis(x, 1, -1).copy(), device=where).permute(0, 3, 1, 2)
    if form == "every second":
        return dc.tensor(np.repeat(x, 2, axis=-1), device=where)[..., ::2]
    if form == "backwards":
        return dc.tensor(x.transpose().copy(), device=where).permute(*range(x.ndim)[::-1])
    if form == "repeated":
        return dc.tensor(x[..., :1].copy(), device=where).expand(*x.shape)
    return dc.tensor(x, device=where)


def exact(x: np.ndarray, form: str) -> np.ndarray:
    return np.broadcast_to(x[..., :1], x.shape).astype(np.float64) if form == "repeated" else x.astype(np.float64)


def near(made: Any, right: np.ndarray, dtype: Any, slack: float = 1.0) -> None:
    found = made.detach().cpu().double().numpy()
    assert (found.shape, str(made.dtype).split(".")[-1]) == (right.shape, dtype.name)
    np.testing.assert_allclose(found, right, rtol=slack * SLACK[dtype.name], atol=slack * 1e-6)


@pytest.mark.parametrize("where", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "dims", "keepdim"), CASES, ids=str)
def test_values_and_gradients(shape: Any, dims: Any, keepdim: bool, form: str, dtype: Any, where: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) + 3).astype(dtype)
    right = exact(x, form).mean(axis=dims, keepdims=keepdim)
    slope = rng.normal(size=np.shape(right)).astype(dtype)
    count = x.size // max(right.size, 1)
    for _ in range(3):  # in full, noted, made again
        given = lying(x, form, where).detach().requires_grad_()
        out = given.mean(dim=dims, keepdim=keepdim)
        assert isinstance(out._node, WholeNode) == (form != "repeated" and count > 1)
        near(out, np.asarray(right), dtype)
        out.backward(dc.tensor(slope, device=where))
        axes = () if keepdim else tuple(range(len(shape))) if dims is None else tuple(np.atleast_1d(dims))
        wide = np.expand_dims(slope.astype(np.float64) / count, axes)
        near(given.grad, np.broadcast_to(wide, shape), dtype)


def test_a_gradient_that_repeats_is_memory_of_its_own_in_a_leaf() -> None:
    x = dc.ones(2, 3, 4, 4, dtype=dc.bfloat16, device="cuda", requires_grad=True)
    x.mean((2, 3)).sum().backward()
    x.grad[0, 0, 0, 0] += 1
    assert x.grad.float().sum().item() == 6 + 1
    x.mean((2, 3)).sum().backward()
    assert x.grad.float().sum().item() == 12 + 1


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_what_repeats_is_added_to_what_another_use_gives(dtype: Any) -> None:
    """Squeeze and excite: x is scaled by a function of its means; in either order of memory."""
    rng = np.random.default_rng(1)
    x, g = (rng.normal(size=(2, 8, 6, 6)).astype(dtype) for _ in range(2))
    found = []
    for where, form in (("cpu", "rows"), ("cuda", "rows"), ("cuda", "last"), ("cuda:1", "last")):
        given = lying(x, form, where).detach().requires_grad_()
        squeezed = F.adaptive_avg_pool2d(given, 1)
        (given * dc.sigmoid(squeezed) + given.mean((2, 3), keepdim=True)).backward(lying(g, form, where))
        found.append(given.grad.cpu().double().numpy())
    wide = dc.tensor(x.astype(np.float64)).requires_grad_()
    (wide * dc.sigmoid(wide.mean((2, 3), keepdim=True)) + wide.mean((2, 3), keepdim=True)).backward(
        dc.tensor(g.astype(np.float64))
    )
    for one in found:
        np.testing.assert_allclose(one, wide.grad.numpy(), rtol=0, atol=8 * SLACK[dtype.name])


@pytest.mark.parametrize("form", ["rows", "last"])
def test_gradients_of_gradients(form: str) -> None:
    x = np.random.default_rng(2).normal(size=(2, 4, 3, 3)).astype(ml_dtypes.bfloat16)
    given = lying(x, form, "cuda").detach().requires_grad_()
    (slope,) = dc.autograd.grad(given.mean((2, 3)).square().sum(), given, create_graph=True)
    slope.float().sum().backward()
    near(given.grad, np.full(x.shape, 2 / 9), x.dtype, 4)


def test_there_may_be_a_second_backward() -> None:
    """As in torch: what a mean saves are sizes."""
    given = dc.ones(2, 3, 4, 4, dtype=dc.bfloat16, device="cuda", requires_grad=True)
    mean = given.mean((2, 3))
    assert type(mean.grad_fn).__name__ == "MeanBackward1"
    assert type(given.mean().grad_fn).__name__ == "MeanBackward0"
    total = mean.sum()
    total.backward()
    total.backward()
    assert given.grad.float().sum().item() == 12


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4), (2, 0, 4, 4)])
def test_zero_elements(shape: tuple[int, ...]) -> None:
    given = dc.ones(*shape, dtype=dc.bfloat16, device="cuda", requires_grad=True)
    out = given.mean((2, 3), keepdim=True)
    assert tuple(out.shape) == (*shape[:2], 1, 1)
    assert bool(out.isnan().all()) == (0 in shape[2:] or not out.numel())
    out.sum().backward()
    assert tuple(given.grad.shape) == shape


def test_sums_are_added_and_divided_in_float32() -> None:
    """Beyond what 16 bits hold, and where each addition would be rounded away."""
    large = dc.full((1, 1, 64, 64), 60000.0, dtype=dc.float16, device="cuda")
    assert large.mean((2, 3)).item() == 60000
    many = dc.full((3, 4096), 1.0, dtype=dc.bfloat16, device="cuda")
    many[:, 0] = 257 * 16
    assert many.mean(1).tolist() == [2.0] * 3
    assert dc.full((4,), float("inf"), dtype=dc.bfloat16, device="cuda").mean().item() == float("inf")


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_pool_of_one_lies_as_images_do(where: str) -> None:
    for last in (False, True):
        x = dc.ones(2, 8, 4, 4, dtype=dc.bfloat16, device=where)
        x = x.to(memory_format=dc.channels_last) if last else x
        for _ in range(3):
            assert F.adaptive_avg_pool2d(x, 1).stride() == ((8, 1, 8, 8) if last else (8, 1, 1, 1))
            assert F.adaptive_avg_pool2d(x[0], (1, 1)).shape == (8, 1, 1)
            assert x.mean((2, 3), keepdim=True).stride() == (8, 1, 1, 1)


def test_a_mean_of_16_bit_floats_is_a_launch_or_two(asked: list[str]) -> None:
    """Of an image's channels: parts, and their sum, divided and rounded; back, a number a channel, divided."""
    given = lying(np.ones((2, 64, 28, 28), ml_dtypes.bfloat16), "last", "cuda").detach().requires_grad_()
    for pool in (lambda: given.mean((2, 3), keepdim=True), lambda: F.adaptive_avg_pool2d(given, 1)):
        pool().backward(dc.ones(2, 64, 1, 1, dtype=dc.bfloat16, device="cuda"))  # which proves them
        asked.clear()
        out = pool()
        assert asked == ["sum_down", "add_down"]
        asked.clear()
        dc.autograd.grad(out, given, dc.ones(2, 64, 1, 1, dtype=dc.bfloat16, device="cuda"))
        assert asked == ["join"]
