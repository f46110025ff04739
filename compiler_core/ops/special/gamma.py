"""The gamma function's family: lgamma, digamma, polygamma, mvlgamma, zeta, by shifts and asymptotic series.

In: values. Out: one value; integers become the default dtype first; computed in float64 and rounded once.
lgamma and digamma: the recurrence carries the argument to 10 or above, where Stirling's series has all digits; below
1/2 the reflection formula (Abramowitz and Stegun 6.1.17, 6.1.40, 6.3.7, 6.3.18). zeta(s, q): Euler and Maclaurin's
formula (A&S 23.2.9 and Cephes), after 32 terms; so q must be above -22 to be right, and is NaN below. The error of
lgamma is absolute near its zeros at 1 and 2. The gradients are the next functions of the family, so that their poles
are those of the derivative.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from compiler_core.errors import AutogradError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import cast, dtype_of, floating
from compiler_core.ops.composites.arithmetic import Operand
from compiler_core.ops.composites.trigonometry import floating_operands
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.lying import lies
from compiler_core.ops.primitives.corners import cornered
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import PerOperand, Sample, Value
from compiler_core.ops.special.elementary import in_float64, polynomial

# Bernoulli numbers B2, B4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_SHIFT = 10
_TERMS = 32  # of zeta's sum before its tail


def _from_pole(wide: Value) -> Value:
    """wide minus the nearest whole number: sin(pi x) and tan(pi x) keep their zeros exact."""
    return prims.sub(wide, prims.round(wide))


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


def _lgamma(x: Value) -> Value:
    wide = in_float64(x)
    finite = prims.where(F.isinf(wide), prims.full_like(wide, 1.0), wide)
    reflected = F.lt(finite, 0.5)
    value = _lgamma_positive(prims.where(reflected, F.sub(1.0, finite), finite))
    value = F.where(F.logical_or(F.eq(finite, 1.0), F.eq(finite, 2.0)), 0.0, value)
    t = prims.where(reflected, _from_pole(finite), prims.full_like(finite, 0.5))
    sine = prims.abs(F.sin(F.mul(t, math.pi)))
    mirrored = prims.sub(prims.neg(F.log(F.mul(sine, 1.0 / math.pi))), value)
    value = prims.where(reflected, mirrored, value)
    endless = F.logical_or(F.isinf(wide), F.eq(t, 0.0))  # all large numbers are whole: `value` may be infinite too
    return cast(F.where(endless, math.inf, value), dtype_of(x))


_ABOVE = tuple(Sample((shape,), low=0.2, high=4.0) for shape in ((3, 4), ()))
LGAMMA = cornered("lgamma", _lgamma, lambda g, out, x: (prims.mul(g, prims.digamma(x)),), *_ABOVE)


def lgamma(input: Value) -> Value:
    """log(|gamma(input)|): inf at 0, -1, -2, ..."""
    need_kind("lgamma", "biuf", input)
    return prims.lgamma(floating(input))


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


def _digamma(x: Value) -> Value:
    wide = in_float64(x)
    pole = _is_pole(wide)
    safe = prims.where(pole, prims.full_like(wide, 1.0), wide)
    reflected = F.lt(safe, 0.5)
    value = _digamma_positive(prims.where(reflected, F.sub(1.0, safe), safe))
    mirrored = prims.sub(value, F.mul(_cotangent(prims.where(reflected, safe, prims.full_like(safe, 0.25))), math.pi))
    at_zero = prims.neg(prims.copysign(prims.full_like(wide, math.inf), wide))
    at_pole = prims.where(F.eq(wide, 0.0), at_zero, prims.full_like(wide, math.nan))
    return cast(prims.where(pole, at_pole, prims.where(reflected, mirrored, value)), dtype_of(x))


def _is_pole(wide: Value) -> Value:
    return F.logical_and(prims.eq(wide, prims.floor(wide)), F.le(wide, 0.0))


def _cotangent(wide: Value) -> Value:
    """cot(pi x), by the tangent of the complement where that is smaller."""
    t = _from_pole(wide)
    far = F.gt(prims.abs(t), 0.25)
    angle = F.mul(prims.where(far, F.sub(0.5, prims.abs(t)), prims.abs(t)), math.pi)
    sine, cosine = F.sin(angle), F.cos(angle)
    return prims.copysign(prims.where(far, prims.div(sine, cosine), prims.div(cosine, sine)), t)


DIGAMMA = cornered("digamma", _digamma, lambda g, out, x: (prims.mul(g, prims.polygamma(x, n=1)),), *_ABOVE)


def digamma(input: Value) -> Value:
    """The derivative of lgamma: -inf at 0, inf at -0, NaN at -1, -2, ..."""
    need_kind("digamma", "biuf", input)
    return prims.digamma(floating(input))


def _zeta_wide(s: Value, q: Value) -> Value:
    """Hurwitz' zeta for s > 1 and q no pole, both f64 and alike."""
    minus = prims.neg(s)
    total = prims.pow(q, minus)
    for k in range(1, _TERMS):
        total = prims.add(total, prims.pow(F.add(q, float(k)), minus))
    w = F.add(q, float(_TERMS))
    last = prims.pow(w, minus)
    tail = F.add(prims.div(prims.pow(w, F.sub(1.0, s)), F.sub(s, 1.0)), F.mul(last, 0.5))
    factor, power = s, prims.div(last, w)
    for k, b in enumerate(_BERNOULLI, 1):
        tail = prims.add(tail, F.mul(prims.mul(factor, power), b / math.factorial(2 * k)))
        factor = prims.mul(factor, prims.mul(F.add(s, 2.0 * k - 1.0), F.add(s, 2.0 * k)))
        power = prims.div(power, prims.mul(w, w))
    return prims.add(total, F.where(F.gt(s, 500.0), 0.0, tail))  # of so high a power nothing, but infinite factors


def _zeta(s: Value, q: Value) -> Value:
    dtype, s, q = dtype_of(s), in_float64(s), in_float64(q)
    pole = _is_pole(q)
    unknown = F.logical_or(F.logical_and(F.le(q, 0.0), prims.ne(s, prims.floor(s))), F.lt(q, -22.0))
    unknown = F.logical_or(F.logical_and(unknown, F.logical_not(pole)), F.lt(s, 1.0))
    bad = F.logical_or(F.logical_or(pole, unknown), F.eq(s, 1.0))
    value = _zeta_wide(F.masked_fill(s, bad, 2.0), F.masked_fill(q, bad, 1.0))
    value = F.masked_fill(value, pole, math.inf)
    return cast(F.masked_fill(F.masked_fill(value, unknown, math.nan), F.eq(s, 1.0), math.inf), dtype)


def _zeta_slope(g: Value, out: Value, s: Value, q: Value) -> Value:
    """-s zeta(s + 1, q), for q."""
    return prims.neg(prims.mul(g, prims.mul(s, prims.zeta(prims.add(s, prims.full_like(s, 1.0)), q))))


ZETA = cornered(
    "zeta",
    _zeta,
    PerOperand(lambda g, out, s, q: vjp_of(lambda power: _zeta(power, q), g, s)[0], _zeta_slope),
    *(Sample((shape, shape), low=1.5, high=4.0) for shape in ((3, 4), ())),
)


@lies("alike")
def zeta(input: Operand, other: Operand) -> Value:
    """Hurwitz' zeta: the sum of (k + other)^-input over k >= 0. inf at poles, NaN for input < 1."""
    need_kind("zeta", "biuf", input, other)
    s, q = floating_operands(input, other)
    return prims.zeta(prims.detach(s), q)


def _polygamma(x: Value, n: int) -> Value:
    """(-1)^(n+1) n! zeta(n + 1, x); below 0 by reflection, with the n-th derivative of cot."""
    wide = in_float64(x)
    pole = _is_pole(wide)
    safe = prims.where(pole, prims.full_like(wide, 1.0), wide)
    reflected = F.lt(safe, 0.0)
    s = prims.full_like(wide, n + 1.0)
    value = F.mul(_zeta_wide(s, prims.where(reflected, F.sub(1.0, safe), safe)), float(math.factorial(n)))
    cot = _cotangent(prims.where(reflected, safe, prims.full_like(safe, 0.25)))
    mirrored = F.mul(polynomial(_slope_of_cotangent(n), cot), math.pi ** (n + 1))
    mirrored = (prims.sub if n % 2 else prims.add)(mirrored, value)
    value = F.where(pole, math.inf, prims.where(reflected, mirrored, value))
    value = F.where(F.isinf(wide), F.where(F.gt(wide, 0.0), 0.0, math.nan), value)
    return cast(value if n % 2 else prims.neg(value), dtype_of(x))


def _slope_of_cotangent(n: int) -> list[float]:
    """(-1)^n times the n-th derivative of cot, as a polynomial of cot: p, then (1 + cot^2) p', and so on."""
    rising = [0.0, 1.0]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(rising)][1:]
        rising = [a + b for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope])]
    return rising[::-1]


POLYGAMMA = cornered(
    "polygamma",
    _polygamma,
    lambda g, out, x, n: (prims.mul(g, prims.polygamma(x, n=n + 1)),),
    *(Sample((shape,), {"n": n}, low=0.4, high=4.0) for shape in ((3, 4), ()) for n in (1, 2)),
)


@lies("alike")
def polygamma(n: Any, input: Any) -> Value:
    """The n-th derivative of digamma; also in the method's order, polygamma(input, n)."""
    need_kind("polygamma", "biuf", n, input)
    if isinstance(input, int):
        n, input = input, n
    if n < 0:
        raise ShapeError("polygamma: n must not be negative", got=str(n))
    return prims.polygamma(floating(input), n=n) if n else digamma(input)


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
    change = F.where(F.isfinite(change), change, 0.0)  # of huge numbers the slope is none
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
