"""Gradients, and those of gradients, at zeros, poles, infinities and subnormals, against torch or a closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

inf, nan = math.inf, math.nan
both = pytest.mark.parametrize("compiled", [False, True])
each_width = pytest.mark.parametrize("dtype", ["float32", "float64"])


def lambda_of(text: str, m: Any) -> Callable[..., Any]:
    return eval(f"lambda x, y=None: {text}", {"m": m, "F": m.nn.functional, "inf": inf, "nan": nan})  # type: ignore[no-any-return]


def gradients(m: Any, text: str, columns: list[list[float]], dtype: str, compiled: bool = False) -> list[Any]:
    """The result, and the gradients of its sum."""
    operands = [m.tensor(column, dtype=getattr(m, dtype), requires_grad=True) for column in columns]
    function = lambda_of(text, m)
    made = (dc.compile(function) if compiled else function)(*operands)
    grads = m.autograd.grad(made, operands, m.ones_like(made))
    return [np.array(part.detach().numpy()) for part in (made, *grads)]


SUBNORMAL = {"float32": [1e-40, 1e-45, 1e-40, 1e-44], "float64": [1e-310, 5e-324, 1e-310, 1e-323]}
TORCHS = [
    "x.norm(-1)",
    "x.norm(-2.5)",
    "x.view(2,2).norm(-1,1)",
    "m.linalg.vector_norm(x,-1)",
    "m.lgamma(x)",
    "m.digamma(x)",
    "m.polygamma(2,x)",
    "m.polygamma(3,x)",
    "m.special.erfcx(x-100)",
    "m.erfinv(x)",
    "m.special.ndtri(x)",
]


@both
@each_width
@pytest.mark.parametrize("text", TORCHS)
def test_gradients_at_zero_are_torchs(text: str, dtype: str, compiled: bool) -> None:
    columns = [[0.0, -0.0, 0.75, 0.5]]
    ours, theirs = gradients(dc, text, columns, dtype, compiled), gradients(torch, text, columns, dtype)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=3e-6 if dtype == "float32" else 1e-9)


@both
@each_width
def test_a_quotient_that_is_zero_has_a_slope_of_zero_beside_a_subnormal_divisor(dtype: str, compiled: bool) -> None:
    columns = [[0.0, 0.0, 1.0, -0.0], SUBNORMAL[dtype]]
    ours, theirs = gradients(dc, "x/y", columns, dtype, compiled), gradients(torch, "x/y", columns, dtype)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def others(values: list[float]) -> list[float]:
    """The product of all but each."""
    with np.errstate(all="ignore"):
        return [float(np.prod(np.delete(values, k))) for k in range(len(values))]


@both
@each_width
@pytest.mark.parametrize(
    "values", [[2.0, inf, 3.0], [2.0, inf, 0.0], [0.0, 4.0, -3.0], [0.0, 0.0, 5.0], [nan, 2.0, 0.0], [inf, -inf, 2.0]]
)
@pytest.mark.parametrize("text", ["x.prod()", "x.view(1,3).prod(1)", "x.view(3,1).prod(0)", "x.view(1,3,1).prod(1)"])
def test_a_products_gradient_is_that_of_the_others(text: str, values: list[float], dtype: str, compiled: bool) -> None:
    _, grad = gradients(dc, text, [values], dtype, compiled)
    np.testing.assert_array_equal(grad, others(values))


def hessian(m: Any, function: Any, values: list[float]) -> list[list[float]]:
    x = m.tensor(values, dtype=m.float64, requires_grad=True)
    (grad,) = m.autograd.grad(function(x).sum(), x, create_graph=True)
    return [m.autograd.grad(one, x, retain_graph=True)[0].tolist() for one in grad]


@pytest.mark.parametrize("values", [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("text", ["x.prod()", "x.view(3,1).prod(0)", "x.cumprod(0)"])
def test_second_derivatives_of_products_at_zeros_are_torchs(text: str, values: list[float]) -> None:
    assert hessian(dc, lambda_of(text, dc), values) == hessian(torch, lambda_of(text, torch), values)


def third(m: Any) -> float:
    x = m.zeros(3, dtype=m.float64).requires_grad_()
    grad = x.prod()
    for k in range(3):
        grad = m.autograd.grad(grad, x, create_graph=True)[0][k]
    return float(grad)


def test_the_third_derivative_of_a_product_of_zeros_is_one() -> None:
    assert third(dc) == third(torch) == 1.0


@both
@each_width
def test_running_products_keep_signs_of_zero_and_first_infinities(dtype: str, compiled: bool) -> None:
    for values in ([-1.0, 0.0, 3.0], [-0.0, 2.0, -1.0], [0.0, -2.0, -0.0]):
        ours, theirs = (gradients(m, "x.cumprod(0)", [values], dtype, compiled and m is dc)[0] for m in (dc, torch))
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
    made, grad = gradients(dc, "x.cumprod(0)", [[2.0, inf, 3.0]], dtype, compiled)
    assert (made.tolist(), grad.tolist()) == ([2.0, inf, inf], [inf, 8.0, inf])


@pytest.mark.parametrize("n", range(1, 7))
def test_polygamma_is_right_left_of_zero(n: int) -> None:
    at = [-30.3, -25.5, -10.2, -3.7, -2.5, -1.25, -0.75, -0.5, -0.25, -0.01, 0.01, 0.49, 1.0, 5.0]
    x = dc.tensor(at, dtype=dc.float64)
    # psi_n(x) = psi_n(x + k) - (-1)^n n! sum of (x + j)^-(n+1) over j < k, in exact sums
    ahead = dc.polygamma(n, x + 40.0).tolist()
    wanted = [
        value - (-1.0) ** n * math.factorial(n) * math.fsum((one + j) ** -(n + 1.0) for j in range(40))
        for one, value in zip(at, ahead)
    ]
    np.testing.assert_allclose(dc.polygamma(n, x).numpy(), wanted, rtol=1e-11)


@pytest.mark.parametrize("at", [-0.7, 1e-8, 0.5, 0.999])
def test_slopes_of_inverse_functions_are_told_by_their_results(at: float) -> None:
    x = dc.tensor(at, dtype=dc.float64, requires_grad=True)
    made = dc.erfinv(x)
    (grad,) = dc.autograd.grad(made, x, create_graph=True)
    (bend,) = dc.autograd.grad(grad, x)
    y = made.item()
    assert math.isclose(math.erf(y), at, rel_tol=1e-14)
    assert math.isclose(grad.item(), math.sqrt(math.pi) / 2 * math.exp(y * y), rel_tol=1e-14)
    assert math.isclose(bend.item(), math.pi / 2 * y * math.exp(2 * y * y), rel_tol=1e-13)
