"""Pooling on a CUDA device by kernels that the stand-in runs: the composition's numbers and gradients of maxima and
averages, with padding, ceil_mode, dilation and divisors, in either order of memory; NaN and ties; wrong kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import proof as device_proof
from compiler_core.log import DistCompileWarning
from compiler_core.ops.pooling import adaptive
from compiler_core.ops.pooling import composite as F
from compiler_core.tensor.autograd.tape import WholeNode
from compiler_core.tensor.making.creation import tensor
from tests.compiler_core.eager.test_whole_on_device import nvrtc_library
from tests.fake_cupy import on_fake_device

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
SLACK = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 1e-2}
MAXIMA: list[tuple[Any, dict[str, Any]]] = [
    ((2, 3, 7, 6), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((2, 16, 9, 8), {"kernel_size": (2, 3), "stride": (3, 1), "padding": (1, 0), "ceil_mode": True}),
    ((1, 8, 10, 11), {"kernel_size": 2, "dilation": (3, 2), "padding": 1, "stride": 1}),
    ((8, 10, 11), {"kernel_size": 2}),
    ((1, 1, 1, 3), {"kernel_size": 2, "dilation": 3, "padding": 2}),  # a window of nothing but padding
]
AVERAGES: list[tuple[Any, dict[str, Any]]] = [
    ((2, 3, 7, 6), {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False}),
    ((2, 16, 9, 8), {"kernel_size": (2, 3), "stride": (3, 2), "padding": (1, 1), "ceil_mode": True}),
    ((2, 8, 9, 8), {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False}),
    ((8, 10, 12), {"kernel_size": 2, "divisor_override": 3}),
]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


def leaf(x: Any, lies: str, where: str) -> Any:
    """x as a leaf there, with channels last in memory if it says so."""
    made = tensor(x, device=where)
    if lies == "last" and x.ndim == 4:
        made = tensor(np.moveaxis(x, 1, -1).copy(), device=where).permute(0, 3, 1, 2)
    return made.detach().requires_grad_()


def both(function: Any, x: Any, lies: str, how: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    """(result, x's gradient, whether it was computed whole) on the CPU and on the device."""
    made = []
    for where in ("cpu", "cuda:1"):
        given = leaf(x, lies, where)
        out = function(given, **how)
        slope = np.random.default_rng(2).integers(-4, 5, tuple(out.shape)).astype(x.dtype)
        out.backward(tensor(slope, device=where))
        made.append((out.detach().cpu(), given.grad.cpu(), isinstance(out._node, WholeNode)))
    return made


def same(function: Any, x: Any, lies: str, how: dict[str, Any]) -> None:
    (out, slope, _), (found, grad, is_whole) = both(function, x, lies, how)
    for a, b in ((found, out), (grad, slope)):
        assert (tuple(a.shape), a.dtype) == (tuple(b.shape), b.dtype)
        slack = SLACK[x.dtype.name]
        np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), rtol=slack, atol=slack * 8)
    assert is_whole or x.ndim == 3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lies", ["first", "last"])
@pytest.mark.parametrize(("shape", "how"), MAXIMA, ids=str)
def test_maxima(shape: Any, how: dict[str, Any], lies: str, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(-3, 4, shape).astype(dtype)  # with ties
    same(F.max_pool2d, x, lies, how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lies", ["first", "last"])
@pytest.mark.parametrize(("shape", "how"), AVERAGES, ids=str)
def test_averages(shape: Any, how: dict[str, Any], lies: str, dtype: Any) -> None:
    same(F.avg_pool2d, np.random.default_rng(1).normal(size=shape).astype(dtype), lies, how)


def test_one_dim_and_adaptive_sizes() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 12)).astype(np.float32)
    same(F.avg_pool1d, x, "first", {"kernel_size": 4, "stride": 3, "padding": 2})
    same(F.max_pool1d, x, "first", {"kernel_size": 4, "stride": 3, "padding": 2})
    same(adaptive.adaptive_avg_pool2d, x.reshape(2, 3, 4, 3)[:, :, :, :2].copy(), "first", {"output_size": (2, 1)})


@pytest.mark.parametrize("lies", ["first", "last"])
def test_nan_and_infinities(lies: str) -> None:
    x = np.random.default_rng(0).integers(0, 3, (2, 4, 9, 10)).astype(np.float32)
    x[0, 0, :, :4], x[0, 1, 3:5], x[1, 2].flat[::7], x[1, 3] = -np.inf, np.inf, np.nan, -np.inf
    for how in ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": (2, 3), "stride": 1}):
        (out, slope, _), (found, grad, _) = both(F.max_pool2d, x, lies, how)
        np.testing.assert_array_equal(found.numpy(), out.numpy())
        np.testing.assert_array_equal(grad.numpy(), slope.numpy())


def test_one_launch_each_way(asked: list[str]) -> None:
    x = tensor(np.ones((2, 8, 6, 6), np.float32), device="cuda").requires_grad_()
    for function, name in ((F.max_pool2d, "maxima"), (F.avg_pool2d, "averages")):
        for _ in range(2):  # the proof is behind us the second time
            asked.clear()
            out = function(x, 3, 2, 1)
            out.backward(out.detach())
        others = ["join", "join_any"]  # the second gradient is added to the first, which is proved once
        assert [kernel for kernel in asked if kernel not in others] == [name, f"{name}_backward"]


def test_what_is_left_to_others(asked: list[str]) -> None:
    x = tensor(np.arange(2.0 * 300).reshape(1, 2, 300), device="cuda").float()
    assert F.max_pool1d(x, 256).shape == (1, 2, 1)  # places of more than a byte
    deep = tensor(np.ones((1, 2, 4, 4, 4), np.float32), device="cuda")
    assert F.max_pool3d(deep, 2).shape == (1, 2, 2, 2, 2)
    whole = tensor(np.arange(16).reshape(1, 1, 4, 4), device="cuda")
    assert F.avg_pool2d(whole, 2).tolist() == [[[[2, 4], [10, 12]]]]
    assert not {"maxima", "averages"} & set(asked) or asked.count("maxima") <= 5  # the proof's


@pytest.mark.parametrize(("old", "new", "function"), [
    ("given[k] > best[k]", "given[k] < best[k]", F.max_pool2d), ("kh * KW + kw) total", "kh + kw) total", F.max_pool2d),
    ("total[k] /= by", "total[k] /= KH", F.avg_pool2d), ("given[k] / by", "given[k]", F.avg_pool2d),
    ("if (!padded)", "if (padded)", F.avg_pool2d), ("p * SH != down", "false", F.max_pool2d),
])  # fmt: skip
def test_a_kernel_that_is_wrong_is_not_used(old: str, new: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = device_kernels.source
    assert old in right(DTYPES[0], "pools.cu")
    monkeypatch.setattr(device_kernels, "source", lambda dtype, file="": right(dtype, file).replace(old, new))
    monkeypatch.setattr(device_kernels, "_modules", {})
    x = tensor(np.ones((2, 4, 4, 4), np.float32), device="cuda").requires_grad_()
    with pytest.warns(DistCompileWarning, match="op by op"):
        out = function(x, 2)
    assert not isinstance(out._node, WholeNode)
    assert out.tolist() == np.ones((2, 4, 2, 2)).tolist()


def test_the_kernels_compile_for_devices() -> None:
    """By NVRTC, as CuPy compiles them; it needs no device."""
    nvrtc = nvrtc_library()
    for dtype in DTYPES:
        program, text = ctypes.c_void_p(), device_kernels.source(dtype, "pools.cu").encode()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0
