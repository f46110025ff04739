"""Arrays of a CUDA device that lie in any way are made dense by a kernel that the stand-in runs: NumPy's numbers, of
views of all kinds; calls that need it are made again; what it does not take is CuPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda
from compiler_core.eager.device import kernels as device_kernels
from compiler_core.eager.device import moves
from compiler_core.eager.device import proof as device_proof
from compiler_core.eager.device.orders import as_it_lies, laid
from compiler_core.runtime.cuda.again import library
from tests.fake_cupy import on_fake_device

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


def drawn_view(rng: np.random.Generator) -> tuple[tuple[int, ...], Callable[[Any], Any], tuple[int, ...]]:
    """(the shape of an array, a view of it, an order of the view's dims)."""
    ndim = int(rng.integers(1, 6))
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 8, 16, 24], ndim))
    index: list[Any] = []
    for n in shape:
        start, step = int(rng.integers(0, max(1, n // 2))), int(rng.choice([1, 1, 1, 2, 3, -1, -2]))
        index.append(slice(None, None, step) if step < 0 else slice(start, None, step))
        if rng.random() < 0.15:
            index.append(None)
    dims = len(index)
    turn = tuple(int(d) for d in rng.permutation(dims))
    order = tuple(int(d) for d in rng.permutation(dims))
    is_turned = rng.random() < 0.6
    return shape, lambda x: x[tuple(index)].transpose(turn) if is_turned else x[tuple(index)], order


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_view_is_made_dense(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    refused: list[bool] = []
    monkeypatch.setattr(moves, "is_noting", lambda: True)  # else CuPy copies, which takes less Python
    monkeypatch.setattr(moves, "spoil", lambda: refused.append(True))
    for _ in range(150):
        shape, view, order = drawn_view(rng)
        here = rng.normal(size=shape).astype(dtype)
        wanted = view(here).transpose(order)
        refused.clear()
        made = as_it_lies(view(cuda.put(here, 0)), order)
        assert made.flags.c_contiguous
        assert not refused or min(wanted.strides) < 0
        assert cuda.fetch(made).tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_what_repeats_is_written_out() -> None:
    xp = cuda.module()
    for shape, whole in (((2, 1, 1, 16), (2, 5, 3, 16)), ((1, 7), (4, 7)), ((3, 1), (3, 9)), ((1, 1), (4, 6))):
        here = np.random.default_rng(1).normal(size=shape).astype(ml_dtypes.bfloat16)
        made = as_it_lies(xp.broadcast_to(cuda.put(here, 0), whole), tuple(range(len(whole))))
        assert cuda.fetch(made).tobytes() == np.broadcast_to(here, whole).tobytes()


def test_it_is_converted_too() -> None:
    here = np.random.default_rng(1).normal(size=(3, 40, 6)).astype(np.float32)
    made = laid(cuda.put(here, 0)[:, ::2], (2, 0, 1), np.dtype(ml_dtypes.bfloat16))
    assert cuda.fetch(made).tobytes() == here[:, ::2].transpose(2, 0, 1).astype(ml_dtypes.bfloat16).tobytes()


def test_other_dtypes_and_more_dims_are_cupys() -> None:
    whole = np.arange(24).reshape(4, 6)
    assert cuda.fetch(as_it_lies(cuda.put(whole, 0)[:, ::2], (0, 1))).tolist() == whole[:, ::2].tolist()
    many = np.arange(3.0**7, dtype=np.float32).reshape((3,) * 7)
    found = as_it_lies(cuda.put(many, 0)[(slice(0, 2),) * 7], tuple(range(7)))
    assert np.array_equal(cuda.fetch(found), many[(slice(0, 2),) * 7])
    assert as_it_lies(cuda.put(many, 0)[:0, 1], tuple(range(6))).shape == (0, 3, 3, 3, 3, 3)


def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    text = device_kernels.source
    monkeypatch.setattr(device_kernels, "_modules", {})
    monkeypatch.setattr(device_kernels, "source", lambda *a: text(*a).replace("room[x0][y])", "room[y][x0])"))
    here = np.random.default_rng(1).normal(size=(3, 40, 70)).astype(np.float32)
    with pytest.warns(UserWarning, match="laying out of float32"):
        made = as_it_lies(cuda.put(here, 0), (0, 2, 1))
    assert np.array_equal(cuda.fetch(made), here.swapaxes(1, 2))


FORMS: dict[str, Callable[[Any], Any]] = {
    "a part times a number": lambda x: x[..., :16] * 0.5,
    "a permuted part times a number": lambda x: x.view(4, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)[0] * 0.25,
    "a part and the whole added": lambda x: x[:, :2] + (x * 2)[:, 2:4],
    "an activation of a part": lambda x: dc.nn.functional.gelu(x[..., ::2]),
    "what repeats, through an activation": lambda x: dc.relu(x).mean((0, 1)),
    "softmax of a part": lambda x: x[:, ::2].softmax(-1),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_calls_that_need_it_are_made_again(name: str, dtype: str) -> None:
    """On the lone device: without CuPy's copies, which a call that is made again cannot have."""
    form, rng = FORMS[name], np.random.default_rng(2)
    native = library()
    assert native is not None
    with on_fake_device(1):
        for turn in range(6):
            given = rng.normal(size=(4, 6, 48)).astype(np.float32)
            x = dc.tensor(given, device="cuda", dtype=getattr(dc, dtype)).requires_grad_()
            wide = x.detach().cpu().double().requires_grad_()
            before = native.repeats()
            out = form(x)
            slope = rng.normal(size=tuple(out.shape)).astype(np.float32)
            out.backward(dc.tensor(slope, device="cuda", dtype=out.dtype))
            again = native.repeats() - before
            right = form(wide)
            right.backward(dc.tensor(slope).to(out.dtype).double())
            slack = 1e-5 if dtype == "float32" else 2e-2
            np.testing.assert_allclose(out.detach().cpu().double().numpy(), right.detach().numpy(), slack, slack)
            np.testing.assert_allclose(x.grad.cpu().double().numpy(), wide.grad.numpy(), slack, slack)
            assert turn < 3 or again >= 2 or (dtype, name[-6:]) == ("float32", "number"), "forward and backward"
