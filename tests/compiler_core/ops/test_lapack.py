"""The C calls of LAPACK in compiled code: eager's values for any strides, eager's errors, and what is called back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import LinAlgError

Call = Callable[[Any, Any], Any]

CALLS: dict[str, Call] = {
    "cholesky": lambda a, b: dc.linalg.cholesky(a @ a.mT),
    "cholesky of every other": lambda a, b: dc.linalg.cholesky((a @ a.mT)[::2]),
    "solve": lambda a, b: dc.linalg.solve(a, b),
    "solve transposed": lambda a, b: dc.linalg.solve(a.mT, b),
    "solve, one matrix for all": lambda a, b: dc.linalg.solve(a[1:2].expand(3, 20, 20), b),
    "upper": lambda a, b: dc.linalg.solve_triangular(a, b, upper=True),
    "lower": lambda a, b: dc.linalg.solve_triangular(a, b, upper=False),
    "upper transposed": lambda a, b: dc.linalg.solve_triangular(a.mT, b, upper=True),
    "lower transposed, unit": lambda a, b: dc.linalg.solve_triangular(a.mT, b, upper=False, unitriangular=True),
    "right, unit": lambda a, b: dc.linalg.solve_triangular(a, b.mT, upper=True, left=False, unitriangular=True),
    "lu": lambda a, b: dc.linalg.lu_factor(a)[0],
    "pivots of tall": lambda a, b: dc.linalg.lu_factor(a[..., :7])[1],
    "lu of wide": lambda a, b: dc.linalg.lu_factor(a[..., :7].mT)[0],
}


def operands(dtype: str) -> list[Any]:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((3, 20, 20)) / 20 + np.eye(20), rng.standard_normal((3, 20, 4))
    return [dc.tensor(x.astype(dtype)) for x in (a, b)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", CALLS)
def test_compiled_code_calls_lapack_and_agrees_with_eager(what: str, dtype: str) -> None:
    compiled = dc.compile(CALLS[what])
    got, expected = compiled(*operands(dtype)).numpy(), CALLS[what](*operands(dtype)).numpy()
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    assert "calls back" not in str(compiled.explain())


def test_complex_matrices_are_called_back() -> None:
    compiled = dc.compile(CALLS["solve"])
    a, b = (x.to(dc.complex128) * (1 + 2j) for x in operands("float64"))
    np.testing.assert_allclose(compiled(a, b).numpy(), CALLS["solve"](a, b).numpy())
    assert "calls back into NumPy: solve" in str(compiled.explain())


@pytest.mark.parametrize("what", ["cholesky", "solve"])
def test_a_failure_in_a_batch_is_eagers_error(what: str) -> None:
    a, b = operands("float64")
    a[1] = 0
    said = []
    for function in (CALLS[what], dc.compile(CALLS[what])):
        with pytest.raises(LinAlgError) as caught:
            function(a, b)
        said.append(str(caught.value).splitlines()[0])
    assert said[0] == said[1]


@pytest.mark.parametrize("what", ["lu", "upper"])
def test_singular_matrices_give_what_eager_gives(what: str) -> None:
    a, b = operands("float64")
    a[1] = 0
    np.testing.assert_allclose(dc.compile(CALLS[what])(a, b).numpy(), CALLS[what](a, b).numpy())


def test_a_nan_gives_what_eager_gives() -> None:
    a, b = operands("float64")
    a[1, 0, 0] = float("nan")
    np.testing.assert_allclose(dc.compile(CALLS["solve"])(a, b).numpy(), CALLS["solve"](a, b).numpy())
