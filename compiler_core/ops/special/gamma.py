"""The gamma function's family: lgamma, digamma, polygamma, mvlgamma, zeta, by shifts and asymptotic series.

In: values. Out: one value; integers become the default dtype first; computed in float64 and rounded once.
lgamma and digamma: the recurrence carries the argument to 10 or above, where Stirling's series has all digits; below
1/2 the reflection formula (Abramowitz and Stegun 6.1.17, 6.1.40, 6.3.7, 6.3.18). zeta(s, q): Euler and Maclaurin's
formula (A&S 23.2.9 and Cephes), after 32 terms; so q, and polygamma's argument for n >= 2, must be above -22 to be
right, and are NaN below. The error of lgamma is absolute near its zeros at 1 and 2. Gradients are those of the series.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from compiler_core import dtype as dt
from compiler_core.errors import AutogradError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, cast, dtype_of, floating, is_scalar, operands
from compiler_core.ops.composites.arithmetic import Operand
from compiler_core.ops.composites.trigonometry import floating_operands
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.special.elementary import in_float64, polynomial

# Bernoulli numbers B2, B4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_SHIFT = 10
_TERMS = 32  # of zeta's sum before its tail


def _from_pole(wide: Value) -> Value:
    """wide minus the nearest whole number: sin(pi x) and tan(pi x) keep their zeros exact."""
    return prims.sub(wide, prims.detach(prims.round(wide)))


def _lgamma_positive(x: Value) -> Value:
    small = F.lt(x, float(_SHIFT))
    low = prims.where(small, x, prims.full_like(x, 1.0))
    product = low
    for k in range(1, _SHIFT):
        product = prims.mul(product, F.add(low, float(k)))
    z = prims.where(small, F.add(x, float(_SHIFT)), x)
    inverse = prims.div(prims.full_like(z, 1.0), z)
    series = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    tail = prims.mul(polynomial(series[::-1], prims.mul(inverse, inverse)), inverse)
    stirling = F.add(prims.sub(prims.mul(F.sub(z, 0.5), prims.log(z)), z), 0.5 * math.log(2.0 * math.pi))
    total = prims.add(stirling, tail)
    return prims.where(small, prims.sub(total, prims.log(product)), total)


def _lgamma_wide(wide: Value) -> Value:
    infinite = F.isinf(wide)
    x = prims.where(infinite, prims.full_like(wide, 1.0), wide)
    endless = F.mul(prims.abs(prims.where(infinite, wide, prims.full_like(wide, 1.0))), math.inf)  # as is its slope
    reflected = F.lt(x, 0.5)
    value = _lgamma_positive(prims.where(reflected, F.sub(1.0, x), x))
    is_root = F.logical_or(F.eq(x, 1.0), F.eq(x, 2.0))
    value = prims.sub(value, F.where(is_root, prims.detach(value), 0.0))
    t = prims.where(reflected, _from_pole(x), prims.full_like(x, 0.5))
    sine = prims.abs(F.sin(F.mul(t, math.pi)))
    mirrored = prims.sub(prims.neg(F.log(F.mul(sine, 1.0 / math.pi))), value)
    mirrored = F.where(F.eq(t, 0.0), math.inf, mirrored)  # also where all numbers are whole, and `value` is infinite
    return prims.where(infinite, endless, prims.where(reflected, mirrored, value))


def lgamma(input: Value) -> Value:
    """log(|gamma(input)|): inf at 0, -1, -2, ..."""
    need_kind("lgamma", "biuf", input)
    x = floating(input)
    return cast(_lgamma_wide(in_float64(x)), dtype_of(x))


def _digamma_positive(x: Value) -> Value:
    small = F.lt(x, float(_SHIFT))
    low = prims.where(small, x, prims.full_like(x, 1.0))
    total = prims.full_like(x, 0.0)
    for k in range(_SHIFT):
        total = prims.add(total, prims.div(prims.full_like(x, 1.0), F.add(low, float(k))))
    z = prims.where(small, F.add(x, float(_SHIFT)), x)
    inverse = prims.div(prims.full_like(z, 1.0), z)
    square = prims.mul(inverse, inverse)
    series = [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    tail = prims.mul(polynomial(series[::-1], square), square)
    value = prims.sub(prims.sub(prims.log(z), F.mul(inverse, 0.5)), tail)
    return prims.where(small, prims.sub(value, total), value)


def digamma(input: Value) -> Value:
    """The derivative of lgamma: -inf at 0, inf at -0, NaN at -1, -2, ..."""
    need_kind("digamma", "biuf", input)
    x = floating(input)
    wide = in_float64(x)
    whole = prims.eq(wide, prims.detach(prims.floor(wide)))
    pole = F.logical_and(whole, F.le(wide, 0.0))
    safe = prims.where(pole, prims.full_like(wide, 1.0), wide)
    reflected = F.lt(safe, 0.5)
    value = _digamma_positive(prims.where(reflected, F.sub(1.0, safe), safe))
    angle = F.mul(prims.where(reflected, _from_pole(safe), prims.full_like(safe, 0.25)), math.pi)
    mirrored = prims.sub(value, F.mul(prims.div(F.cos(angle), F.sin(angle)), math.pi))
    at_zero = prims.neg(prims.copysign(prims.full_like(wide, math.inf), wide))
    at_pole = prims.where(F.eq(wide, 0.0), at_zero, prims.full_like(wide, math.nan))
    return cast(prims.where(pole, at_pole, prims.where(reflected, mirrored, value)), dtype_of(x))


def _power(base: Value, exponent: Value) -> Value:
    return prims.pow(base, exponent)


def _zeta_wide(s: Value, q: Value) -> Value:
    """Hurwitz' zeta for s > 1 and q no pole, both f64 and alike."""
    minus = prims.neg(s)
    total = _power(q, minus)
    for k in range(1, _TERMS):
        total = prims.add(total, _power(F.add(q, float(k)), minus))
    w = F.add(q, float(_TERMS))
    last = _power(w, minus)
    total = prims.add(total, prims.div(prims.mul(last, w), F.sub(s, 1.0)))
    total = prims.add(total, F.mul(last, 0.5))
    factor, power = s, prims.div(last, w)
    for k, b in enumerate(_BERNOULLI, 1):
        total = prims.add(total, F.mul(prims.mul(factor, power), b / math.factorial(2 * k)))
        factor = prims.mul(factor, prims.mul(F.add(s, 2.0 * k - 1.0), F.add(s, 2.0 * k)))
        power = prims.div(power, prims.mul(w, w))
    return total


@lies("alike")
def zeta(input: Operand, other: Operand) -> Value:
    """Hurwitz' zeta: the sum of (k + other)^-input over k >= 0. inf at poles, NaN for input < 1."""
    need_kind("zeta", "biuf", input, other)
    dtype = dt.promote(*(v if is_scalar(v) else as_value(v) for v in (input, other)))
    dtype = dtype if dtype.is_floating_point else dt.get_default_dtype()
    s, q = operands(input, other, dtype=dt.float64)
    pole = F.logical_and(F.le(q, 0.0), prims.eq(q, prims.floor(q)))
    unknown = F.logical_or(F.logical_and(F.le(q, 0.0), prims.ne(s, prims.floor(s))), F.lt(q, -22.0))
    unknown = F.logical_or(F.logical_and(unknown, F.logical_not(pole)), F.lt(s, 1.0))
    bad = F.logical_or(F.logical_or(pole, unknown), F.eq(s, 1.0))
    safe = F.masked_fill(q, bad, 1.0)
    value = _zeta_wide(prims.detach(F.masked_fill(s, bad, 2.0)), safe)
    value = F.masked_fill(value, pole, math.inf)
    value = F.masked_fill(F.masked_fill(value, unknown, math.nan), F.eq(s, 1.0), math.inf)
    return cast(value, dtype)


@lies("alike")
def polygamma(n: Any, input: Any) -> Value:
    """The n-th derivative of digamma; also in the method's order, polygamma(input, n)."""
    need_kind("polygamma", "biuf", n, input)
    if isinstance(input, int):
        n, input = input, n
    if n < 0:
        raise ShapeError("polygamma: n must not be negative", got=str(n))
    x = floating(input)
    if n == 0:
        return digamma(x)
    wide = in_float64(x)
    if n == 1:  # by reflection, so that all negative numbers are right
        reflected = F.lt(wide, 0.5)
        value = zeta(2.0, prims.where(reflected, F.sub(1.0, wide), wide))
        sine = F.sin(F.mul(prims.where(reflected, _from_pole(wide), prims.full_like(wide, 0.5)), math.pi))
        mirrored = prims.sub(prims.div(prims.full_like(sine, math.pi**2), prims.mul(sine, sine)), value)
        return cast(prims.where(reflected, mirrored, value), dtype_of(x))
    value = F.mul(zeta(float(n + 1), wide), (-1.0) ** (n + 1) * math.factorial(n))
    return cast(value, dtype_of(x))


def mvlgamma(input: Value, p: int) -> Value:
    """The logarithm of the multivariate gamma function of dimension p (constant included)."""
    need_kind("mvlgamma", "iuf", input)
    if p < 1:
        raise ShapeError("mvlgamma: p must be positive", got=str(p))
    x = floating(input)
    total = F.sum(lgamma(F.add(F.unsqueeze(x, -1), F.mul(F.arange(p, dtype=dtype_of(x)), -0.5))), -1)
    return F.add(total, p * (p - 1) / 4.0 * math.log(math.pi))


_NODES = (0.5 - math.sqrt(3.0) / 6.0, 0.5 + math.sqrt(3.0) / 6.0)  # of an integral from 0 to 1, weights 1/2


def _incomplete(input: Operand, other: Operand, *, upper: bool) -> Value:
    """The primitive, plus the integral of its derivative from x, detached, to x: 0, with the derivatives of P.

    By two nodes of Gauss and Legendre, which makes the first four derivatives right.
    """
    if getattr(input, "requires_grad", False):
        raise AutogradError("igamma has no derivative for its first argument", remedy="detach() it")
    loose_a, loose_x = floating_operands(input, other)
    a, x = prims.detach(loose_a), prims.detach(loose_x)
    value = (prims.igammac if upper else prims.igamma)(a, x)
    regular = F.logical_and(F.logical_and(F.gt(a, 0.0), F.gt(x, 0.0)), F.logical_and(F.isfinite(a), F.isfinite(x)))
    safe_a, safe_x = F.where(regular, a, 1.0), F.where(regular, x, 1.0)
    moved = F.where(regular, prims.sub(loose_x, x), 0.0)  # 0, with x's gradient
    change = functools.reduce(prims.add, [_slope(safe_a, prims.add(safe_x, F.mul(moved, node))) for node in _NODES])
    change = F.mul(prims.mul(moved, change), 1.0 / len(_NODES))
    return prims.sub(value, change) if upper else prims.add(value, change)


def _slope(a: Value, x: Value) -> Value:
    """The derivative of P(a, x) for x."""
    return F.exp(F.sub(F.sub(F.mul(F.sub(a, 1.0), F.log(x)), x), lgamma(a)))


@lies("alike")
def igamma(input: Value, other: Value) -> Value:
    """The regularised lower incomplete gamma function P(input, other). Differentiable in `other`, four times."""
    need_kind("igamma", "f", input)
    return _incomplete(input, other, upper=False)


@lies("alike")
def igammac(input: Value, other: Value) -> Value:
    """The regularised upper incomplete gamma function Q(input, other). Differentiable in `other`, four times."""
    need_kind("igammac", "f", input)
    return _incomplete(input, other, upper=True)
