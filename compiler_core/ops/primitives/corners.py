"""Functions whose derivative at corners and outside their domain is torch's, which no composition of theirs would give.

In: operands alike, floating. Out: one value. Each op has a value, which is its eager rule and what it is lowered to,
and a vjp that states torch's formula: xlogy, xlog1py, entr, logit, elu, leaky, gelu_tanh, hypot, sinc, fmod, bce. More
are in special/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import float64, of
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import level, rounded_once
from compiler_core.ops.checks import FLOATING, infer_alike
from compiler_core.ops.primitives.pointwise import as_array
from compiler_core.ops.primitives.tied import tied
from compiler_core.ops.quiet import quietly
from compiler_core.ops.registry import Array, Op, PerOperand, Sample, Value, register
from compiler_core.ops.rules import Composed


def cornered(name: str, value: Callable[..., Value], vjp: Callable[..., Any], *samples: Sample, work: int = 0) -> Op:
    """Register an op of this value, of 16-bit floats in float32. work: as of an `Op`."""
    value = rounded_once(value)
    rule = PerOperand(*map(rounded_once, vjp.rules)) if isinstance(vjp, PerOperand) else rounded_once(vjp)

    @quietly
    def eager(xp: Any, *arrays: Array, **attrs: Any) -> Array:
        return as_array(xp, value(*(as_array(xp, a) for a in arrays), **attrs))  # type: ignore[no-any-return]

    alike = infer_alike(name, FLOATING)
    return register(
        Op(
            name,
            lambda *metas, **attrs: alike(*metas),
            eager,
            rule,
            Composed(value, elementwise=True),
            samples,
            FLOATING,
            work=work,
        )
    )


def _number(x: Value, value: Value) -> Value:
    """A number in x's shape."""
    return level(x, value)


def _is_zero(x: Value) -> Value:
    return prims.eq(x, _number(x, 0.0))


# ---- x log y


def _times_log(x: Value, y: Value, log: Callable[[Value], Value], shift: float) -> Value:
    """x * log(y), 0 where x is 0, but NaN where y is."""
    safe = prims.where(_is_zero(x), _number(y, 1.0 - shift), y)
    product = prims.where(_is_zero(x), _number(x, 0.0), prims.mul(x, log(safe)))
    return prims.where(prims.isnan(y), y, product)


def _linear_times_log(g: Value, y: Value, shifted: Value, log: Callable[[Value], Value], shift: float) -> Value:
    """The same number, linear in g where the logarithm is finite, at 0 too: so that it can be differentiated by g."""
    at_edge = prims.bitwise_or(prims.le(shifted, _number(y, 0.0)), prims.eq(shifted, _number(y, math.inf)))
    return prims.mul(g, log(prims.where(prims.bitwise_and(_is_zero(g), at_edge), _number(y, 1.0 - shift), y)))


def _slopes(shift: float, log: Callable[[Value], Value]) -> Callable[..., tuple[Value, Value]]:
    def vjp(g: Value, out: Value, x: Value, y: Value) -> tuple[Value, Value]:
        shifted = prims.add(y, _number(y, shift)) if shift else y
        outside = prims.bitwise_and(_is_zero(x), prims.le(shifted, _number(y, 0.0)))
        by_x = prims.where(outside, _number(x, 0.0), _linear_times_log(g, y, shifted, log, shift))
        return by_x, prims.div(prims.mul(g, x), shifted)

    return vjp


_PAIR = (Sample(((3, 4), (3, 4)), low=0.2, high=3.0), Sample(((), ()), low=0.2, high=3.0))
XLOGY = cornered("xlogy", lambda x, y: _times_log(x, y, prims.log, 0.0), _slopes(0.0, prims.log), *_PAIR, work=12)
XLOG1PY = cornered(
    "xlog1py", lambda x, y: _times_log(x, y, prims.log1p, 1.0), _slopes(1.0, prims.log1p), *_PAIR, work=14
)


# ---- -x log x


def _entr(x: Value) -> Value:
    """-x log x: 0 at 0, -inf below."""
    zero = _number(x, 0.0)
    positive = prims.gt(x, zero)
    value = prims.neg(prims.mul(x, prims.log(prims.where(positive, x, _number(x, 1.0)))))
    outside = prims.where(prims.eq(x, zero), zero, _number(x, -math.inf))
    return prims.where(prims.isnan(x), x, prims.where(positive, value, outside))


def _vjp_entr(g: Value, out: Value, x: Value) -> tuple[Value]:
    return (prims.neg(prims.mul(g, prims.add(prims.log(x), _number(x, 1.0)))),)


ENTR = cornered(
    "entr", _entr, _vjp_entr, Sample(((3, 4),), low=0.1, high=2.0), Sample(((),), low=0.1, high=2.0), work=12
)


# ---- log(x / (1 - x))


def _logit(x: Value, eps: float = -1.0) -> Value:
    """log(x / (1 - x)), x held within [eps, 1 - eps] first; eps < 0: as it is."""
    if eps >= 0:
        low, high = _number(x, eps), _number(x, 1.0 - eps)
        x = prims.where(prims.lt(x, low), low, prims.where(prims.gt(x, high), high, x))
    return prims.log(prims.div(x, prims.sub(_number(x, 1.0), x)))


def _vjp_logit(g: Value, out: Value, x: Value, eps: float = -1.0) -> tuple[Value]:
    """g / (x (1 - x)); beyond eps 0, without one NaN."""
    low, high = (eps, 1.0 - eps) if eps >= 0 else (0.0, 1.0)
    inside = prims.bitwise_and(prims.ge(x, _number(x, low)), prims.le(x, _number(x, high)))
    slope = prims.div(g, prims.mul(x, prims.sub(_number(x, 1.0), x)))
    return (prims.where(inside, slope, _number(x, 0.0 if eps >= 0 else math.nan)),)


_UNIT = tuple(Sample(((3, 4),), attrs, low=0.1, high=0.9) for attrs in ({"eps": -1.0}, {"eps": 0.3}))
LOGIT = cornered("logit", _logit, _vjp_logit, *_UNIT, work=14)


# ---- elu


def _elu(x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Value:
    """scale x where positive, else scale alpha (exp(inner x) - 1)."""
    zero = _number(x, 0.0)
    positive = prims.gt(x, zero)
    below = prims.expm1(_times(prims.where(positive, zero, x), inner))
    return prims.where(positive, _times(x, scale), _times(below, alpha if scale == 1 else alpha * scale))


def _vjp_elu(
    g: Value, out: Value, x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0
) -> tuple[Value]:
    zero = _number(x, 0.0)
    positive = prims.gt(x, zero)
    factor = alpha if scale == inner == 1 else alpha * scale * inner
    below = _times(prims.exp(_times(prims.where(positive, zero, x), inner)), factor)
    return (prims.mul(g, prims.where(positive, _number(x, scale), below)),)


def _times(x: Value, factor: float) -> Value:
    return x if factor == 1 else prims.mul(x, _number(x, factor))


_ELU = {"alpha": 1.5, "scale": 1.2, "inner": 0.7}
ELU = cornered("elu", _elu, _vjp_elu, Sample(((3, 4),)), Sample(((3, 4),), _ELU), Sample(((),)), work=12)


# ---- leaky


def _leaky(x: Value, slope: float) -> Value:
    """x where positive, else slope x."""
    return prims.where(prims.gt(x, _number(x, 0.0)), x, _times(x, slope))


def _vjp_leaky(g: Value, out: Value, x: Value, slope: float) -> tuple[Value]:
    return (tied(prims.where(prims.gt(x, _number(x, 0.0)), g, _times(g, slope)), x),)


LEAKY = cornered("leaky", _leaky, _vjp_leaky, Sample(((3, 4),), {"slope": 0.1}), Sample(((),), {"slope": 0.1}), work=1)


# ---- gelu by tanh

_ROOT, _CUBIC = math.sqrt(2.0 / math.pi), 0.044715


def _inner(x: Value, cubic: float, times: float = 1.0) -> Value:
    """times sqrt(2/pi) (1 + cubic x^2)."""
    return prims.add(_times(prims.mul(x, x), times * cubic * _ROOT), _number(x, times * _ROOT))


def _gelu_tanh(x: Value) -> Value:
    """x (1 + tanh u) / 2, u = sqrt(2/pi) (x + 0.044715 x^3)."""
    u = prims.mul(x, _inner(x, _CUBIC))
    return prims.mul(x, _times(prims.add(prims.tanh(u), _number(x, 1.0)), 0.5))


def _vjp_gelu_tanh(g: Value, out: Value, x: Value) -> tuple[Value]:
    """g (s + 2 x u' s (1 - s)), s = sigmoid(2 u): the smaller of s and 1 - s has its digits, so neither cancels."""
    u = prims.mul(x, _inner(x, _CUBIC, 2.0))  # twice the u of the value
    negative = prims.lt(u, _number(x, 0.0))
    small = prims.sigmoid(prims.where(negative, u, prims.neg(u)))  # no abs, whose slope at 0 is 0
    large = prims.sub(_number(x, 1.0), small)
    slope = prims.mul(_inner(x, 3.0 * _CUBIC, 2.0), prims.mul(x, prims.mul(small, large)))
    return (prims.mul(g, prims.add(prims.where(negative, small, large), slope)),)


GELU_TANH = cornered("gelu_tanh", _gelu_tanh, _vjp_gelu_tanh, Sample(((3, 4),)), Sample(((),)), work=16)


# ---- sqrt(a^2 + b^2)


def _hypot(a: Value, b: Value) -> Value:
    """In f64; f64 itself is scaled by the larger side (Kahan). An infinite side counts beside NaN."""
    dtype, a, b = of(a.dtype), prims.cast(a, float64), prims.cast(b, float64)
    a, b, one = prims.abs(a), prims.abs(b), _number(a, 1.0)
    endless = prims.bitwise_or(*(prims.eq(v, _number(v, math.inf)) for v in (a, b)))
    if dtype is float64:
        scale = prims.maximum(a, b)
        scale = prims.where(prims.bitwise_or(endless, _is_zero(scale)), one, scale)
        a, b = prims.div(a, scale), prims.div(b, scale)
    root = prims.sqrt(prims.add(prims.mul(a, a), prims.mul(b, b)))
    root = prims.mul(root, scale) if dtype is float64 else root
    return prims.cast(prims.where(endless, _number(root, math.inf), root), dtype)


def _vjp_hypot(g: Value, out: Value, a: Value, b: Value) -> tuple[Value, Value]:
    return prims.mul(g, prims.div(a, out)), prims.mul(g, prims.div(b, out))


HYPOT = cornered("hypot", _hypot, _vjp_hypot, Sample(((3, 4), (3, 4))), Sample(((), ())), work=10)


# ---- sin(pi x) / (pi x)

_NEAR = 0.3  # from there on the formula of the slope does not cancel
# the slope is pi t times a polynomial of t^2, t = pi x
_SINC_SLOPE = tuple((-1.0) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(8, 0, -1))


def _sinc(x: Value) -> Value:
    safe = prims.where(_is_zero(x), _number(x, 1.0), x)
    angle = _times(safe, math.pi)
    return prims.where(_is_zero(x), _number(x, 1.0), prims.div(prims.sin(angle), angle))


def _vjp_sinc(g: Value, out: Value, x: Value) -> tuple[Value]:
    """(cos(pi x) - sinc(x)) / x, near 0 by its series."""
    near = prims.lt(prims.abs(x), _number(x, _NEAR))
    t = _times(prims.where(near, x, _number(x, 0.0)), math.pi)
    square, series = prims.mul(t, t), _number(x, _SINC_SLOPE[0])
    for c in _SINC_SLOPE[1:]:
        series = prims.add(prims.mul(series, square), _number(x, c))
    far = prims.where(near, _number(x, 1.0), x)
    slope = prims.div(prims.sub(prims.cos(_times(far, math.pi)), out), far)
    return (prims.mul(g, prims.where(near, _times(prims.mul(series, t), math.pi), slope)),)


SINC = cornered("sinc", _sinc, _vjp_sinc, Sample(((3, 4),)), Sample(((),)), work=12)


# ---- C's remainder


def _fmod(a: Value, b: Value) -> Value:
    zero = _number(a, 0.0)
    negative = prims.lt(a, zero)
    rest = prims.remainder(prims.where(negative, prims.neg(a), a), prims.where(prims.lt(b, zero), prims.neg(b), b))
    return prims.where(negative, prims.neg(rest), rest)


def _by_divisor(g: Value, out: Value, a: Value, b: Value) -> Value:
    """a - b trunc(a / b), with the whole part constant."""
    return prims.neg(prims.mul(g, prims.trunc(prims.div(a, b))))


FMOD = cornered(
    "fmod", _fmod, PerOperand(lambda g, out, a, b: g, _by_divisor), Sample(((3, 4), (3, 4)), low=1.1, high=1.9), work=8
)


# ---- the cross entropy of a probability and a target


def _held(logarithm: Value) -> Value:
    return prims.maximum(logarithm, _number(logarithm, -100.0))


def _bce(x: Value, y: Value) -> Value:
    """(y - 1) log(1 - x) - y log x, the logarithms held above -100."""
    against = prims.mul(prims.sub(y, _number(y, 1.0)), _held(prims.log1p(prims.neg(x))))
    return prims.sub(against, prims.mul(y, _held(prims.log(x))))


_LEAST_SPREAD = float(np.float32(1e-12))  # torch's constant, of f32 whatever x is


def _by_probability(g: Value, out: Value, x: Value, y: Value) -> Value:
    """g (x - y) / (x (1 - x)), the divisor held above 1e-12: finite at 0 and 1, where the value is held."""
    spread = prims.mul(prims.sub(_number(x, 1.0), x), x)
    return prims.mul(g, prims.div(prims.sub(x, y), prims.maximum(spread, _number(x, _LEAST_SPREAD))))


def _by_target(g: Value, out: Value, x: Value, y: Value) -> Value:
    return prims.mul(g, prims.sub(prims.log1p(prims.neg(x)), prims.log(x)))


_INSIDE = (Sample(((3, 4), (3, 4)), low=0.1, high=0.9), Sample(((), ()), low=0.1, high=0.9))
BCE = cornered("bce", _bce, PerOperand(_by_probability, _by_target), *_INSIDE, work=26)
