"""Sums of floats on a CUDA device by kernels that the stand-in runs: the numbers of the op's own rule, over whatever
dims, in whatever order the elements lie; the same bits at every call; and that kernels that are wrong are not used."""

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
from compiler_core.eager.device import sums as device_sums
from compiler_core.log import DistCompileWarning
from compiler_core.ops.registry import OPS, run_eager
from tests.compiler_core.eager.test_whole_on_device import nvrtc_library
from tests.fake_cupy import on_fake_device

BF16, F16, F32, F64 = (np.dtype(t) for t in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64))
UNIT = {BF16: 2.0**-8, F16: 2.0**-11, F32: 2.0**-23, F64: 2.0**-52}


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


def is_near(found: Any, x: Any, dims: Any) -> bool:
    """Whether this is the sum up to rounding."""
    wide = x.astype(np.float64)
    expected, scale = wide.sum(dims), np.abs(wide).sum(dims)
    slack = UNIT[found.dtype] * np.abs(expected) + 1e-6 * scale if x.dtype != F64 else 1e-14 * scale
    return bool((np.abs(found.astype(np.float64) - expected) <= slack).all())


CASES = [
    ((1000, 24), (0,), "sum_down"), ((5000, 8), (0,), "add_down"), ((3, 50, 264), (0, 1), "sum_down"),
    ((1, 8), (0,), ""), ((1000, 9), (0,), "sum_down"), ((6, 8), (1,), "sum_along"), ((6, 8), (0, 1), "sum_along"),
    ((4, 6, 8), (0, 2), "add_around"), ((16, 6, 9), (0, 2), "add_around"), ((2, 3, 1030), (0, 2), "add_around"),
    ((9, 3, 1032), (0, 2), "sum_along"), ((9, 8, 513), (0, 2), "sum_down"), ((4, 6, 8), (1,), "sum_down"),
    ((3, 9000), (1,), "add_around"), ((9001,), (0,), "add_around"), ((2, 1, 3, 4, 1), (1, 2), "sum_down"),
    ((4, 8), (), ""), ((0, 8), (0,), ""), ((2, 3, 4, 5), (0, 2), ""), ((4, 1, 3), (1,), ""),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64], ids=str)
@pytest.mark.parametrize(("shape", "dims", "kernel"), CASES, ids=str)
def test_the_rules_numbers(shape: Any, dims: Any, kernel: str, dtype: Any, asked: list[str]) -> None:
    x = np.random.default_rng(2).normal(size=shape).astype(dtype)
    there = cuda.put(x, 0)
    run_eager(OPS["sum"], [there], {"dims": dims})
    asked.clear()
    found = cuda.fetch(run_eager(OPS["sum"], [there], {"dims": dims}))
    assert (found.shape, found.dtype) == (x.astype(np.float64).sum(dims).shape, dtype)
    assert is_near(found, x, dims)
    assert (kernel in asked) if kernel else not asked
    assert found.tobytes() == cuda.fetch(run_eager(OPS["sum"], [there], {"dims": dims})).tobytes()


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_elements_that_lie_otherwise(dtype: Any, asked: list[str]) -> None:
    rng, xp = np.random.default_rng(3), cuda.module()
    last = cuda.put(rng.normal(size=(3, 4, 5, 16)).astype(dtype), 0).transpose(0, 3, 1, 2)  # channels last
    ways: list[tuple[Any, Any, list[str]]] = [
        (last, (0, 2, 3), ["sum_down"]),
        (last, (2, 3), ["sum_down"]),
        (last, (0,), ["sum_down"]),  # the result's dims lie in another order than they are told in
        (last, (1,), ["sum_along"]),
        (last, (0, 1, 2, 3), ["sum_along", "add_around"][:1]),
        (cuda.put(rng.normal(size=(40, 24)).astype(dtype), 0)[:, 1:20], (0,), ["sum_down"]),  # with gaps
        (cuda.put(rng.normal(size=(33,)).astype(dtype), 0)[1:], (0,), ["sum_along"]),  # not on 16 bytes
        (xp.broadcast_to(cuda.put(rng.normal(size=(8,)).astype(dtype), 0), (6, 8)), (0,), []),
    ]
    for x, dims, kernels in ways:
        run_eager(OPS["sum"], [x], {"dims": dims})
        asked.clear()
        found = run_eager(OPS["sum"], [x], {"dims": dims})
        assert asked == kernels, dims
        assert found.flags.c_contiguous
        assert is_near(cuda.fetch(found), np.asarray(cuda.fetch(x)), dims)


def test_infinities_and_nan() -> None:
    x = np.ones((64, 16), np.float32)
    x[3, 0], x[4, 1], x[5, 2], x[6, 2] = np.inf, np.nan, np.inf, -np.inf
    for dims in ((0,), (1,), (0, 1)):
        with np.errstate(all="ignore"):
            expected = x.sum(dims)
        np.testing.assert_array_equal(cuda.fetch(run_eager(OPS["sum"], [cuda.put(x, 0)], {"dims": dims})), expected)


@pytest.mark.parametrize("wrong", ["row += levels", "i += lanes", "total += parts", "half /= 2", "% splits * share"])
def test_a_kernel_that_is_wrong_is_not_used(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, other = (
        device_kernels.source,
        {
            "half /= 2": "half /= 4",
            "total += parts": "total += 2 * parts",
            "% splits * share": "% splits * (share + 1)",
        },
    )

    def changed(dtype: Any, file: str = "kernels.cu") -> str:
        return right(dtype, file).replace(wrong, other.get(wrong, f"{wrong} + 1"))

    monkeypatch.setattr(device_kernels, "source", changed)
    monkeypatch.setattr(device_kernels, "_modules", {})
    x = np.arange(160).reshape(20, 8).astype(F32)
    with pytest.warns(DistCompileWarning, match="other numbers than the CPU"):
        found = run_eager(OPS["sum"], [cuda.put(x, 0)], {"dims": (0,)})
    assert cuda.fetch(found).tolist() == x.sum(0).tolist()


def test_the_kernels_compile_for_devices() -> None:
    """By NVRTC, as CuPy compiles them; it needs no device."""
    nvrtc = nvrtc_library()
    for dtype in (BF16, F16, F32, F64):
        program, text = ctypes.c_void_p(), device_kernels.source(dtype, "sums.cu").encode()
        assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
        assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("columns", [24, 23])
def test_sums_of_columns_for_a_weight_in_f32_are_never_rounded(columns: int, dtype: Any) -> None:
    for rows in (300, 5000):
        x = np.random.default_rng(0).normal(size=(rows, columns)).astype(dtype)
        found = device_sums.column_sums(cuda.put(x, 0))
        assert found is not None
        exact = x.astype(np.float64).sum(0)
        np.testing.assert_allclose(cuda.fetch(found), exact, rtol=1e-5, atol=1e-3)
        assert found.dtype == F32
        assert (cuda.fetch(found) != exact.astype(dtype).astype(F32)).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
@pytest.mark.parametrize(("start", "stop", "rows"), [(0, 24, 3000), (8, 16, 70), (3, 20, 300), (0, 1, 40)])
def test_columns_of_rows_with_gaps_are_read_where_they_are(
    dtype: Any, start: int, stop: int, rows: int, asked: list[str]
) -> None:
    whole = np.round(np.random.default_rng(1).normal(size=(rows, 32)) * 3).astype(dtype)
    for part in (cuda.put(whole, 0)[:, start:stop], cuda.put(np.repeat(whole, 2, 0), 0)[::2, start:stop]):
        asked.clear()
        made = run_eager(OPS["sum"], [part], {"dims": (0,)})
        right = whole[:, start:stop].astype(np.float64).sum(0).astype(dtype)
        assert cuda.fetch(made).tobytes() == right.tobytes()
        assert "sum_down" in asked


def test_a_layers_cotangent_may_have_gaps_between_rows() -> None:
    """As those of queries, keys and values, which lie beside each other."""
    from compiler_core.eager.device import products
    from compiler_core.ops.whole import COMPOSITES

    rng, beside = np.random.default_rng(2), np.random.default_rng(3).normal(size=(2, 5, 48)).astype(np.float32)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((2, 5, 8), (16, 8), (16,)))
    definition, there = COMPOSITES["linear"].on_device(), [cuda.put(a, 0) for a in (x, w, b)]
    g = cuda.put(beside, 0)[..., 16:32]
    assert products._in_rows(g) is g
    assert products._in_rows(g.transpose(1, 0, 2)).flags.c_contiguous
    grads = definition.backward([True] * 3, g, None, (), *there)
    slopes = COMPOSITES["linear"].vjp(beside[..., 16:32].copy(), np.zeros((2, 5, 16), np.float32), x, w, b)
    for ours, exact in zip(grads, slopes, strict=True):
        np.testing.assert_allclose(cuda.fetch(ours), exact, rtol=1e-5, atol=1e-5)
