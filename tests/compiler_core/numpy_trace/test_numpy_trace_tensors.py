"""Code written with NumPy beside Tensors under capture, and NumPy's promotion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as torch
from tests.compiler_core.numpy_trace.test_numpy_trace import Array, normal, whole


def test_numpy_and_back() -> None:
    def function(x: torch.Tensor, a: Array) -> Any:
        h = np.tanh(x.numpy()) + a
        y = torch.from_numpy(h) * x
        return torch.as_tensor(h, dtype=torch.float32), y, torch.tensor(a).sum(), x + a, a * x, torch.softmax(y, 0)

    compiled = whole(function)
    for call in range(3):
        x, a = torch.from_numpy(normal(4, seed=call)), normal(4, seed=call + 9)
        for got, expected in zip(compiled(x, a), function(x, a)):
            assert type(got) is type(expected) is torch.Tensor
            assert got.dtype is expected.dtype
            np.testing.assert_allclose(got.numpy(), expected.numpy())


def test_numpy_shares_the_memory_of_a_tensor() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        x.numpy()[0] = 9
        return x * 2

    compiled = whole(function)
    for _ in range(2):
        assert compiled(torch.zeros(3)).tolist() == [18, 2, 2]


def test_numpy_of_what_requires_a_gradient_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="requires a gradient"):
        torch.compile(lambda x: x.numpy(), backend="eager")(torch.ones(3, requires_grad=True))


def test_numbers_between_tensors_and_arrays() -> None:
    compiled = whole(lambda x, a: (x * a.mean(), a.max() - x, x * a[0]))
    x, a = torch.ones(3), normal(3)
    for got, expected in zip(compiled(x, a), (x * a.mean(), a.max() - x, x * a[0])):
        assert got.dtype is expected.dtype
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("a", ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64"])
def test_promotion_is_numpys(a: str) -> None:
    """NEP 50: numbers of Python are weak, NumPy's and arrays without axes are not."""
    others = [np.ones(2, d) for d in ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex128")]
    numbers = [True, 2, 1.5, np.float32(2), np.int8(3), np.float64(1), np.array(2.0), np.array(2, np.int32)]

    def function(x: Array, *ys: Any) -> Any:
        return [x + y for y in ys], [x * y for y in ys], [np.true_divide(x, y) for y in ys], [y + x[0] for y in ys]

    def dtypes(results: Any) -> list[str]:
        return [r.dtype.name for row in results for r in row]

    x = np.ones(2, a)
    assert dtypes(whole(function)(x, *others, *numbers)) == dtypes(function(x, *others, *numbers))
