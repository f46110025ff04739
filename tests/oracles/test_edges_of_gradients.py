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


SPREADS = [
    [1e20, 2e20, 3e20],
    [1e-25, 2e-25, 3e-25],
    [1.0, 2.0, 4.0],
    [5.0, 5.0, 5.0],
    [1e30, 1.0, -1e-30],
    [inf, 1.0, 2.0],
]
STDS = ["x.std()", "x.view(1,3).std(1,keepdim=True)", "x.view(3,1).std(0,False)", "m.std_mean(x,0,correction=2)[0]"]


@both
@pytest.mark.parametrize("values", SPREADS)
@pytest.mark.parametrize("text", STDS)
def test_a_deviation_whose_square_float32_does_not_hold_is_torchs(
    text: str, values: list[float], compiled: bool
) -> None:
    ours, theirs = gradients(dc, text, [values], "float32", compiled), gradients(torch, text, [values], "float32")
    np.testing.assert_allclose(ours[0], theirs[0], rtol=3e-7)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=2e-6, atol=3e-7)
    made = gradients(dc, "x.std()", [[2e38, 3e38, 2.5e38]], "float32", compiled)[0]  # infinite in torch
    assert math.isclose(made, 5e37, rel_tol=1e-6)


def test_a_deviations_second_derivative_is_torchs() -> None:
    for values in ([1.0, 2.0, 4.0], [5.0, 5.0, 5.0]):
        ours, theirs = (hessian(m, lambda x: x.std(), values) for m in (dc, torch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@both
def test_the_gradient_of_gelu_by_tanh_does_not_cancel(compiled: bool) -> None:
    at = np.linspace(-9.0, 9.0, 2001).astype(np.float32)
    x = dc.tensor(at, requires_grad=True)
    function = lambda_of("F.gelu(x,approximate='tanh')", dc)
    (grad,) = dc.autograd.grad((dc.compile(function) if compiled else function)(x).sum(), x)
    wide = at.astype(np.float64)
    root = math.sqrt(2.0 / math.pi)
    s = 1.0 / (1.0 + np.exp(-2.0 * root * (wide + 0.044715 * wide**3)))
    wanted = s + 2.0 * wide * s * (1.0 - s) * root * (1.0 + 3.0 * 0.044715 * wide**2)
    np.testing.assert_allclose(grad.numpy(), wanted, atol=2.5e-7, rtol=0)
    left = at < -4
    np.testing.assert_allclose(grad.numpy()[left], wanted[left], rtol=2e-5)


def test_the_second_derivative_of_gelu_by_tanh_is_torchs() -> None:
    values = [0.0, -0.0, 1.0, -2.0, 5.0]
    ours, theirs = (hessian(m, lambda x, m=m: m.nn.functional.gelu(x, approximate="tanh"), values) for m in (dc, torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


PRODUCTS = """
m.addmm(x.view(2,2),y.view(2,2),y.view(2,2),alpha=0)
m.addmm(x.view(2,2),y.view(2,2),y.view(2,2),alpha=0,beta=0)
m.addmm(x.view(2,2),y.view(2,2),y.view(2,2),alpha=0,beta=2)
m.addmv(x[:2],y.view(2,2),y[:2],alpha=0)
m.addbmm(x.view(2,2),y.view(1,2,2),y.view(1,2,2),alpha=0)
m.addr(x.view(2,2),y[:2],y[2:],alpha=0)
m.addcmul(x,y,y,value=0)
m.addcdiv(x,y,y,value=0)
m.add(x,y,alpha=0)
m.sub(x,y,alpha=0)
""".strip().splitlines()


@both
@each_width
@pytest.mark.parametrize("text", PRODUCTS)
def test_what_is_scaled_by_zero_counts_where_it_does_in_torch(text: str, dtype: str, compiled: bool) -> None:
    columns = [[1.0, nan, 3.0, inf], [nan, inf, 1.0, 2.0]]
    ours, theirs = gradients(dc, text, columns, dtype, compiled), gradients(torch, text, columns, dtype)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


@both
def test_a_batch_of_products_scaled_by_zero_does_not_count(compiled: bool) -> None:
    for n in (2, 64):  # of small ones torch's own loop counts
        columns = [[1.0] * n * n, [nan] * n * n]
        text = f"m.baddbmm(x.view(1,{n},{n}),y.view(1,{n},{n}),y.view(1,{n},{n}),alpha=0)"
        made = gradients(dc, text, columns, "float32", compiled)[0]
        assert made.tolist() == np.ones((1, n, n)).tolist()
        assert n == 2 or made.tolist() == gradients(torch, text, columns, "float32")[0].tolist()


def test_slopes_of_sinc_and_of_the_modulus_do_not_cancel_near_zero() -> None:
    at = [1e-300, 1e-8, -0.01, 0.29, 0.31, 1.0]
    x = dc.tensor(at, dtype=dc.float64, requires_grad=True)
    (grad,) = dc.autograd.grad(dc.sinc(x).sum(), x)
    # sinc' is -pi times the integral of u sin(pi x u) over u from 0 to 1
    nodes, weights = np.polynomial.legendre.leggauss(40)
    u, w = (nodes + 1) / 2, weights / 2
    wanted = [-math.pi * float(np.sum(w * u * np.sin(math.pi * one * u))) for one in at]
    np.testing.assert_allclose(grad.numpy(), wanted, rtol=1e-13)
    re, im = (dc.tensor([5e-324, 0.0, 3.0], dtype=dc.float64, requires_grad=True) for _ in range(2))
    grads = dc.autograd.grad(dc.complex(re, im).abs().sum(), (re, im))
    assert [g.tolist()[:2] for g in grads] == [[1.0, 0.0], [1.0, 0.0]]  # the modulus is rounded to the same subnormal


@both
def test_poles_and_ends_of_zeta_and_polygamma(compiled: bool) -> None:
    zeta = dc.compile(dc.special.zeta) if compiled else dc.special.zeta
    made = zeta(dc.tensor([inf, inf, 1e300, 2.0], dtype=dc.float64), dc.tensor([1.0, 0.5, 2.0, 1.0], dtype=dc.float64))
    np.testing.assert_allclose(made.numpy(), [1.0, inf, 0.0, math.pi**2 / 6], rtol=1e-15)
    made = dc.polygamma(1, dc.tensor([inf, 1e300], dtype=dc.float64))
    np.testing.assert_allclose(made.numpy(), [0.0, 1e-300], rtol=1e-15)
    assert float(dc.special.ndtri(dc.tensor(5e-324, dtype=dc.float64))) == pytest.approx(-38.4674, abs=1e-3)


AGAIN = {
    "x**1": "refused",
    "x*2": "refused",
    "x/2": "refused",
    "x*y": "refused",
    "m.fmod(x,y)": "refused",
    "m.fmod(x,2)": "allowed",
    "m.fmod(x,y.detach())": "allowed",
    "x%2": "allowed",
    "m.gradient(x)[0]": "allowed",
    "m.gradient(x,spacing=0.5,edge_order=2)[0]": "allowed",
    "x+y": "allowed",
    "x.sum()": "allowed",
}


def second_backward(m: Any, text: str, compiled: bool) -> str:
    x, y = (m.tensor([0.5, 1.5, 2.0], requires_grad=True) for _ in range(2))
    function = lambda_of(text, m)
    if compiled:
        function = dc.compile(function) if m is dc else torch.compile(function, backend="aot_eager")
    made = function(x, y).sum() if not compiled else function(x, y)
    ones = m.ones_like(made)
    made.backward(ones)
    try:
        made.backward(ones)
    except RuntimeError as error:
        return "refused" if "second time" in str(error) else str(error)
    return "allowed"


@pytest.mark.parametrize("text", AGAIN)
def test_a_second_backward_is_refused_where_torch_refuses_it(text: str) -> None:
    assert second_backward(dc, text, False) == second_backward(torch, text, False) == AGAIN[text]
    assert second_backward(dc, text, True) == "refused"


def test_torchs_compiled_calls_refuse_a_second_backward() -> None:
    assert [second_backward(torch, text, True) for text in ("x+y", "x*2")] == ["refused", "refused"]


@both
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_large_logits_keeps_its_digits(smoothing: float, compiled: bool) -> None:
    logits = [[1e4, 1e4 + 1, 1e4 - 1], [3e38, 3e38, 1.0], [-5e6, -5e6, -5e6], [50.0, 51.0, 49.5]]
    found = []
    for m in (dc, torch):
        x, target = m.tensor(logits, requires_grad=True), m.tensor([0, 1, 2, 2])
        function = lambda_of(f"F.cross_entropy(x,y,reduction='none',label_smoothing={smoothing})", m)
        made = (dc.compile(function) if compiled and m is dc else function)(x, target)
        (grad,) = m.autograd.grad(made.sum(), x)
        found.append((made.detach().numpy(), grad.numpy()))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-6, atol=2e-7)


ONE_EACH = """
x.view(4,1).norm(dim=1)
x.view(4,1).norm(3,dim=1,keepdim=True)
x.view(4,1,1).norm(-1,dim=(1,2))
x[:1].norm()
m.linalg.vector_norm(x.view(1,4),1.5,dim=0)
F.normalize(x.view(4,1))
""".strip().splitlines()


@both
@pytest.mark.parametrize("text", ONE_EACH)
def test_the_norm_of_one_number_is_its_size(text: str, compiled: bool) -> None:
    for values in ([1e-40, 3e38, -2.0, 0.0], [-inf, 1e20, 1e-20, -3e38]):
        ours, theirs = gradients(dc, text, [values], "float32", compiled), gradients(torch, text, [values], "float32")
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
        known = np.isfinite(theirs[1])  # torch's quotients overflow
        np.testing.assert_allclose(ours[1][known], theirs[1][known], rtol=1e-6, atol=1e-6)


def test_incomplete_gamma_of_large_and_of_tiny_orders() -> None:
    a = [1e6, 1e6, 1e8, 1e8, 1e10, 1e15, 1e30, 1e30, 1e305, 1e308]
    x = [1e6, 1.001e6, 1e8, 1.0001e8, 1e10, 1e15, 1e30, 2e30, 1e305, 1e308]
    for name in ("igamma", "igammac"):
        ours, theirs = (getattr(m, name)(*(m.tensor(v, dtype=m.float64) for v in (a, x))).numpy() for m in (dc, torch))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)
    order = dc.tensor(1e-12, dtype=dc.float64)
    exponential_integrals = {0.5: 0.5597735947761608, 1e-3: 6.331539364136149, 0.99: 0.22309982579017706}
    for at, wanted in exponential_integrals.items():
        assert math.isclose(dc.igammac(order, dc.tensor(at, dtype=dc.float64)).item() / 1e-12, wanted, rel_tol=1e-9)


@both
def test_quantiles_beside_infinities_are_torchs(compiled: bool) -> None:
    for values in ([-inf, -inf, 1.0, 0.0], [inf, -inf, 0.0, 1.0], [1.0, 2.0, 4.0, 8.0], [3e38, -3e38, 0.0, 1.0]):
        for q in (0.1, 0.3, 0.5, 0.8):
            ours, theirs = (
                gradients(m, f"x.quantile({q})", [values], "float32", compiled and m is dc)[0] for m in (dc, torch)
            )
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("order", [-1, -2.5, -inf])
def test_a_norm_of_negative_order_over_nothing_is_refused(order: float) -> None:
    for m in (dc, torch):
        with pytest.raises(RuntimeError):
            m.zeros(3, 0).norm(order)
        assert m.zeros(0, 3).norm(order, dim=1).shape == (0,)


LABELS = "m.tensor([0, -1, 1])"
AT_EDGES: list[tuple[str, list[list[float]]]] = [
    (
        "F.binary_cross_entropy(x, y, reduction='none')",
        [[0.0, 1.0, 0.0, 1.0, 1e-9, 0.3], [0.0, 1.0, 1.0, 0.0, 0.0, 0.5]],
    ),
    ("m.copysign(x, y)", [[1.0, -1.0, nan, 0.0], [0.0, -0.0, 2.0, 1.0]]),
    (f"F.multilabel_margin_loss(x, {LABELS})", [[1.0, 0.0, 0.0]]),
    (f"F.multi_margin_loss(x, {LABELS}[0])", [[1.0, 0.0, 0.0]]),
    ("F.hinge_embedding_loss(x, m.tensor([1.0, -1.0, -1.0], dtype=x.dtype))", [[0.0, 1.0, 2.0]]),
]


@both
@each_width
@pytest.mark.parametrize(("text", "columns"), AT_EDGES)
def test_gradients_at_edges_are_torchs(text: str, columns: list[list[float]], dtype: str, compiled: bool) -> None:
    """Where a loss has its corner, where a logarithm is held, and of NaN."""
    ours, theirs = gradients(dc, text, columns, dtype, compiled), gradients(torch, text, columns, dtype)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6 if dtype == "float32" else 1e-12)
