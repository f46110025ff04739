"""What ops are in terms of the core set (`Op.engines`): functions over other ops, for engines that lack the op.

In: values of any kind, of the shapes and dtypes that the op takes. Out: one value, equal to the op's up to rounding; or
None, where the composition does not hold: of complex numbers, mostly, whose branches are chosen otherwise.
16-bit floats are computed in f32 and rounded once, as the ops are. Sources: log1p by W. Kahan's correction (HP-15C
Advanced Functions Handbook, 1982); expm1 by tanh(x/2) (exp(x) + 1); the inverse functions by half-angle formulas that
keep their digits at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

from compiler_core.dtype import of
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import rounded_once
from compiler_core.ops.registry import Value

Composition = Callable[..., Value | None]


def _of_reals(function: Callable[..., Value]) -> Composition:
    """A composition that holds for real numbers alone."""
    once = rounded_once(function)

    @wraps(function)
    def composition(*values: Value) -> Value | None:
        return None if of(values[0].dtype).is_complex else once(*values)

    return composition


def _number(x: Value, value: float) -> Value:
    return prims.full_like(x, value)


def _negated_where(test: Value, x: Value) -> Value:
    return prims.where(test, prims.neg(x), x)


def _is_negative(x: Value) -> Value:
    """Whether x < 0, or x is -0.0."""
    zero = _number(x, 0.0)
    below = prims.lt(prims.div(_number(x, 1.0), x), zero)
    return prims.bitwise_or(prims.lt(x, zero), prims.bitwise_and(prims.eq(x, zero), below))


@_of_reals
def ceil(x: Value) -> Value:
    return prims.neg(prims.floor(prims.neg(x)))


@_of_reals
def trunc(x: Value) -> Value:
    below = prims.lt(x, _number(x, 0.0))
    return _negated_where(below, prims.floor(_negated_where(below, x)))


@_of_reals
def exp2(x: Value) -> Value:
    return prims.pow(_number(x, 2.0), x)


def log_of(base: int) -> Composition:
    """log(x) / log(base). Of a power of the base it may be one unit off in the last place."""

    @_of_reals
    def log(x: Value) -> Value:
        return prims.div(prims.log(x), _number(x, math.log(base)))

    return log


@rounded_once
def rsqrt(x: Value) -> Value:
    return prims.div(_number(x, 1.0), prims.sqrt(x))


@rounded_once
def sigmoid(x: Value) -> Value:
    one = _number(x, 1.0)
    return prims.div(one, prims.add(one, prims.exp(prims.neg(x))))


@_of_reals
def log1p(x: Value) -> Value:
    """log(u) x / (u - 1), u = 1 + x rounded; x where u is 1, log(u) where u is infinite or 0."""
    one = _number(x, 1.0)
    u = prims.add(one, x)
    less = prims.sub(u, one)
    is_small = prims.eq(less, _number(x, 0.0))
    is_end = prims.bitwise_or(prims.eq(u, _number(x, math.inf)), prims.eq(u, _number(x, 0.0)))
    ratio = prims.where(is_end, one, prims.div(x, prims.where(is_small, one, less)))
    return prims.where(is_small, x, prims.mul(prims.log(u), ratio))


@_of_reals
def expm1(x: Value) -> Value:
    """tanh(x / 2) (exp(x) + 1)."""
    grown = prims.add(prims.exp(x), _number(x, 1.0))
    return prims.mul(prims.tanh(prims.mul(x, _number(x, 0.5))), grown)


@_of_reals
def asin(x: Value) -> Value:
    """atan(x / sqrt((1 - x) (1 + x)))."""
    one = _number(x, 1.0)
    return prims.atan(prims.div(x, prims.sqrt(prims.mul(prims.sub(one, x), prims.add(one, x)))))


@_of_reals
def acos(x: Value) -> Value:
    """2 atan(sqrt((1 - x) / (1 + x)))."""
    one = _number(x, 1.0)
    half = prims.atan(prims.div(prims.sqrt(prims.sub(one, x)), prims.sqrt(prims.add(one, x))))
    return prims.mul(half, _number(x, 2.0))


@_of_reals
def asinh(x: Value) -> Value:
    """sign(x) log1p(a + a^2 / (1 + sqrt(a^2 + 1))), a = |x|; log(a) + log(2) where a^2 would leave the range."""
    one, size = _number(x, 1.0), prims.abs(x)
    is_large = prims.lt(_number(x, 1e9), size)
    a = prims.where(is_large, one, size)
    square = prims.mul(a, a)
    small = prims.log1p(prims.add(a, prims.div(square, prims.add(one, prims.sqrt(prims.add(square, one))))))
    large = prims.add(prims.log(size), _number(x, math.log(2)))
    return _negated_where(prims.lt(x, _number(x, 0.0)), prims.where(is_large, large, small))


@_of_reals
def acosh(x: Value) -> Value:
    """log1p(t + sqrt(t (x + 1))), t = x - 1; log(x) + log(2) where x^2 would leave the range."""
    one = _number(x, 1.0)
    is_large = prims.lt(_number(x, 1e9), x)
    a = prims.where(is_large, one, x)
    t = prims.sub(a, one)
    small = prims.log1p(prims.add(t, prims.sqrt(prims.mul(t, prims.add(a, one)))))
    return prims.where(is_large, prims.add(prims.log(x), _number(x, math.log(2))), small)


@_of_reals
def atanh(x: Value) -> Value:
    """log1p(2 x / (1 - x)) / 2, of |x|, with x's sign."""
    size = prims.abs(x)
    ratio = prims.div(prims.add(size, size), prims.sub(_number(x, 1.0), size))
    half = prims.mul(prims.log1p(ratio), _number(x, 0.5))
    return _negated_where(prims.lt(x, _number(x, 0.0)), half)


@_of_reals
def atan2(y: Value, x: Value) -> Value:
    """The angle of (|x|, |y|), reflected: pi less it where x is negative (-0.0 too), negative where y is."""
    zero, one, inf = _number(x, 0.0), _number(x, 1.0), _number(x, math.inf)
    a, b = prims.abs(y), prims.abs(x)
    both_zero = prims.bitwise_and(prims.eq(a, zero), prims.eq(b, zero))
    both_infinite = prims.bitwise_and(prims.eq(a, inf), prims.eq(b, inf))
    ratio = prims.div(prims.where(both_infinite, one, a), prims.where(both_infinite, one, b))
    angle = prims.atan(prims.where(both_zero, zero, ratio))
    angle = prims.where(_is_negative(x), prims.sub(_number(x, math.pi), angle), angle)
    return _negated_where(_is_negative(y), angle)


# ---- movement


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Those of a row-major array, in elements."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def slice_scatter(base: Value, src: Value, starts: Shape, stops: Shape, steps: Shape) -> Value:
    """The source between what of the base lies before and behind, dim by dim, where no step is over one."""
    shape, moved = tuple(base.shape), [d for d, n in enumerate(src.shape) if (n, steps[d]) != (base.shape[d], 1)]
    if 0 in src.shape:
        return base
    if any(steps[d] != 1 for d in moved):
        return _put_stepwise(base, src, starts, steps)
    if not moved:
        return src
    dim, zeros, ones = moved[0], (0,) * len(shape), (1,) * len(shape)
    end = starts[dim] + src.shape[dim]

    def part(start: int, stop: int) -> Value:
        return prims.slice(
            base, (*zeros[:dim], start, *zeros[dim + 1 :]), (*shape[:dim], stop, *shape[dim + 1 :]), ones
        )

    if len(moved) > 1:
        within = {"starts": (*starts[:dim], 0, *starts[dim + 1 :])}
        within["stops"] = tuple(a + n for a, n in zip(within["starts"], src.shape))
        src = slice_scatter(part(starts[dim], end), src, steps=ones, **within)
    ends = (part(0, starts[dim]), src, part(end, shape[dim]))
    parts = [x for x in ends if x.shape[dim]]
    return parts[0] if len(parts) == 1 else prims.cat(parts, dim)


def _put_stepwise(base: Value, src: Value, starts: Shape, steps: Shape) -> Value:
    """The source at its places in the flat base."""
    from compiler_core.ops.primitives.strided import strided_places

    shape, count = tuple(base.shape), math.prod(src.shape)
    strides = contiguous_strides(shape)
    offset = sum(a * s for a, s in zip(starts, strides))
    places = strided_places(tuple(src.shape), tuple(a * s for a, s in zip(steps, strides)), offset)
    flat = [prims.reshape(x, (math.prod(x.shape),)) for x in (base, places, src)]
    return prims.reshape(prims.scatter(flat[0], flat[1], flat[2], 0), shape) if count else base
