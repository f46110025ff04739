"""Inverse trigonometric and hyperbolic functions, signs and floating-point parts, with torch's names.

In: values and Python scalars, broadcast and promoted. Out: one value; integers become the default dtype first.
Sources: the primitives of inverse.py and corners.py; sinc(x) = sin(pi x)/(pi x).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from compiler_core import dtype as dt
from compiler_core.dtype import bool_
from compiler_core.errors import DTypeError
from compiler_core.names.spelling import result_text
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_value,
    cast,
    dtype_of,
    floating,
    is_scalar,
    like,
    operands,
    shape_of,
)
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.composites.arithmetic import Operand, times
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value


@in_float32_on_cuda
def asin(input: Value) -> Value:
    """Arcsine, in [-pi/2, pi/2]."""
    return prims.asin(floating(input))


@in_float32_on_cuda
def acos(input: Value) -> Value:
    """Arccosine, in [0, pi]."""
    return prims.acos(floating(input))


def atan(input: Value) -> Value:
    """Arctangent, in [-pi/2, pi/2]."""
    return prims.atan(floating(input))


def asinh(input: Value) -> Value:
    """Inverse hyperbolic sine."""
    return prims.asinh(floating(input))


def acosh(input: Value) -> Value:
    """Inverse hyperbolic cosine; NaN below 1."""
    return prims.acosh(floating(input))


def atanh(input: Value) -> Value:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    return prims.atanh(floating(input))


def floating_operands(*xs: Operand) -> tuple[Value, ...]:
    """The operands broadcast, in their common dtype, or the default one where that is of integers."""
    dtype = dt.promote(*(x if is_scalar(x) else as_value(x) for x in xs))
    return operands(*xs, dtype=dtype if dtype.is_inexact else dt.get_default_dtype())


def atan2(input: Value, other: Value) -> Value:
    """The angle of the point (other, input), in (-pi, pi]."""
    return prims.atan2(*floating_operands(input, other))


@lies("alike")
def hypot(input: Value, other: Value) -> Value:
    """sqrt(input^2 + other^2), without overflow between."""
    need_kind("hypot", "f", input)
    return prims.hypot(*floating_operands(input, other))


def deg2rad(input: Value) -> Value:
    """Degrees as radians."""
    need_kind("deg2rad", "biuf", input)
    return times(floating(input), math.pi / 180.0)


def rad2deg(input: Value) -> Value:
    """Radians as degrees."""
    need_kind("rad2deg", "biuf", input)
    return times(floating(input), 180.0 / math.pi)


def sinc(input: Value) -> Value:
    """sin(pi x) / (pi x), 1 at 0."""
    x = floating(input)
    if not dtype_of(x).is_complex:
        return prims.sinc(x)
    is_zero = prims.eq(x, prims.full_like(x, 0.0))
    angle = F.mul(prims.where(is_zero, prims.full_like(x, 1.0), x), math.pi)
    return prims.where(is_zero, prims.full_like(x, 1.0), prims.div(prims.sin(angle), angle))


# ---- signs


def copysign(input: Operand, other: Operand) -> Value:
    """|input| with other's sign bit."""
    return prims.copysign(*floating_operands(input, other))


def signbit(input: Value) -> Value:
    """Whether the sign bit is set: that of -0 and of a negative NaN is."""
    x = as_value(input)
    if dtype_of(x).kind in "ub":
        return _nowhere(x)
    if dtype_of(x).kind == "i":
        return F.lt(x, 0)
    return F.lt(prims.copysign(prims.full_like(x, 1.0), x), 0.0)


def sgn(input: Value) -> Value:
    """sign: -1, 0 or 1; of complex numbers x / |x|, 0 at 0."""
    x = as_value(input)
    if not dtype_of(x).is_complex:
        return F.sign(x)
    size = prims.abs(x)
    is_zero = F.eq(size, 0.0)
    return prims.div(x, cast(F.where(is_zero, 1.0, size), dtype_of(x)))


def heaviside(input: Value, values: Value) -> Value:
    """0 below 0 and at NaN, `values` at 0, 1 above."""
    x, at_zero = operands(input, values)
    return F.where(F.eq(x, 0), at_zero, cast(F.gt(x, 0), dtype_of(x)))


def _refuse_complex(name: str, x: Value) -> None:
    if dtype_of(x).is_complex:
        raise DTypeError(f"{name} does not support complex inputs", got=dtype_of(x).name)


def isposinf(input: Value) -> Value:
    """input is +inf."""
    _refuse_complex("isposinf", input)
    return F.eq(input, math.inf) if dtype_of(input).is_floating_point else _nowhere(input)


def isneginf(input: Value) -> Value:
    """input is -inf."""
    _refuse_complex("isneginf", input)
    return F.eq(input, -math.inf) if dtype_of(input).is_floating_point else _nowhere(input)


def _nowhere(input: Value) -> Value:
    return like(prims.full(shape_of(input), False, bool_), as_value(input))


# ---- the larger and the smaller, NaN left out


def _nan_aside(a: Value, b: Value, chosen: Value) -> Value:
    return prims.where(prims.isnan(b), a, prims.where(prims.isnan(a), b, chosen))


@lies("alike")
def fmax(input: Value, other: Value) -> Value:
    """The larger; if one is NaN, the other. The cotangent of a tie goes to input."""
    a, b = operands(input, other)
    if not dtype_of(a).is_floating_point:
        return F.maximum(a, b)
    return _nan_aside(a, b, prims.where(prims.ge(a, b), a, b))


@lies("alike")
def fmin(input: Value, other: Value) -> Value:
    """The smaller; if one is NaN, the other. The cotangent of a tie goes to input."""
    a, b = operands(input, other)
    if not dtype_of(a).is_floating_point:
        return F.minimum(a, b)
    return _nan_aside(a, b, prims.where(prims.le(a, b), a, b))


# ---- parts of a floating number


def power_of_two(exponent: Value) -> Value:
    """2 ** exponent in exponent's dtype (f64): exact for whole exponents."""
    return prims.pow(prims.full_like(exponent, 2.0), exponent)


def exponent_of(wide: Value) -> Value:
    """e with 2^(e-1) <= |wide| < 2^e, as f64 like wide; for finite numbers other than 0."""
    size = prims.abs(wide)
    estimate = prims.floor(F.log2(size))
    over = prims.lt(size, power_of_two(estimate))  # the logarithm may be rounded up to a whole number, or down
    estimate = prims.where(over, F.sub(estimate, 1.0), estimate)
    under = prims.ge(size, power_of_two(F.add(estimate, 1.0)))
    return prims.where(under, F.add(estimate, 2.0), F.add(estimate, 1.0))


class Frexp(NamedTuple):
    mantissa: Value
    exponent: Value

    def __repr__(self) -> str:
        return result_text("frexp", self)


def frexp(input: Value) -> Frexp:
    """(mantissa in [0.5, 1) with input's sign, exponent: i32) with input = mantissa * 2^exponent."""
    x = as_value(input)
    if not dtype_of(x).is_floating_point:
        raise DTypeError("frexp takes floating tensors", got=dtype_of(x).name)
    wide = cast(x, dt.float64)
    ordinary = F.logical_and(F.isfinite(wide), F.ne(wide, 0.0))
    number = prims.detach(prims.where(ordinary, wide, prims.full_like(wide, 1.0)))
    exponent = exponent_of(number)
    half = prims.floor(F.mul(exponent, -0.5))  # in two steps: 2^1074 is beyond float64
    rest = prims.sub(prims.neg(exponent), half)
    mantissa = prims.mul(prims.mul(wide, power_of_two(half)), power_of_two(rest))
    places = prims.where(ordinary, exponent, prims.full_like(exponent, 0.0))
    return Frexp(prims.cast(prims.where(ordinary, mantissa, wide), dtype_of(x)), prims.cast(places, dt.int32))


def ldexp(input: Value, other: Value) -> Value:
    """input * 2 ** other."""
    x, exponent = as_value(input), floating(as_value(other))
    dtype = dt.promote(x, exponent)
    if dtype.is_complex:
        return F.mul(x, prims.pow(prims.full_like(exponent, 2.0), exponent))
    wide, exponent = operands(cast(x, dt.float64), cast(exponent, dt.float64))
    exponent = prims.where(F.isinf(exponent), exponent, F.clamp(exponent, -3000.0, 3000.0))
    third = prims.trunc(F.mul(F.clamp(exponent, -3000.0, 3000.0), 1.0 / 3.0))  # what fits does not overflow between
    for part in (third, third, prims.sub(exponent, F.mul(third, 2.0))):
        wide = prims.mul(wide, prims.pow(prims.full_like(part, 2.0), part))
    return cast(wide, dtype)


_LIMITS = {dt.float32: (-125, 24), dt.float64: (-1021, 53), dt.float16: (-13, 11), dt.bfloat16: (-125, 8)}


@lies("alike")
def nextafter(input: Value, other: Value) -> Value:
    """The neighbour of input, in its dtype, on the side of other. Its gradient is input's."""
    need_kind("nextafter", "f", input, other)
    first, second = operands(input, other)
    a, b = prims.detach(first), prims.detach(second)
    low, digits = _LIMITS[dtype_of(a)]
    wide = cast(a, dt.float64)
    ordinary = F.logical_and(F.isfinite(wide), F.ne(wide, 0.0))
    number = prims.abs(prims.where(ordinary, wide, prims.full_like(wide, 1.0)))
    exponent = exponent_of(number)
    upwards = prims.eq(prims.gt(b, a), prims.gt(a, prims.full_like(a, 0.0)))  # away from 0
    at_power = F.logical_and(prims.eq(number, power_of_two(F.sub(exponent, 1.0))), F.logical_not(upwards))
    exponent = prims.where(F.logical_and(at_power, F.gt(exponent, float(low))), F.sub(exponent, 1.0), exponent)
    step = power_of_two(F.sub(F.clamp(exponent, float(low)), float(digits)))
    moved = prims.where(upwards, prims.add(number, step), prims.sub(number, step))
    moved = prims.copysign(prims.cast(moved, dtype_of(a)), a)
    tiny = prims.copysign(prims.full_like(a, 2.0 ** (low - digits)), b)
    largest = prims.copysign(prims.full_like(a, (2.0 - 2.0 ** (1 - digits)) * 2.0 ** (1 - low + 1)), a)
    special = prims.where(F.eq(a, 0.0), tiny, prims.where(F.isinf(a), largest, moved))
    result = prims.where(prims.eq(a, b), b, special)
    result = prims.where(F.logical_or(prims.isnan(a), prims.isnan(b)), prims.add(a, b), result)
    nothing = F.where(F.isfinite(a), prims.sub(a, first), 0.0)  # 0, with input's gradient
    return prims.sub(result, nothing)
