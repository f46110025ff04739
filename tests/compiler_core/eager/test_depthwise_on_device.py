"""Depthwise convolutions of 16-bit floats on a CUDA device, by kernels that the stand-in runs: numbers and gradients of
the composition in f64, whatever the sizes; which are left to cuDNN."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core.eager.device import depthwise as device_depthwise
from compiler_core.eager.device import orders as device_orders
from compiler_core.ops.whole import COMPOSITES
from tests.compiler_core.eager.test_whole_on_device import nvrtc_library
from tests.fake_cupy import on_fake_device

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
CASES: dict[str, tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]] = {
    "7x7": ((2, 10, 14, 15), (7, 7), {"low": (3, 3), "high": (3, 3)}),
    "3x3 at strides": ((3, 8, 9, 12), (3, 3), {"low": (1, 1), "high": (1, 1), "stride": (2, 2)}),
    "5x5 apart": ((2, 6, 13, 12), (5, 5), {"low": (4, 4), "high": (4, 4), "dilation": (2, 2)}),
    "without margins": ((2, 4, 8, 9), (2, 3), {}),
    "more margin than kernel": ((2, 4, 5, 6), (3, 3), {"low": (4, 3), "high": (3, 5)}),
    "strides of two kinds": ((2, 4, 11, 9), (3, 2), {"stride": (1, 3), "dilation": (2, 1), "high": (1, 2)}),
    "many channels": ((2, 130, 6, 5), (3, 3), {"low": (1, 1), "high": (1, 1)}),
    "many runs": ((16, 4, 40, 44), (3, 3), {"low": (1, 1), "high": (1, 1)}),
}


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


def there(array: Any, lies: str) -> Any:
    if lies == "rows":
        return cuda.put(array, 0)
    return device_orders.as_seen(cuda.put(np.ascontiguousarray(array.transpose(0, 2, 3, 1)), 0), (0, 2, 3, 1))


def near(made: Any, right: Any, dtype: Any) -> None:
    found, slack = cuda.fetch(made), {BF16: 2.0**-8, F16: 2.0**-11, F32: 1e-5}[dtype]
    assert (found.shape, found.dtype) == (right.shape, dtype)
    assert float(np.abs(found.astype(np.float64) - right).max()) <= slack * float(np.abs(right).max())


@pytest.mark.parametrize("lies", ["rows", "last"])
@pytest.mark.parametrize(
    ("name", "dtype"), [("convolution", BF16), ("convolution", F16), ("lowered_convolution", BF16)], ids=str
)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, name: str, dtype: Any, lies: str) -> None:
    rng, (shape, kernel, given) = np.random.default_rng(0), CASES[case]
    kind = F32 if name == "lowered_convolution" else dtype
    places = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "groups": shape[1], **given}
    x = rng.normal(size=shape).astype(dtype)
    w, b = rng.normal(size=(shape[1], 1, *kernel)).astype(kind), rng.normal(size=shape[1]).astype(kind)
    wide, composite = [a.astype(dtype).astype(np.float64) for a in (x, w, b)], COMPOSITES["convolution"]
    right = composite.compose(*wide, **places)
    g = rng.normal(size=right.shape).astype(dtype)
    slopes = composite.vjp(g.astype(np.float64), right, *wide, **places)
    arrays = [there(x, lies), cuda.put(w, 0), cuda.put(b, 0)]
    found = COMPOSITES[name].on_device()
    out, kept = found.forward(*arrays, **places)
    near(out, right, dtype)
    dx, dw, db = found.backward([True] * 3, there(g, lies), None, kept, *arrays, **places)
    near(dx, slopes[0], dtype)
    near(dw, slopes[1], kind)
    near(db, slopes[2], kind)
    assert device_orders.lies_last(out)
    assert device_orders.lies_last(dx)
    bare, _ = found.forward(*arrays[:2], None, **places)
    near(bare, composite.compose(*wide[:2], None, **places), dtype)


@pytest.mark.parametrize("stride", [1, 2])
def test_operands_that_start_anywhere(stride: int) -> None:
    places = {"stride": (stride,) * 2, "low": (1, 1), "high": (1, 1), "dilation": (1, 1), "groups": 4}
    rng, composite = np.random.default_rng(0), COMPOSITES["convolution"]

    def odd(*shape: int) -> tuple[Any, Any]:
        given = rng.normal(size=(math.prod(shape) + 1,)).astype(BF16)
        return given[1:].reshape(shape), cuda.put(given, 0)[1:].reshape(shape)

    last = (0, 3, 1, 2)
    (x, x_there), (w, w_there), (b, b_there) = odd(2, 7, 9, 4), odd(4, 1, 3, 3), odd(8)
    here = [a.astype(np.float64) for a in (x.transpose(last), w, b[::2])]
    operands = [x_there.transpose(last), w_there, b_there[::2]]
    right = composite.compose(*here, **places)
    n, c, p, q = right.shape
    g, g_there = odd(n, p, q, c)
    slopes = composite.vjp(g.transpose(last).astype(np.float64), right, *here, **places)
    found = composite.on_device()
    out, kept = found.forward(*operands, **places)
    near(out, right, BF16)
    for made, exact in zip(
        found.backward([True] * 3, g_there.transpose(last), None, kept, *operands, **places), slopes
    ):
        near(made, exact, BF16)


def test_what_is_not_finite_stays_where_it_was_read() -> None:
    import distcompile as torch

    def slope(place: str) -> Any:
        x = torch.ones(1, 2, 4, 9, dtype=torch.bfloat16)
        x[0, 0, 1, 8] = float("inf")
        weight = torch.ones(2, 1, 3, 3, dtype=torch.bfloat16).to(place).requires_grad_()
        torch.nn.functional.conv2d(x.to(place), weight, padding=1, groups=2).backward(
            torch.ones(1, 2, 4, 9).bfloat16().to(place)
        )
        return weight.grad.float().cpu().numpy()

    np.testing.assert_array_equal(slope("cuda"), slope("cpu"))


def test_what_is_left_to_cudnn() -> None:
    of = device_depthwise.depthwise_of
    places = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1)}
    assert of((2, 4, 8, 8), (4, 1, 3, 3), groups=4, **places) is not None
    assert of((2, 4, 8, 8), (8, 1, 3, 3), groups=4, **places) is None  # two results a channel
    assert of((2, 4, 8, 8), (4, 2, 3, 3), groups=2, **places) is None
    assert of((2, 3, 8, 8), (3, 1, 3, 3), groups=3, **places) is None  # an odd number of channels
    assert of((2, 4, 8, 99), (4, 1, 3, 40), groups=4, **places) is None
    assert of((0, 4, 8, 8), (4, 1, 3, 3), groups=4, **places) is None


def test_a_layer_is_trained() -> None:
    import distcompile as torch

    def step(place: str) -> list[Any]:
        torch.manual_seed(0)
        layer = torch.nn.Conv2d(6, 6, 3, padding=1, groups=6).to(place)
        x = torch.linspace(-2, 5, 2 * 6 * 7 * 7).reshape(2, 6, 7, 7).cos().to(place).requires_grad_()
        with torch.autocast(place, torch.bfloat16):
            out = layer(x)
        out.float().square().sum().backward()
        return [out, x.grad, layer.weight.grad, layer.bias.grad]

    for a, b in zip(step("cuda"), step("cpu"), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(a.detach().float().cpu().numpy(), b.detach().float().numpy(), rtol=3e-2, atol=3e-2)


def test_the_kernels_compile_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc, texts = nvrtc_library(), list[str]()
    monkeypatch.setattr(device_depthwise, "compiled", lambda dtype, name, text, probe: texts.append(text()))
    for shape, kernel, given in CASES.values():
        places = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "groups": shape[1], **given}
        of = device_depthwise.depthwise_of(shape, (shape[1], 1, *kernel), **places)
        assert of is not None
        for dtype in (BF16, F16):
            device_depthwise._kernels(of, dtype)
    for text in texts:
        program = ctypes.c_void_p()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0
