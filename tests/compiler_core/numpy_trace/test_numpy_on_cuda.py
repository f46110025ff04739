"""Functions written with NumPy, compiled where the default device is a CUDA device (a stand-in); default devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.graph.interpret import interpret
from distcompile import compiler
from tests.fake_cupy import on_fake_device


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with on_fake_device():
        yield


def compiled(function: Any) -> tuple[Any, list[str]]:
    """`function` compiled, and the devices of the graphs that have run, in order."""
    devices: list[str] = []

    def backend(graph: Any, example_inputs: Any) -> Any:
        def call(*args: Any) -> Any:
            devices.append(graph.ir.device)
            return interpret(graph.ir, args)

        return call

    return dc.compile(function, backend=backend), devices


def outer(x: Any, y: Any) -> Any:
    return np.sum(x[:, :, None] * y[:, None, :], axis=(-2, -1))


X, Y = np.arange(12.0).reshape(3, 4) / 7, np.arange(12.0).reshape(3, 4)[::-1] - 2


def test_arrays_in_arrays_out() -> None:
    f, devices = compiled(outer)
    for _ in range(2):
        with dc.device("cuda"):
            result = f(X, Y)
        assert type(result) is np.ndarray
        np.testing.assert_allclose(result, outer(X, Y))
    assert devices == ["cuda:0"] * 2
    np.testing.assert_allclose(f(X, Y), outer(X, Y))
    assert devices[2:] == ["cpu"]
    dc.set_default_device("cuda:1")
    try:
        np.testing.assert_allclose(f(Y, X), outer(Y, X))
    finally:
        dc.set_default_device(None)
    assert devices[3:] == ["cuda:1"]


def test_what_is_written_reaches_the_callers_array() -> None:
    def scale(x: Any) -> Any:
        x[1:] *= 2
        return x[0], x.sum(), x

    f, devices = compiled(scale)
    for _ in range(2):
        mine = np.arange(6.0).reshape(3, 2)[:, ::-1]
        with dc.device("cuda"):
            row, total, itself = f(mine)
        assert itself is mine
        assert mine.tolist() == [[1, 0], [6, 4], [10, 8]]
        assert (total, isinstance(total, np.float64)) == (29.0, True)
        row[0] = 9
        assert mine[0, 0] == 9
    assert set(devices) == {"cuda:0"}


def test_results_share_memory_as_they_do_in_numpy() -> None:
    def both(x: Any) -> Any:
        y = np.sin(x)
        return y, y[1:], y.T, y.dtype, y.shape

    f, _ = compiled(both)
    with dc.device("cuda"):
        y, part, turned, dtype, shape = f(X)
    np.testing.assert_allclose(turned, np.sin(X).T)
    y[2, 1] = 5
    assert (part[1, 1], turned[1, 2], dtype, shape) == (5, 5, np.float64, (3, 4))


def test_a_break_in_between() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        if y.sum() > 0:
            y = y + 1
        return np.linalg.norm(y)

    g, devices = compiled(f)
    with dc.device("cuda"):
        assert g(X) == pytest.approx(f(X))
        assert g(-X) == pytest.approx(f(-X))
    assert set(devices) == {"cuda:0"}


@pytest.mark.parametrize("compiles", [False, True])
def test_wrap_numpy_gives_tensors_of_the_arguments_device(compiles: bool) -> None:
    f = compiler.wrap_numpy(outer)
    f = dc.compile(f, fullgraph=True, backend="aot_eager") if compiles else f
    x, y = dc.tensor(X, device="cuda:1", requires_grad=True), dc.tensor(Y.copy(), device="cuda:1")
    result = f(x, y)
    assert result.device == dc.device("cuda:1")
    np.testing.assert_allclose(result.detach().cpu().numpy(), outer(X, Y))
    result.sum().backward()
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.broadcast_to(Y.sum(1, keepdims=True), X.shape))


def test_the_default_device_is_guarded() -> None:
    f, devices = compiled(lambda: dc.zeros(3) + 1)
    assert f().device == dc.device("cpu")
    with dc.device("cuda"):
        assert f().device == dc.device("cuda:0")
    assert f().device == dc.device("cpu")
    assert devices == ["cpu", "cuda:0", "cpu"]


def test_a_default_device_that_captured_code_sets_is_set_at_later_calls_too() -> None:
    def f(x: Any) -> Any:
        dc.set_default_device("cuda")
        return dc.ones(2) + x.sum()

    g, _ = compiled(f)
    for _ in range(2):
        assert g(dc.ones(1)).tolist() == [2, 2]
        assert dc.get_default_device() == dc.device("cuda:0")
        dc.set_default_device(None)
