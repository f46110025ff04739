"""Group norm on a CUDA device by kernels that the stand-in runs: the composition's numbers in whatever order x lies,
parts of groups that several blocks share, parameters in float32 beside 16-bit floats, and kernels that are wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import proof as device_proof
from compiler_core.log import DistCompileWarning
from compiler_core.ops.whole import COMPOSITES
from tests.compiler_core.eager.test_whole_on_device import nvrtc_library
from tests.fake_cupy import on_fake_device

BF16, F16, F32, F64 = (np.dtype(t) for t in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64))
SLACK = {BF16: 3e-2, F16: 4e-3, F32: 2e-5, F64: 1e-12}
EPS = 1e-5


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


def there(x: Any, lies: str = "first") -> Any:
    """x on the device: channels first, last, or behind a gap."""
    if lies == "last":
        return cuda.put(np.moveaxis(x, 1, -1).copy(), 0).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    return cuda.put(np.repeat(x, 2, -1), 0)[..., ::2] if lies == "gaps" else cuda.put(x, 0)


def expected(x: Any, g: Any, w: Any, b: Any, groups: int) -> tuple[Any, ...]:
    """(result, gradients of x, w and b) in f64."""
    x, g, w, b = (a.astype(np.float64) for a in (x, g, w, b))
    rows, per = x.reshape(x.shape[0], groups, -1), (1, -1) + (1,) * (x.ndim - 2)
    scale = 1 / np.sqrt(rows.var(2, keepdims=True) + EPS)
    norm = ((rows - rows.mean(2, keepdims=True)) * scale).reshape(x.shape)
    inner = (g * w.reshape(per)).reshape(rows.shape)
    flat = norm.reshape(rows.shape)
    dx = (inner - inner.mean(2, keepdims=True) - flat * (inner * flat).mean(2, keepdims=True)) * scale
    others = (0, *range(2, x.ndim))
    return norm * w.reshape(per) + b.reshape(per), dx.reshape(x.shape), (g * norm).sum(others), g.sum(others)


CASES = [
    ((3, 16, 24, 40), 1), ((3, 16, 24, 40), 4), ((2, 6, 5, 7), 3), ((2, 6, 5, 7), 1), ((1, 3, 100, 101), 1),
    ((4, 12), 3), ((4, 8), 1), ((2, 8, 6), 8), ((1, 1, 9000), 1), ((2, 64, 3), 1), ((1, 2, 40000), 2),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
@pytest.mark.parametrize("lies", ["first", "last", "gaps"])
@pytest.mark.parametrize(("shape", "groups"), CASES, ids=str)
def test_numbers_and_gradients(shape: Any, groups: int, lies: str, dtype: Any, asked: list[str]) -> None:
    rng = np.random.default_rng(1)
    x, g = (rng.normal(0.5, size=shape).astype(dtype) for _ in range(2))
    w, b = (rng.normal(size=shape[1]).astype(F32 if dtype == BF16 else dtype) for _ in range(2))
    given, found = [there(x, lies), there(w), there(b)], COMPOSITES["group_norm"].on_device()
    assert found is not None
    made = found.forward(*given, groups=groups, eps=EPS)
    assert made is not None
    out, kept = made
    asked.clear()
    grads = found.backward([True] * 3, there(g, lies), None, kept, *given, groups=groups, eps=EPS)
    assert "group_backward" in asked
    assert len(asked) <= 6
    assert (out.strides == given[0].strides) or not (lies == "last" and groups == 1 < shape[1])
    for one, right, of in zip((out, *grads), expected(x, g, w, b, groups), (x, x, w, b), strict=True):
        assert (one.shape, one.dtype) == (of.shape, of.dtype)
        slack = SLACK[F32 if of.dtype == F32 and dtype == BF16 else dtype] * max(1.0, np.abs(right).max())
        np.testing.assert_allclose(cuda.fetch(one).astype(np.float64), right, atol=slack, rtol=0)


def test_a_mean_that_is_far_off_costs_no_digits() -> None:
    x = (np.random.default_rng(0).normal(size=(2, 4, 9000)) + np.linspace(1000, 1004, 9000)).astype(F32)
    found = COMPOSITES["group_norm"].on_device()
    assert found is not None
    made = found.forward(there(x), None, None, groups=1, eps=EPS)
    assert made is not None
    ones = np.ones(4)
    right, *_ = expected(x, x, ones, 0 * ones, 1)
    np.testing.assert_allclose(cuda.fetch(made[0]), right, atol=2e-3)


def test_what_is_wanted_alone_is_computed(asked: list[str]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 4, 30)).astype(F32)
    found, ones = COMPOSITES["group_norm"].on_device(), np.ones(4, F32)
    assert found is not None
    operands, how = [there(x), there(ones), there(ones)], {"groups": 2, "eps": EPS}
    made = found.forward(*operands, **how)
    assert made is not None
    for needs, launches in ((True, False, False), 2), ((False, False, True), 2):
        asked.clear()
        grads = found.backward(needs, there(x), None, made[1], *operands, **how)
        assert [one is not None for one in grads] == list(needs)
        assert len(asked) == launches
    assert found.forward(there(x), there(np.ones(4, F64)), None, **how) is None
    assert found.forward(there(x[:0]), None, None, **how) is None


@pytest.mark.parametrize(("old", "new"), [
    ("SUM(count * own)", "SUM(own)"), ("scale * along) * scale", "scale * along)"),
    ("i % channels", "i / channels"), ("planes * splits + piece", "piece"), ("which * all + group", "which * all + 0"),
])  # fmt: skip
def test_a_kernel_that_is_wrong_is_not_used(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = device_kernels.source
    assert old in right(F32, "groups.cu")
    monkeypatch.setattr(device_kernels, "source", lambda dtype, file="": right(dtype, file).replace(old, new))
    monkeypatch.setattr(device_kernels, "_modules", {})
    found = COMPOSITES["group_norm"].on_device()
    assert found is not None
    with pytest.warns(DistCompileWarning, match="op by op"):
        assert found.forward(there(np.ones((2, 4, 3), F32)), None, None, groups=1, eps=EPS) is None


def test_the_kernels_compile_for_devices() -> None:
    """By NVRTC, as CuPy compiles them; it needs no device."""
    nvrtc = nvrtc_library()
    for dtype in (BF16, F16, F32, F64):
        program, text = ctypes.c_void_p(), device_kernels.source(dtype, "groups.cu").encode()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0
