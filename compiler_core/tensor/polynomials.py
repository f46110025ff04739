"""Orthogonal polynomials of torch.special by their three-term recurrences: Chebyshev, Hermite, Laguerre, Legendre.

In: x, and the degree n, a number or a tensor (its whole part counts; negative ones give 0). Out: a Tensor.
The recurrence runs to the largest degree, so a tensor of degrees is read: a graph break where it is traced. No
gradients, as in torch. Source: Abramowitz and Stegun 22.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.ops import functional as F
from compiler_core.ops.composites.trigonometry import floating_operands
from compiler_core.ops.lying import as_told
from compiler_core.ops.registry import Value
from compiler_core.tensor.by_example import of_all
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.torch_arguments import need_a_tensor

# (k, x, p_k, p_(k-1)) -> p_(k+1)
Step = Callable[[int, Value, Value, Value], Value]


def _recurrence(first: Callable[[Value], Value], step: Step, doc: str) -> Callable[[Any, Any], Tensor]:
    """The polynomial with p_0 = 1, p_1 = first(x), and `step`."""

    def polynomial(input: Any, n: Any) -> Tensor:
        need_a_tensor(input, n)
        highest = int(n) if isinstance(n, (int, float)) else int(F.amax(of_all(n))) if n.numel() else 0
        x, degrees = (F.detach(v) for v in floating_operands(input, n))
        degrees = F.trunc(degrees)
        before, now = F.mul(F.ones_like(x), 1.0), first(x)
        result = F.where(F.eq(degrees, 0.0), before, F.zeros_like(x))
        for k in range(1, highest + 1):
            result = F.where(F.eq(degrees, float(k)), now, result)
            before, now = now, step(k, x, now, before)
        return as_told("alike", result, (input, n))  # type: ignore[no-any-return]

    polynomial.__doc__ = doc
    return polynomial


def _chebyshev(k: int, x: Value, now: Value, before: Value) -> Value:
    return F.sub(F.mul(F.mul(x, 2.0), now), before)


def _shifted(first: Callable[[Value], Value], doc: str) -> Callable[[Any, Any], Tensor]:
    """The polynomial in 2 x - 1."""
    plain = _recurrence(first, _chebyshev, doc)

    def polynomial(input: Any, n: Any) -> Tensor:
        need_a_tensor(input, n)
        x = F.mul(input, 2.0) if isinstance(input, Tensor) else 2.0 * input
        return plain(F.sub(x, 1.0) if isinstance(x, Tensor) else x - 1.0, n)

    polynomial.__doc__ = doc
    return polynomial


def _first_t(x: Value) -> Value:
    return x


def _first_u(x: Value) -> Value:
    return F.mul(x, 2.0)


def _first_v(x: Value) -> Value:
    return F.sub(F.mul(x, 2.0), 1.0)


def _first_w(x: Value) -> Value:
    return F.add(F.mul(x, 2.0), 1.0)


chebyshev_polynomial_t = _recurrence(_first_t, _chebyshev, "Chebyshev's T_n(input).")
chebyshev_polynomial_u = _recurrence(_first_u, _chebyshev, "Chebyshev's U_n(input).")
chebyshev_polynomial_v = _recurrence(_first_v, _chebyshev, "Chebyshev's V_n(input).")
chebyshev_polynomial_w = _recurrence(_first_w, _chebyshev, "Chebyshev's W_n(input).")
shifted_chebyshev_polynomial_t = _shifted(_first_t, "T_n(2 input - 1).")
shifted_chebyshev_polynomial_u = _shifted(_first_u, "U_n(2 input - 1).")
shifted_chebyshev_polynomial_v = _shifted(_first_v, "V_n(2 input - 1).")
shifted_chebyshev_polynomial_w = _shifted(_first_w, "W_n(2 input - 1).")
hermite_polynomial_h = _recurrence(
    _first_u,
    lambda k, x, now, before: F.sub(F.mul(F.mul(x, 2.0), now), F.mul(before, 2.0 * k)),
    "The physicists' Hermite polynomial H_n(input).",
)
hermite_polynomial_he = _recurrence(
    _first_t,
    lambda k, x, now, before: F.sub(F.mul(x, now), F.mul(before, float(k))),
    "The probabilists' Hermite polynomial He_n(input).",
)
laguerre_polynomial_l = _recurrence(
    lambda x: F.sub(1.0, x),
    lambda k, x, now, before: F.div(F.sub(F.mul(F.sub(2.0 * k + 1.0, x), now), F.mul(before, float(k))), k + 1.0),
    "Laguerre's polynomial L_n(input).",
)
legendre_polynomial_p = _recurrence(
    _first_t,
    lambda k, x, now, before: F.div(F.sub(F.mul(F.mul(x, 2.0 * k + 1.0), now), F.mul(before, float(k))), k + 1.0),
    "Legendre's polynomial P_n(input).",
)
