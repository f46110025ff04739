"""as_strided and resize_: what is written through them, gradients, offsets, as torch's, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import AutogradError, ShapeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def writes(lib: Any) -> list[Any]:
    x = lib.arange(12.0).reshape(3, 4)
    shown = x.as_strided((2, 3), (4, 1), 1)
    shown.mul_(10)
    found = [x.clone(), shown]
    column = x[1:, 1]
    own_offset = lib.as_strided(column, (2,), (3,))
    own_offset.add_(1)
    found += [x.clone(), own_offset, column]
    x[0].detach().as_strided((2,), (2,), 4).zero_()
    return [*found, x]


def offsets(lib: Any) -> list[int]:
    x = lib.zeros(3, 4)
    views = (x, x[1:, 1], x.t()[1], x.diagonal(1), x.diagonal(-1), x.as_strided((2,), (3,), 4)[1:])
    return [view.storage_offset() for view in views]


def resizes(lib: Any) -> list[Any]:
    x = lib.arange(12.0).reshape(3, 4)
    row = x[0]
    x.resize_(2, 2).add_(100)
    grown = lib.empty(0).resize_(3)
    turned = lib.arange(4.0).as_strided_((2, 2), (1, 2))
    return [x, row, lib.tensor(list(grown.shape)), turned, lib.arange(6.0).resize_as_(lib.zeros(2, 3))]


def gradient(lib: Any) -> list[Any]:
    a = lib.arange(6.0).requires_grad_()
    windows = (a * 2).as_strided((3, 2), (1, 1))
    (windows * windows).sum().backward()
    b = lib.arange(6.0).requires_grad_()
    written = b * 2
    written.as_strided((2, 2), (3, 1)).mul_(written[:2].clone())
    (written * written).sum().backward()
    return [a.grad, b.grad]


@pytest.mark.parametrize("program", [writes, resizes, gradient])
def test_it_is_torchs(program: Callable[[Any], list[Any]]) -> None:
    for got, want in zip(program(dc), program(torch), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), strict=True)


def test_the_storage_offset_is_torchs() -> None:
    assert offsets(dc) == offsets(torch)


def test_compiled_writes_and_gradients_are_the_eager_ones() -> None:
    def function(x: Any) -> Any:
        base = x * 1.5
        shown = base.as_strided((2, 3), (4, 1), 1)
        shown.add_(shown * 2)
        return base.sum(), base.as_strided((3, 2), (1, 2), 2)

    start = np.arange(12, dtype=np.float32).reshape(3, 4)
    results = []
    for lib, run in ((torch, function), (dc, function), (dc, dc.compile(function))):
        x = lib.tensor(start).requires_grad_()
        total, view = run(x)
        (total + (view * view).sum()).backward()
        results.append([total.detach().numpy(), view.detach().numpy(), x.grad.numpy()])
    for want, eager, compiled in zip(*results, strict=True):
        np.testing.assert_allclose(eager, want)
        np.testing.assert_allclose(compiled, want)


def test_a_compiled_write_reaches_the_argument() -> None:
    def function(x: dc.Tensor) -> dc.Tensor:
        x.as_strided((2,), (2,), 1).mul_(3.0)
        return x.sum()

    x = dc.arange(6.0)
    assert dc.compile(function)(x).item() == 23
    np.testing.assert_array_equal(x.numpy(), [0, 3, 2, 9, 4, 5])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ShapeError, match="one memory location"):
        dc.zeros(3).as_strided((2, 2), (1, 1)).add_(1)
    with pytest.raises(ShapeError, match="leaves the storage"):
        dc.zeros(3).as_strided((2, 2), (2, 1))
    with pytest.raises(ShapeError, match="cannot grow"):
        dc.zeros(3).resize_(9)
    with pytest.raises(AutogradError, match="resize_"):
        (dc.ones(3).requires_grad_() * 2).resize_(2)


def test_a_compiled_function_may_transpose_its_argument_in_place() -> None:
    def function(x: dc.Tensor) -> dc.Tensor:
        x.t_()
        return x * 2

    x = dc.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(dc.compile(function)(x).numpy(), 2 * np.arange(6.0).reshape(2, 3).T)
    assert tuple(x.shape) == (3, 2)
