"""Batch norm on a CUDA device, by kernels that the stand-in runs: 16-bit floats beside parameters in f32, arrays
that lie with channels last, statistics that are read once a step; against the composition in f64."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core.eager.device import batch_norm as device_batch_norm
from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import orders as device_orders
from compiler_core.eager.device import several as device_several
from compiler_core.ops.registry import OPS, run_eager
from compiler_core.ops.whole import COMPOSITES
from tests.compiler_core.eager.test_whole_on_device import DTYPES, nvrtc_library
from tests.fake_cupy import on_fake_device

BF16, F16, F32, F64 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
SLACK = {BF16: 2.0**-7, F16: 2.0**-10, F32: 1e-5, F64: 1e-13}
EPS = {"eps": 1e-5}


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


def there(array: Any, lies: str) -> Any:
    """On the device: row-major, with channels last, or with gaps."""
    if lies == "last":
        moved = cuda.put(np.ascontiguousarray(np.moveaxis(array, 1, -1)), 0)
        return device_orders.as_seen(moved, device_orders.last(array.ndim))
    if lies == "gaps":
        return cuda.put(np.repeat(array, 2, 0), 0)[::2]
    return cuda.put(array, 0)


def exact(arrays: list[Any], g: Any, **attrs: Any) -> tuple[Any, Any]:
    """The composition's result and gradients, in f64."""
    wide = [None if a is None else a.astype(np.float64) for a in arrays]
    composite = COMPOSITES["batch_norm"]
    out = composite.compose(*wide, **attrs)
    return out, composite.vjp(g.astype(np.float64), out, *wide, **attrs)


def near(made: Any, right: Any, dtype: Any, slack: float) -> None:
    found = cuda.fetch(made)
    assert (found.shape, found.dtype) == (np.shape(right), dtype)
    scale = max(1.0, float(np.abs(right).max()))
    assert float(np.abs(found.astype(np.float64) - right).max()) <= slack * scale


SHAPES = [
    *((6, 16, 4, 8), (5, 3, 7, 7), (3, 24, 3, 3), (40, 300, 1, 1), (33, 16), (4, 8, 5), (2, 64, 40, 48)),
    (2, 2, 2, 2, 2),
]


@pytest.mark.parametrize("lies", ["rows", "last", "gaps"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
def test_values_and_gradients_in_either_order(dtype: Any, shape: Any, lies: str) -> None:
    rng = np.random.default_rng(len(shape))
    wide = F64 if dtype == F64 else F32
    x, g = (rng.normal(3, 2, shape).astype(dtype) for _ in range(2))
    w, b = (rng.normal(size=shape[1]).astype(wide) for _ in range(2))
    right, slopes = exact([x, None, None, w, b], g, **EPS)
    found = COMPOSITES["batch_norm"].on_device()
    arrays = [there(x, lies), None, None, cuda.put(w, 0), cuda.put(b, 0)]
    out, kept = found.forward(*arrays, **EPS)
    near(out, right, dtype, SLACK[dtype])
    for how in ("rows", "last"):
        dx, _, _, dw, db = found.backward([True, False, False, True, True], there(g, how), None, kept, *arrays, **EPS)
        near(dx, slopes[0], dtype, SLACK[dtype])
        near(dw, slopes[3], wide, 20 * SLACK[wide])
        near(db, slopes[4], wide, 20 * SLACK[wide])
        for made in (out, dx):
            assert device_orders.lies_last(made) == device_orders.lies_last(arrays[0])


@pytest.mark.parametrize("lies", ["rows", "last"])
def test_given_statistics(lies: str) -> None:
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=(4, 16, 3, 8)).astype(BF16) for _ in range(2))
    per_channel = [rng.uniform(0.5, 2, 16).astype(F32) for _ in range(4)]
    right, slopes = exact([x, *per_channel], g, **EPS)
    found = COMPOSITES["batch_norm"].on_device()
    arrays = [there(x, lies), *(cuda.put(p, 0) for p in per_channel)]
    out, kept = found.forward(*arrays, **EPS)
    near(out, right, BF16, SLACK[BF16])
    dx, *_, dw, db = found.backward([True, False, False, True, True], there(g, lies), None, kept, *arrays, **EPS)
    for made, slope, dtype in ((dx, slopes[0], BF16), (dw, slopes[3], F32), (db, slopes[4], F32)):
        near(made, slope, dtype, 20 * SLACK[dtype])


def test_a_channel_far_from_zero_with_one_number_far_off() -> None:
    """What sums of squares, or a mean told from one element, would lose."""
    rng = np.random.default_rng(1)
    x = rng.normal(1e4, 1, (8, 4, 16, 16))
    x[0, :, 0, 0] = 1e5
    x = x.astype(F32)
    wide = x.astype(np.float64)
    for lies in ("rows", "last"):
        k = device_batch_norm.channel_kernels(F32)
        mean, _, variance = cuda.fetch(device_batch_norm.statistics_of(k, there(x, lies)))
        np.testing.assert_allclose(mean, wide.mean((0, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(variance, wide.var((0, 2, 3)), rtol=1e-4)


def test_parameters_of_other_dtypes_are_composed() -> None:
    x, w = cuda.put(np.ones((2, 3), F32), 0), cuda.put(np.ones(3, F64), 0)
    found = COMPOSITES["batch_norm"].on_device()
    assert found.forward(x, None, None, w, None, **EPS) is None
    assert found.forward(x, None, None, cuda.put(np.ones(4, F32), 0), None, **EPS) is None


@pytest.mark.parametrize("frozen", [False, True])
def test_a_step_under_autocast_reads_x_for_its_statistics_once(frozen: bool, asked: list[str]) -> None:
    import distcompile as torch

    def step(place: str) -> list[Any]:
        torch.manual_seed(0)
        norm = torch.nn.BatchNorm2d(8, device=place)
        x = torch.linspace(-1, 3, 8 * 6 * 30).reshape(6, 8, 5, 6).sin().to(place).requires_grad_(not frozen)
        with torch.autocast(place, torch.bfloat16), torch.set_grad_enabled(not frozen):
            out = norm(x.to(torch.bfloat16))
        if not frozen:
            out.float().square().sum().backward()
        grads = [] if frozen else [x.grad, norm.weight.grad, norm.bias.grad]
        with torch.no_grad():
            seen = norm.eval()(x.to(torch.bfloat16))
        return [out, norm.running_mean, norm.running_var, seen, *grads]

    step("cuda")  # proofs
    asked.clear()
    ours, theirs = step("cuda"), step("cpu")
    assert asked.count("channel_parts") == (2 if frozen else 1)
    assert asked.count("channel_moved") == 1
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(a.detach().float().cpu().numpy(), b.detach().float().numpy(), rtol=2e-2, atol=2e-2)


def test_what_hooks_packed_is_not_taken_for_statistics() -> None:
    import distcompile as torch

    norm = torch.nn.BatchNorm1d(3, device="cuda")
    x = torch.randn(5, 3, device="cuda").requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda()):
        out = norm(x)
    assert device_several.kept_by("batch_norm", out) is None
    assert device_several.kept_by("batch_norm", x) is None
    np.testing.assert_allclose(norm.running_mean.cpu().numpy(), 0.1 * x.detach().cpu().numpy().mean(0), rtol=1e-4)


def test_orders() -> None:
    xp = cuda.module()
    x = xp.empty((2, 3, 4, 5), np.float32)
    assert device_orders.order_of(x) == (0, 1, 2, 3)
    assert device_orders.order_of(x.transpose(0, 3, 1, 2)) == (0, 2, 3, 1)
    assert device_orders.order_of(x[:, :2]) is None
    assert device_orders.order_of(xp.broadcast_to(x[:1], (6, 3, 4, 5))) is None
    assert device_orders.order_of(x[:1].transpose(0, 3, 1, 2)) == (0, 2, 3, 1)
    assert device_orders.lies_last(x.transpose(0, 3, 1, 2))
    assert not device_orders.lies_last(x)
    assert not device_orders.lies_last(xp.empty((2, 4, 5, 1), np.float32).transpose(0, 3, 1, 2))
    made = device_orders.empty_in((0, 2, 3, 1), (2, 3, 4, 5), np.float32)
    assert made.shape == (2, 3, 4, 5)
    assert device_orders.order_of(made) == (0, 2, 3, 1)


def test_the_kernels_compile_for_devices() -> None:
    nvrtc = nvrtc_library()
    for dtype, file in itertools.product(DTYPES, (device_batch_norm.FILE, device_orders.FILE)):
        program, text = ctypes.c_void_p(), device_kernels.source(dtype, file).encode()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_works_by_element_lies_as_its_operand(dtype: Any, asked: list[str]) -> None:
    rng = np.random.default_rng(2)
    for shape in ((3, 16, 5, 7), (3, 5, 3, 3)):
        x, g = (rng.normal(size=shape).astype(dtype) for _ in range(2))
        for name, attrs in (("relu", {}), ("gelu", {}), ("silu", {})):
            found = COMPOSITES[name].on_device()
            wide = x.astype(np.float64)
            right = COMPOSITES[name].compose(wide, **attrs)
            (slope,) = COMPOSITES[name].vjp(g.astype(np.float64), right, wide, **attrs)
            for lies in ("rows", "last", "gaps"):
                given = there(x, lies)
                out, kept = found.forward(given, **attrs)
                near(out, right, dtype, SLACK[dtype])
                for how in ("rows", "last"):
                    (dx,) = found.backward([True], there(g, how), out, kept, given, **attrs)
                    near(dx, slope, dtype, 2 * SLACK[dtype])
                    assert device_orders.lies_last(out) == device_orders.lies_last(dx) == (lies == "last")
    assert {"forward", "backward"} <= set(asked)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_are_laid_out_anew(dtype: Any, asked: list[str]) -> None:
    rng = np.random.default_rng(3)
    plain, channels_last = (0, 1, 2, 3), device_orders.last(4)
    for shape in ((3, 40, 5, 17), (2, 5, 40, 8), (1, 33, 32, 3)):
        x = rng.normal(size=shape).astype(dtype)
        turned = device_orders.as_it_lies(there(x, "rows"), channels_last)
        assert cuda.fetch(turned).tobytes() == np.ascontiguousarray(x.transpose(channels_last)).tobytes()
        assert turned.flags.c_contiguous
        back = device_orders.as_it_lies(device_orders.as_seen(turned, channels_last), plain)
        assert cuda.fetch(back).tobytes() == x.tobytes()
        assert (
            cuda.fetch(device_orders.as_it_lies(there(x, "last"), channels_last)).tobytes()
            == cuda.fetch(turned).tobytes()
        )
        wide = device_orders.laid(there(x, "last"), plain, np.dtype(np.float32))
        assert cuda.fetch(wide).tobytes() == x.astype(np.float32).tobytes()
        narrow = device_orders.laid(there(x.astype(np.float32), "rows"), channels_last, dtype)
        assert (
            cuda.fetch(narrow).tobytes()
            == np.ascontiguousarray(x.astype(np.float32).astype(dtype).transpose(channels_last)).tobytes()
        )
    assert "turn" in asked
    assert ("turn_wide" in asked) == ("turn_narrow" in asked) == (dtype.itemsize == 2)


def test_sums_of_f32_and_16_bit_floats_lie_as_the_latter() -> None:
    rng = np.random.default_rng(4)
    found = COMPOSITES["widened_sum"].on_device()
    wide, narrow = rng.normal(size=(3, 16, 5, 7)).astype(F32), rng.normal(size=(3, 16, 5, 7)).astype(BF16)
    for lies, how in itertools.product(("rows", "last", "gaps"), ("rows", "last")):
        out, _ = found.forward(there(wide, lies), there(narrow, how))
        assert cuda.fetch(out).tobytes() == (wide + narrow.astype(F32)).tobytes()
        assert device_orders.lies_last(out) == (how == "last")


def test_what_cupy_computes_of_many_elements_is_laid_out_first(asked: list[str]) -> None:
    rng = np.random.default_rng(6)
    for shape, op, attrs in (
        ((4, 16, 40, 48), "window_max", {"kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1)}),
        ((4, 16, 8, 8), "window_max", {"kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1)}),
        ((4, 16, 40, 48), "permute", {"dims": (0, 2, 3, 1)}),
    ):
        x = rng.normal(size=shape).astype(F32)
        asked.clear()
        found = run_eager(OPS[op], [there(x, "last")], attrs)
        np.testing.assert_array_equal(cuda.fetch(found), OPS[op].eager(np, x, **attrs))
        assert ("turn" in asked) == (op == "window_max" and x.size > 1 << 16)


def test_a_number_keeps_the_order_and_dropout_draws_by_elements() -> None:
    rng = np.random.default_rng(7)
    x, key = rng.normal(size=(3, 16, 5, 7)).astype(BF16), np.array([5, 6, 1], np.uint64)
    found = COMPOSITES["with_number"].on_device()
    for lies, how in itertools.product(("rows", "last"), ("rows", "last")):
        out, kept = found.forward(there(x, lies), op="mul", number=0.3)
        (dx,) = found.backward([True], there(x, how), None, kept, there(x, lies), op="mul", number=0.3)
        right = (x.astype(F32) * F32.type(0.3)).astype(BF16).tobytes()
        assert cuda.fetch(out).tobytes() == cuda.fetch(dx).tobytes() == right
        assert (device_orders.lies_last(out), device_orders.lies_last(dx)) == (lies == "last", how == "last")
    drops = COMPOSITES["dropout"].on_device()
    results = []
    for lies in ("rows", "last"):
        out, kept = drops.forward(there(x, lies), key, p=0.4, stream=2)
        dx, _ = drops.backward([True, False], there(x, lies), None, kept, there(x, lies), key, p=0.4, stream=2)
        results.append([cuda.fetch(out).tobytes(), cuda.fetch(dx).tobytes()])
    assert results[0] == results[1]


def test_a_norm_counts_its_batches_as_on_the_cpu() -> None:
    """The count, the running statistics and their versions; a count that is a view, or wanted elsewhere, is one too."""
    import distcompile as torch

    states = []
    for place in ("cpu", "cuda"):
        norm = torch.nn.BatchNorm2d(3).to(place)
        x = torch.linspace(-1, 2, 2 * 3 * 4 * 4, device=place).reshape(2, 3, 4, 4)
        held, mean = norm.num_batches_tracked.detach(), norm.running_mean.detach()
        before = held._version, mean._version  # a move makes new tensors
        for _ in range(3):
            norm(x)
        counts = torch.zeros(2, dtype=torch.int64, device=place)
        norm.register_buffer("num_batches_tracked", counts[1])
        norm(x)
        numbers = [held.item(), counts.tolist(), held._version - before[0], counts._version, mean._version - before[1]]
        states.append((numbers, norm.running_mean.cpu().numpy(), norm.running_var.cpu().numpy()))
    assert states[0][0] == states[1][0]
    for ours, theirs in zip(states[0][1:], states[1][1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
