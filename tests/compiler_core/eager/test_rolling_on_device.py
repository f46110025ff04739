"""`roll` on a CUDA device by a kernel that the stand-in runs: NumPy's numbers of arrays that lie in any way, gradients,
gradients of gradients; one launch each way, made again; what it does not take is the composition's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distcompile as dc
from compiler_core.eager.device import proof as device_proof
from compiler_core.runtime.cuda.again import library
from compiler_core.tensor.autograd.tape import WholeNode
from tests.compiler_core.eager.test_averages_on_device import lying
from tests.fake_cupy import on_fake_device

DTYPES = [np.dtype(t) for t in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
CASES: list[tuple[tuple[int, ...], Any, Any]] = [
    ((2, 8, 8, 16), (-3, -3), (1, 2)),
    ((2, 8, 8, 16), (3, 2), (2, 1)),
    ((2, 5, 4, 24), (1, -9, 30), (0, -1, 1)),
    ((3, 7), 2, 0),
    ((3, 7), (1, 2), (1, 1)),
    ((3, 8), 5, None),
    ((6,), -1, 0),
]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(device_proof, "_proved", {})
    with on_fake_device() as module:
        yield module


@pytest.mark.parametrize("where", ["cuda:0", "cuda:1"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["rows", "last", "every second", "backwards", "repeated"])
@pytest.mark.parametrize(("shape", "shifts", "dims"), CASES, ids=str)
def test_values_and_gradients(shape: Any, shifts: Any, dims: Any, form: str, dtype: Any, where: str) -> None:
    rng = np.random.default_rng(0)
    x, g = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    own = np.broadcast_to(x[..., :1], shape) if form == "repeated" else x
    for _ in range(3):
        given = lying(x, form, where).detach().requires_grad_()
        out = dc.roll(given, shifts, dims)
        assert np.array_equal(out.detach().cpu().double().numpy(), np.roll(own, shifts, dims).astype(np.float64))
        out.backward(lying(g, "last", where))
        back = tuple(-s for s in shifts) if isinstance(shifts, tuple) else -shifts
        assert np.array_equal(given.grad.cpu().double().numpy(), np.roll(g, back, dims).astype(np.float64))


def test_one_launch_each_way(asked: list[str]) -> None:
    x = dc.ones(2, 4, 4, 8, dtype=dc.bfloat16, device="cuda", requires_grad=True)
    for _ in range(2):
        asked.clear()
        out = dc.roll(x, (-1, -2), (1, 2))
        dc.autograd.grad(out, x, dc.ones(2, 4, 4, 8, dtype=dc.bfloat16, device="cuda"))
    assert isinstance(out._node, WholeNode)
    assert type(out.grad_fn).__name__ == "RollBackward0"
    assert asked == ["roll", "roll"]


def test_it_is_made_again() -> None:
    native = library()
    assert native is not None
    with on_fake_device(1):
        for turn in range(5):
            given = np.random.default_rng(turn).normal(size=(2, 4, 4, 8)).astype(np.float32)
            x = dc.tensor(given, device="cuda").requires_grad_()
            before = native.repeats()
            dc.roll(x, (1, -2), (1, 2)).backward(x.detach())
            assert turn < 3 or native.repeats() - before == 2
            assert np.array_equal(x.grad.cpu().numpy(), np.roll(given, (-1, 2), (1, 2)))


def test_gradients_of_gradients_and_a_second_backward() -> None:
    x = dc.arange(6.0, device="cuda").reshape(2, 3).requires_grad_()
    out = dc.roll(x, 1, 1)
    (slope,) = dc.autograd.grad((out * out * out).sum(), x, create_graph=True)
    (twice,) = dc.autograd.grad(slope.sum(), x)
    assert twice.tolist() == (6 * x.detach()).tolist()
    total = dc.roll(x, 1, 1).sum()
    total.backward()
    total.backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_the_rest_is_the_compositions() -> None:
    assert dc.roll(dc.arange(5, device="cuda"), 2, 0).tolist() == [3, 4, 0, 1, 2]
    assert dc.roll(dc.ones(0, 3, device="cuda"), 1, 1).shape == (0, 3)
    x = dc.tensor(np.arange(2.0**8).reshape((2,) * 8), device="cuda")
    assert np.array_equal(
        dc.roll(x, (1,) * 8, tuple(range(8))).cpu().numpy(), np.roll(x.cpu().numpy(), (1,) * 8, range(8))
    )
    y = dc.roll(dc.ones(2, 3, device="cuda"), 3, 1)
    y += 1
    assert y.tolist() == [[2.0] * 3] * 2
