"""Products with a vector, compiled: their numbers in every layout and by any number of threads, and what is called."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.dtype import float32, float64
from compiler_core.meta import TensorMeta
from compiler_core.ops.linear_algebra.gemm import GEMM
from compiler_core.ops.routine import Strided, contiguous

# what is computed, and the operands' shapes
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matrix": (lambda a, x: dc.mv(a, x), ((70, 33), (33,))),
    "transposed": (lambda a, x: dc.mv(a.t(), x), ((33, 70), (33,))),
    "a row before it": (lambda x, a: x @ a, ((33,), (33, 70))),
    "a row before a transposed one": (lambda x, a: x @ a.t(), ((1, 33), (70, 33))),
    "a column of a matrix": (lambda a, x: a @ x[:, 2:3], ((70, 33), (33, 5))),
    "columns of a matrix": (lambda a, x: a[:, :20] @ x, ((70, 33), (20, 1))),
    "two vectors": (lambda x, y: dc.dot(x, y), ((133,), (133,))),
    "one row each": (lambda a, x: a @ x.transpose(1, 2), ((3, 40, 16), (3, 1, 16))),
    "added to": (lambda a, x, y: dc.addmv(y, a, x, beta=0.5, alpha=2.0), ((70, 33), (33,), (70,))),
}


@pytest.mark.parametrize("dtype", [dc.float32, dc.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_they_and_their_gradients_are_eagers(name: str, dtype: Any, rng: Any) -> None:
    function, shapes = CASES[name]
    arrays = [rng.standard_normal(shape) for shape in shapes]

    def outcome(run: Callable[..., Any], of: Any) -> list[Any]:
        leaves = [dc.tensor(x, dtype=of).requires_grad_() for x in arrays]
        out = run(*leaves)
        (out * dc.arange(math.prod(out.shape), dtype=of).reshape(out.shape).cos()).sum().backward()
        return [x.detach().double().numpy() for x in (out, *(leaf.grad for leaf in leaves))]

    tolerance = 2e-5 if dtype is dc.float32 else 1e-12
    found = outcome(dc.compile(function, fullgraph=True), dtype)
    for ours, exact in zip(found, outcome(function, dc.float64), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_their_bits_do_not_depend_on_the_number_of_threads(is_transposed: bool, dtype: Any, rng: Any) -> None:
    a, x = rng.standard_normal((2311, 1201)).astype(dtype), rng.standard_normal(1201).astype(dtype)

    def multiply(a: Any, x: Any) -> Any:
        return a @ x

    given = [np.asfortranarray(a) if is_transposed else a, x]
    found = []
    for threads in (1, 2, 5):
        with config.patch(num_threads=threads):
            product = dc.compile(multiply, fullgraph=True, dynamic=False)
            leaf = dc.from_numpy(given[0].T).t() if is_transposed else dc.from_numpy(given[0])
            found.append(product(leaf, dc.from_numpy(x)).numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], a.astype(np.float64) @ x, rtol=1e-3, atol=1e-3)


def symbol(a: Strided, b: Strided) -> str:
    native = GEMM.native
    assert native is not None
    (name,) = native.symbols((a, b), {"alpha": 1.0, "beta": 0.0})
    return name


def test_what_is_called() -> None:
    def of(*shape: int, dtype: Any = float32) -> Strided:
        return contiguous(TensorMeta(shape, dtype))

    assert symbol(of(5, 7), of(7, 1)) == symbol(of(1, 7), of(7, 5)) == "cblas_sgemv"
    assert symbol(of(5, 7, dtype=float64), of(7, 1, dtype=float64)) == "cblas_dgemv"
    assert symbol(of(5, 7), of(7, 2)) == symbol(of(5, 1), of(1, 7)) == "cblas_sgemm"
    huge = Strided(float32, (1 << 13, 1 << 13), (1, 1 << 13))
    assert symbol(huge, of(1 << 13, 1)) == "cblas_sgemm"  # whose bits would depend on threads, were it shared out
    assert symbol(of(1 << 13, 1 << 13), of(1 << 13, 1)) == "cblas_sgemv"


@pytest.mark.parametrize("is_compiled", [False, True])
def test_zero_times_infinity_is_no_number(is_compiled: bool) -> None:
    """In products over one number too, which NumPy's dot gave 0 for."""
    a, x = dc.tensor([[1.0], [float("inf")]]), dc.zeros(1)

    def products(a: Any, x: Any) -> Any:
        return a @ x, x @ a.t()

    for found in (dc.compile(products, fullgraph=True) if is_compiled else products)(a, x):
        np.testing.assert_array_equal(found.numpy(), [0.0, np.nan])
