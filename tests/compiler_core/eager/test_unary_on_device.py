"""Functions of one number on a CUDA device, and their derivatives, by a kernel each that the stand-in runs: the numbers
of the ops' own rules; what is not taken; and that kernels that are wrong are not used."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import pointwise as device_pointwise
from compiler_core.eager.device import proof as device_proof
from compiler_core.eager.device import rows as device_rows
from compiler_core.eager.device import unary as device_unary
from compiler_core.log import DistCompileWarning
from compiler_core.ops import functional as F
from compiler_core.ops.on_device import UNARY_OPS
from compiler_core.ops.registry import OPS, run_eager
from compiler_core.ops.whole import COMPOSITES
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.making.creation import tensor
from tests.compiler_core.eager.test_whole_on_device import nvrtc_library
from tests.fake_cupy import on_fake_device

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
CORNERS = [0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, -100.0, 0.5, 2.0]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(UNARY_OPS))
def test_numbers_and_gradients_are_the_rules(name: str, dtype: Any, asked: list[str]) -> None:
    op, x = OPS[name], np.array(CORNERS, np.float32)
    wide = x.astype(np.float64 if dtype == np.float64 else np.float32)
    with np.errstate(all="ignore"):
        out = op.eager(np, wide)
        (slope,) = op.vjp(np.ones_like(wide), out, wide)  # type: ignore[operator]
    leaf = tensor(x.astype(dtype), device="cuda:1").requires_grad_()
    made = getattr(F, name)(leaf)
    asked.clear()
    (found,) = grad(made.sum(), [leaf])
    assert asked[-1] == "backward"
    tolerance = {2: 2e-2, 4: 1e-6, 8: 1e-14}[dtype.itemsize]
    with np.errstate(all="ignore"):  # what 16 bits hold
        expected = [a.astype(dtype).astype(np.float64) for a in (out, np.asarray(slope))]
    for a, b in zip((made.detach(), found), expected):
        assert str(a.device) == "cuda:1"
        np.testing.assert_allclose(a.cpu().double().numpy(), b, rtol=tolerance, atol=tolerance)


def test_one_launch_each_way(asked: list[str]) -> None:
    x = tensor(np.linspace(-2, 2, 96).reshape(8, 12), dtype=dt.float32, device="cuda").requires_grad_()
    ones = tensor(np.ones((8, 12)), dtype=dt.float32, device="cuda")
    for _ in range(2):  # the proof is behind us the second time
        asked.clear()
        (found,) = grad(F.tanh(x), [x], ones)
    assert asked == ["forward", "backward"]
    np.testing.assert_allclose(found.cpu().numpy(), 1 - np.tanh(x.detach().cpu().numpy()) ** 2, rtol=1e-4, atol=1e-6)


def test_gradients_of_gradients_are_the_rules() -> None:
    x = tensor(np.linspace(-1, 1, 7), dtype=dt.float64, device="cuda").requires_grad_()
    (first,) = grad(F.tanh(x).sum(), [x], create_graph=True)
    (second,) = grad(first.sum(), [x])
    t = np.tanh(np.linspace(-1, 1, 7))
    np.testing.assert_allclose(second.cpu().numpy(), -2 * t * (1 - t * t), rtol=1e-9, atol=1e-12)


def test_what_is_not_taken(asked: list[str]) -> None:
    whole, empty = np.arange(1, 5) * (1 + 0j), np.zeros((0, 3), np.float32)
    for x in (whole, empty):
        run_eager(OPS["tanh"], [cuda.put(x, 0)], {})
        asked.clear()
        found = run_eager(OPS["tanh"], [cuda.put(x, 0)], {})
        assert not asked
        np.testing.assert_allclose(cuda.fetch(found), np.tanh(x))


@pytest.mark.parametrize("what", ["forward", "backward"])
def test_a_kernel_that_is_wrong_is_not_used(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = device_unary.source

    def wrong(name: str, dtype: Any) -> str:
        before, kernel = right(name, dtype).split(f"DC_INLINE void {what}_of(")
        return f"{before}DC_INLINE void {what}_of({kernel.replace('as_stored(v', 'as_stored(1 + v')}"

    monkeypatch.setattr(device_unary, "source", wrong)
    monkeypatch.setattr(device_kernels, "_modules", {})
    x = tensor([0.5, 1.0], dtype=dt.float32, device="cuda").requires_grad_()
    with pytest.warns(DistCompileWarning, match="other numbers" if what == "forward" else "another gradient"):
        (found,) = grad(F.tanh(x).sum(), [x])
    np.testing.assert_allclose(found.cpu().numpy(), 1 - np.tanh([0.5, 1.0]) ** 2, rtol=1e-5)


def test_the_kernels_compile_for_devices() -> None:
    """By NVRTC, as CuPy compiles them; it needs no device."""
    nvrtc = nvrtc_library()
    for name in UNARY_OPS:
        for dtype in DTYPES:
            program, text = ctypes.c_void_p(), device_unary.source(name, dtype).encode()
            assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
            options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++17")
            assert nvrtc.nvrtcCompileProgram(program, 2, options) == 0


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in (np.float32, np.float64, np.float16)], ids=str)
def test_texts_for_devices_call_what_cuda_has(dtype: Any) -> None:
    """GCC's built-in functions that CUDA's compiler has not are defined before the kernels, or not called."""
    known = set(
        re.findall(r"#define (__builtin_\w+)", (Path(device_kernels.__file__).parent / "pointwise.cu").read_text())
    )
    texts = [device_unary.source(name, dtype) for name in UNARY_OPS]
    for one in COMPOSITES.values():
        if one.rows:
            present = (True,) * (one.operands - 1)
            texts.append(device_rows.made_text(one, dtype == np.float64, present))
        elif one.pointwise:
            texts.append(device_pointwise.source(one, dtype))
    assert len(texts) > 20
    for text in texts:
        called = set(re.findall(r"(__builtin_\w+)\(", re.sub(r"#define .*", "", text)))
        assert called <= known, text
