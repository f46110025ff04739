"""torch.special's elementary functions: logarithms of sums, entropies, the normal distribution, erf's kin.

In: values and Python scalars, broadcast and promoted. Out: one value; integers become the default dtype first.
Computed in float64 and rounded once, so a float32 result is right to its last digits.
Sources: erfinv starts from Giles' approximation ("Approximating the erfinv function", 2012), within 1e-7 of 1 from the
first terms of erfc's asymptotic series (Abramowitz and Stegun 7.1.23), and takes Newton steps; erfcx by the continued
fraction of Laplace (Abramowitz and Stegun 7.1.14), below 2 by erfc itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, cast, dtype_of, floating, loose, operands, rounded_once
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.composites.arithmetic import Operand
from compiler_core.ops.composites.trigonometry import floating_operands
from compiler_core.ops.lying import lies
from compiler_core.ops.primitives.corners import cornered
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Sample, Value
from compiler_core.ops.whole import whole


def in_float64(x: Value) -> Value:
    """x (floating) in float64."""
    return cast(x, dt.float64)


def polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """The polynomial with `coefficients`, highest power first, at x (Horner)."""
    total = prims.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = F.add(prims.mul(total, x), c)
    return total


# ---- logarithms and exponentials


def _log_of_sum(input: Operand, other: Operand, base: float) -> Value:
    """The larger one plus log(1 + base^-|difference|)."""
    a, b = floating_operands(input, other)
    distance = F.masked_fill(F.abs(prims.sub(a, b)), prims.eq(a, b), 0.0)  # also of two equal infinities
    rest = prims.log1p(F.exp(F.mul(distance, -math.log(base))))
    return prims.add(F.maximum(a, b), F.mul(rest, 1.0 / math.log(base)))


@rounded_once
def logaddexp(input: Value, other: Value) -> Value:
    """log(exp(input) + exp(other)), without overflow; of complex numbers by the one of greater real part."""
    need_kind("logaddexp", "fc", input, other)
    if dt.promote(loose(input), loose(other)).is_complex:
        a, b = operands(input, other)
        is_less = prims.lt(prims.real(a), prims.real(b))
        large, small = prims.where(is_less, b, a), prims.where(is_less, a, b)
        return prims.add(large, prims.log1p(prims.exp(prims.sub(small, large))))
    return _log_of_sum(input, other, math.e)


@rounded_once
def logaddexp2(input: Value, other: Value) -> Value:
    """log2(2^input + 2^other), without overflow."""
    need_kind("logaddexp2", "f", input, other)
    return _log_of_sum(input, other, 2.0)


def xlogy(input: Operand, other: Operand) -> Value:
    """input * log(other), 0 where input is 0."""
    return prims.xlogy(*floating_operands(input, other))


def xlog1py(input: Operand, other: Operand) -> Value:
    """input * log(1 + other), 0 where input is 0."""
    return prims.xlog1py(*floating_operands(input, other))


def entr(input: Value) -> Value:
    """-input * log(input): 0 at 0, -inf below."""
    return prims.entr(floating(input))


@rounded_once
def logit(input: Value, eps: float | None = None) -> Value:
    """log(input / (1 - input)), input limited to [eps, 1 - eps] first."""
    return prims.logit(floating(input), -1.0 if eps is None else eps)


# ---- the error function's kin and the normal distribution

_FRACTION_TERMS = 60


def _tails(y: Value) -> tuple[Value, Value]:
    """Laplace's continued fraction for y >= 2, t = y + 1/2 / t', and its t': exp(y^2) erfc(y) is 1 / (sqrt(pi) t)."""
    tail = inner = y
    for k in range(_FRACTION_TERMS, 0, -1):
        inner = tail
        tail = prims.add(y, prims.div(prims.full_like(y, k / 2.0), tail))
    return tail, inner


def _erfcx(x: Value) -> Value:
    wide = in_float64(x)
    far = F.ge(wide, 2.0)
    near = prims.where(far, prims.full_like(wide, 0.0), wide)
    by_erf = prims.mul(F.exp(prims.mul(near, near)), prims.erfc(near))
    tail, _ = _tails(prims.where(far, wide, prims.full_like(wide, 2.0)))
    return cast(prims.where(far, F.div(1.0 / math.sqrt(math.pi), tail), by_erf), dtype_of(x))


def _vjp_erfcx(g: Value, out: Value, x: Value) -> tuple[Value]:
    """2 x erfcx(x) - 2 / sqrt(pi); where that would cancel, by the continued fraction."""
    wide = in_float64(x)
    far = F.ge(wide, 2.0)
    zero = prims.full_like(wide, 0.0)
    near = prims.mul(prims.where(far, zero, wide), prims.where(far, zero, in_float64(out)))
    tail, inner = _tails(prims.where(far, wide, prims.full_like(wide, 2.0)))
    slope = prims.where(
        far,
        F.div(-1.0 / math.sqrt(math.pi), prims.mul(tail, inner)),
        F.sub(F.mul(near, 2.0), 2.0 / math.sqrt(math.pi)),
    )
    return (prims.mul(g, cast(slope, dtype_of(x))),)


ERFCX = cornered("erfcx", _erfcx, _vjp_erfcx, Sample(((3, 4),), low=-1.0, high=4.0), Sample(((),)))


def erfcx(input: Value) -> Value:
    """exp(input^2) * erfc(input)."""
    need_kind("erfcx", "biuf", input)
    return prims.erfcx(floating(input))


def ndtr(input: Value) -> Value:
    """The standard normal distribution's area left of input."""
    need_kind("ndtr", "biuf", input)
    x = floating(input)
    return cast(F.mul(prims.erfc(F.mul(in_float64(x), -math.sqrt(0.5))), 0.5), dtype_of(x))


def log_ndtr(input: Value) -> Value:
    """log(ndtr(input)), also far left of 0."""
    need_kind("log_ndtr", "biuf", input)
    x = floating(input)
    wide = in_float64(x)
    left = F.lt(wide, -1.0)
    y = F.mul(prims.where(left, wide, prims.full_like(wide, -1.0)), -math.sqrt(0.5))
    scaled = in_float64(erfcx(y))
    tail = prims.sub(F.log(F.mul(scaled, 0.5)), prims.mul(y, y))
    right = prims.where(left, prims.full_like(wide, 0.0), wide)
    near = prims.log1p(F.mul(prims.erfc(F.mul(right, math.sqrt(0.5))), -0.5))
    return cast(prims.where(left, tail, near), dtype_of(x))


_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
           -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
         1.00167406, 2.83297682)  # fmt: skip


def _erfinv_of(x: Value, rest: Value, steps: int = 5) -> Value:
    """erfinv(x) for |x| < 1 in float64; rest: 1 - |x|, for the tail. steps: of Newton's."""
    size = prims.abs(x)
    w = prims.neg(F.log(prims.mul(rest, F.add(size, 1.0))))
    centre = polynomial(_CENTRE, F.sub(w, 2.5))
    tail = polynomial(_TAIL, F.sub(prims.sqrt(F.clamp(w, 5.0)), 3.0))
    logarithm = F.add(F.clamp(w, 5.0), math.log(2.0))  # of `rest`, with its sign turned
    far = prims.sqrt(prims.sub(logarithm, F.mul(F.log(F.mul(logarithm, math.pi)), 0.5)))
    y = prims.mul(prims.where(F.lt(w, 5.0), centre, prims.where(F.lt(w, 16.0), tail, far)), size)
    for step in range(steps):
        residual = prims.sub(rest, prims.erfc(y))
        if step >= steps - 2:  # the last ones keep the digits near 0
            residual = prims.where(F.lt(size, 0.5), prims.sub(prims.erf(y), size), residual)
        root = F.exp(F.mul(prims.mul(y, y), 0.5))  # whose square may overflow
        y = prims.sub(y, prims.mul(prims.mul(F.mul(residual, math.sqrt(math.pi) / 2.0), root), root))
    return prims.copysign(y, x)


def _erfinv_value(x: Value) -> Value:
    wide = in_float64(x)
    size = prims.abs(wide)
    inside = F.lt(size, 1.0)
    safe = prims.where(inside, wide, prims.full_like(wide, 0.0))
    value = _erfinv_of(safe, F.sub(1.0, prims.abs(safe)), steps=5 if dtype_of(x) is dt.float64 else 2)
    edge = prims.mul(wide, F.where(inside, 1.0, F.where(F.eq(size, 1.0), prims.full_like(wide, math.inf), math.nan)))
    return cast(prims.where(inside, value, edge), dtype_of(x))


def _by_inverse(scale: float, power: float) -> Callable[[Value, Value, Value], tuple[Value]]:
    """The rule of an inverse with the slope scale * exp(power * out^2), which its result tells."""
    return lambda g, out, x: (prims.mul(g, F.mul(F.exp(F.mul(prims.mul(out, out), power)), scale)),)


_WITHIN = tuple(Sample((shape,), low=-0.9, high=0.9) for shape in ((3, 4), ()))
ERFINV = cornered("erfinv", _erfinv_value, _by_inverse(math.sqrt(math.pi) / 2.0, 1.0), *_WITHIN)


@lies("alike")
@in_float32_on_cuda
def erfinv(input: Value) -> Value:
    """The inverse of erf: infinite at -1 and 1, NaN outside."""
    need_kind("erfinv", "biuf", input)
    return _erfinv(floating(input))


@whole(pointwise=True)
def _erfinv(x: Value) -> Value:
    return prims.erfinv(x)


def _ndtri(x: Value) -> Value:
    wide = in_float64(x)
    inside = F.logical_and(F.gt(wide, 0.0), F.lt(wide, 1.0))
    p = prims.where(inside, wide, prims.full_like(wide, 0.5))
    complement = F.mul(prims.where(F.lt(p, 0.5), p, F.sub(1.0, p)), 2.0)
    value = F.mul(_erfinv_of(F.sub(F.mul(p, 2.0), 1.0), complement), math.sqrt(2.0))
    ends = F.where(F.eq(wide, 0.0), -math.inf, F.where(F.eq(wide, 1.0), math.inf, math.nan))
    return cast(prims.where(inside, value, cast(ends, dt.float64)), dtype_of(x))


NDTRI = cornered(
    "ndtri",
    _ndtri,
    _by_inverse(math.sqrt(2.0 * math.pi), 0.5),
    Sample(((3, 4),), low=0.1, high=0.9),
    Sample(((),), low=0.1, high=0.9),
)


def ndtri(input: Value) -> Value:
    """The inverse of ndtr: -inf at 0, inf at 1, NaN outside."""
    need_kind("ndtri", "biuf", input)
    return prims.ndtri(floating(input))


def softmax(input: Value, dim: int, *, dtype: dt.DType | None = None) -> Value:
    """torch.special's softmax."""
    return F.softmax(cast(as_value(input), dtype), dim)


def log_softmax(input: Value, dim: int, *, dtype: dt.DType | None = None) -> Value:
    """torch.special's log_softmax."""
    return F.log_softmax(cast(as_value(input), dtype), dim)


def check_order(name: str, n: int) -> None:
    """Raise ShapeError for an order below 0."""
    if n < 0:
        raise ShapeError(f"{name}: the order must not be negative", got=str(n))
