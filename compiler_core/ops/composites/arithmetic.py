"""Arithmetic over any Value, with torch's names and arguments: sums, products, quotients, powers, bounds, lerp.

In: values and Python scalars, broadcast and promoted (see broadcasting.py). Out: one value.
True division takes integers to the default dtype, as torch does. Functions of one operand are in unary.py.
Derivatives at corners follow torch: clamp passes the cotangent at its bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType, bool_
from compiler_core.errors import DTypeError, NoKernelError, ShapeError
from compiler_core.ops import lying, prims
from compiler_core.ops.broadcasting import (
    Scalar,
    as_value,
    broadcast_to,
    cast,
    dtype_of,
    floating,
    is_narrow,
    is_scalar,
    level,
    loose,
    operands,
    plain,
    rounded_once,
    shape_of,
)
from compiler_core.ops.refusals import check_factor, check_fits, need_floating, need_kind, refuse_bools
from compiler_core.ops.registry import Value, current_trace
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import as_float
from compiler_core.ops.spent import spent
from compiler_core.ops.whole import whole
from compiler_core.symbolic.expression import is_symbol

Operand = Value | Scalar


def _scaled(name: str, input: Operand, other: Operand, alpha: Scalar) -> Operand:
    """alpha * other. Raises DTypeError for an alpha that the result's dtype does not take."""
    if type(alpha) is int and alpha == 1:
        return other
    dtype = dt.promote(loose(input), loose(other))
    if not is_scalar(alpha):  # a 0-d value
        return times(prims.cast(as_value(other), dtype), alpha)
    check_factor(name, dtype, alpha)
    check_fits(dtype, alpha)
    if alpha == 1 or is_scalar(other):
        return other if alpha == 1 else times(other, alpha)
    return times(prims.cast(as_value(other), dtype), bool(alpha) if dtype is bool_ else alpha)


def _rounded_to(dtype: DType, number: Operand) -> Operand:
    """A float number as a 16-bit float says it, in whose range it is; anything else as it is."""
    if dt.number_type(number) is not float:
        return number
    check_fits(dtype, number)
    return float(np.asarray(number).astype(dtype.numpy))


def _alpha(dtype: DType, number: Operand) -> Operand:
    """The same of a factor that may be the 0-d value of a number that changes."""
    return _rounded_to(dtype, number) if is_scalar(number) else prims.cast(as_value(number), dtype)


def add(input: Operand, other: Operand, *, alpha: Scalar = 1) -> Value:
    """input + alpha * other; a logical or for two bools."""
    if is_narrow(input):
        if is_narrow(other) and (not is_scalar(alpha) or alpha != 1):
            return rounded_once(add)(input, other, alpha=_alpha(dtype_of(other), alpha))
        is_mixed = _is_wide_beside(input, other)
    else:
        is_mixed = is_narrow(other) and _is_wide_beside(other, input)
    other = _scaled("add", input, other, alpha)
    if is_mixed and is_scalar(alpha) and alpha == 1:
        return _widened_sum(input, other)
    a, b = operands(input, other)
    return prims.bitwise_or(a, b) if dtype_of(a) is bool_ else prims.add(a, b)


def _is_wide_beside(x: Value, other: Operand) -> bool:
    """Whether `other` is a value of f32 in the shape of x, on its device."""
    is_wide = getattr(other, "dtype", None) is dt.float32 and shape_of(x) == shape_of(other)
    return is_wide and getattr(x, "device", None) is getattr(other, "device", None)


@whole(lies="alike")
def _widened_sum(a: Value, b: Value) -> Value:
    """Of f32 and 16-bit floats, in f32: what a residual adds, under autocast."""
    return prims.add(cast(a, dt.float32), cast(b, dt.float32))


def sub(input: Operand, other: Operand, *, alpha: Scalar = 1) -> Value:
    """input - alpha * other."""
    if is_narrow(input) and is_narrow(other) and (not is_scalar(alpha) or alpha != 1):
        return rounded_once(sub)(input, other, alpha=_alpha(dtype_of(other), alpha))
    refuse_bools("Subtraction", input, other)
    return prims.sub(*operands(input, _scaled("sub", input, other, alpha)))


def rsub(input: Operand, other: Operand, *, alpha: Scalar = 1) -> Value:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


def mul(input: Operand, other: Operand) -> Value:
    """input * other; a logical and for two bools."""
    return times(input, other, spent)


def times(input: Operand, other: Operand, held: Callable[[Value], Value] = loose) -> Value:
    """The product, for composites of which torch saves no number. held: how a node is to save its operands."""
    for x, number in ((input, other), (other, input)):
        made = _by_number("mul", x, number) if is_narrow(x) else None
        if made is not None:
            return made
        if is_narrow(x) and _spreads_there(number, x):
            return _widened_product(x, number)
    a, b = operands(input, other)
    return prims.bitwise_and(a, b) if dtype_of(a) is bool_ else prims.mul(held(a), held(b))


def _spreads_there(scale: Operand, x: Value) -> bool:
    """Whether `scale` is of f32 and of a CUDA device, in eager code, and is broadcast to the shape of x."""
    if current_trace() is not None or getattr(scale, "dtype", None) is not dt.float32:
        return False
    mine, others = shape_of(scale), shape_of(x)
    fits = 0 < len(mine) <= len(others) and all(n in (1, m) for n, m in zip(mine[::-1], others[::-1]))
    return fits and getattr(x, "is_cuda", False) and x.device is scale.device  # type: ignore[union-attr]


@whole(lies="alike")
def _widened_product(x: Value, scale: Value) -> Value:
    """Of 16-bit floats and f32 that is broadcast to them, in f32: a layer's scale, under autocast."""
    return prims.mul(*operands(cast(x, dt.float32), scale))


def _by_number(op: str, x: Value, other: Operand) -> Value | None:
    """x op other for 16-bit floats x, in float32, where other, a real number or 0-d and wider, is not rounded first.

    None where other is neither.
    """
    if is_scalar(other):
        number = plain(other)
        return None if isinstance(number, complex) else _with_number(x, op=op, number=as_float(number))
    outranked = shape_of(other) == () != shape_of(x) and dtype_of(other) in (dt.float32, dt.float64)
    return rounded_once(_JOINS[op])(x, other) if outranked else None


@whole(spends=True)
def _with_number(x: Value, *, op: str, number: float) -> Value:
    wide = prims.cast(x, dt.float32)
    return prims.cast(_JOINS[op](wide, prims.full_like(wide, number)), dtype_of(x))


def true_divide(input: Operand, other: Operand) -> Value:
    """input / other; integers become the default dtype first."""
    return over(input, other, spent)


def over(input: Operand, other: Operand, held: Callable[[Value], Value] = loose) -> Value:
    """The quotient, for composites of which torch saves no number. held: how a node is to save the divisor."""
    made = _by_number("div", input, other) if is_narrow(input) else None
    if made is not None:
        return made
    dtype = dt.promote(loose(input), loose(other))
    a, b = operands(input, other, dtype=dtype if dtype.is_inexact else dt.get_default_dtype())
    return prims.div(a, held(b))


def _divisor(b: Value, given: Operand) -> Value:
    """b, the divisor `given` as a value; whole numbers are tested not to be 0, unless `given` says so."""
    if dtype_of(b).is_floating_point or (is_scalar(given) and given != 0):
        return b
    return prims.require(b, prims.eq(b, prims.full_like(b, 0)), "division", "ZeroDivisionError: a whole number over 0")


def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Value:
    """input / other, rounded if asked. rounding_mode: None, "floor" or "trunc"."""
    if rounding_mode is None:
        return true_divide(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise ShapeError("div: unknown rounding_mode", expected="None, 'floor' or 'trunc'", got=repr(rounding_mode))
    if is_narrow(input) and is_scalar(other):
        return rounded_once(div)(input, other, rounding_mode=rounding_mode)
    a, b = operands(input, other)
    if dtype_of(a).is_floating_point:
        return prims.trunc(prims.div(a, b))
    b = _divisor(b, other)
    quotient = prims.floor_divide(a, b)  # rounded down: one too low where the signs differ and there is a rest
    inexact = prims.ne(prims.mul(quotient, b), a)
    negative = prims.lt(quotient, prims.full_like(quotient, 0))
    return prims.add(quotient, prims.cast(prims.bitwise_and(inexact, negative), dtype_of(quotient)))


def floor_divide(input: Operand, other: Operand) -> Value:
    """floor(input / other). Raises DivisionByZeroError for whole numbers over 0."""
    if is_narrow(input) and is_scalar(other):
        return rounded_once(floor_divide)(input, other)
    a, b = operands(input, other)
    return prims.floor_divide(a, _divisor(b, other))


def remainder(input: Operand, other: Operand) -> Value:
    """input - other * floor(input / other): Python's %, with the divisor's sign."""
    a, b = operands(input, other)
    return prims.remainder(a, _divisor(b, other))


def fmod(input: Operand, other: Operand) -> Value:
    """C's %, with the dividend's sign."""
    a, b = operands(input, other)
    if not dtype_of(a).is_floating_point:
        return prims.sub(a, prims.mul(div(a, b, rounding_mode="trunc"), b))
    return prims.fmod(a, b)


@remembered
def pow(input: Operand, exponent: Operand) -> Value:
    """input ** exponent. Small whole exponents become products; integers wrap."""
    if type(exponent) in (int, float) and exponent in _POWERS and not is_scalar(input):
        x = as_value(input)
        if dtype_of(x).kind == "f":
            return _POWERS[exponent](x)
    if is_narrow(input) and is_scalar(exponent):  # which is rounded, as torch's is, but computed with in float32
        return rounded_once(pow)(input, _rounded_to(dtype_of(input), exponent))
    if is_scalar(exponent) and not is_scalar(input) and not is_symbol(exponent):
        fast = _pow_scalar(as_value(input), plain(exponent))
        if fast is not None:
            return fast
    return prims.pow(*operands(input, exponent))


@whole(lies="alike", pointwise=True, once=True)
def _square(x: Value) -> Value:
    return prims.mul(x, x)


@whole(lies="alike", pointwise=True, once=True)
def _cube(x: Value) -> Value:
    return prims.mul(prims.mul(x, x), x)


_POWERS: dict[Scalar, Callable[[Value], Value]] = {2: _square, 3: _cube}  # of floats, of 16 bits too


def _pow_scalar(x: Value, exponent: Scalar) -> Value | None:
    """x ** exponent without `pow`, if the exponent is one of the usual ones."""
    if dtype_of(x) is bool_ and type(exponent) is bool:  # the one power of bools that is a bool, as in torch
        return prims.bitwise_or(x, prims.full_like(x, not exponent))
    x = prims.cast(x, dt.promote(x, exponent)) if dtype_of(x) is bool_ and type(exponent) is int else x
    if isinstance(exponent, float) and not dtype_of(x).is_inexact:
        x = floating(x)
    if isinstance(exponent, complex) and not dtype_of(x).is_complex:
        return None
    if isinstance(exponent, int) and exponent < 0 and not dtype_of(x).is_inexact:
        raise DTypeError("integers to a negative power", remedy="convert to a floating dtype first", got=str(exponent))
    simple: dict[Scalar, Callable[[Value], Value]] = {
        2: lambda v: prims.mul(v, v),
        3: lambda v: prims.mul(prims.mul(v, v), v),
        4: lambda v: square(prims.mul(v, v)),
        0.5: prims.sqrt,
        -0.5: prims.rsqrt,
        -1: reciprocal,
    }
    if exponent in simple:
        return simple[exponent](x)
    if exponent == 0:
        return prims.where(prims.full(shape_of(x), False, bool_), x, prims.full_like(x, 1))
    return mul(x, 1) if exponent == 1 else None  # which saves a number, as torch saves x


def float_power(input: Operand, exponent: Operand) -> Value:
    """input ** exponent, in float64, or complex128 if one is complex."""
    is_complex = dt.promote(loose(input), loose(exponent)).is_complex
    return prims.pow(*operands(input, exponent, dtype=dt.complex128 if is_complex else dt.float64))


_JOINS: dict[str, Callable[[Value, Value], Value]] = {"mul": mul, "div": true_divide}


@remembered
def maximum(input: Value, other: Value) -> Value:
    """The larger, NaN if either is."""
    a, b = operands(input, other)
    return prims.bitwise_or(a, b) if dtype_of(a) is bool_ else prims.maximum(a, b)


@remembered
def minimum(input: Value, other: Value) -> Value:
    """The smaller, NaN if either is."""
    a, b = operands(input, other)
    return prims.bitwise_and(a, b) if dtype_of(a) is bool_ else prims.minimum(a, b)


@remembered
def clamp(input: Value, min: Operand | None = None, max: Operand | None = None) -> Value:
    """input limited to [min, max]; NaN stays. Where min > max the result is max."""
    if min is None and max is None:
        raise ShapeError("clamp: neither min nor max", expected="at least one of them")
    dtype = dt.promote(*(loose(x) for x in (input, min, max) if x is not None))
    if dtype is bool_:
        if None not in (min, max) or is_scalar(max if min is None else min):
            raise NoKernelError("clamp is not computed of bool")
        return minimum(input, max) if min is None else maximum(input, min)
    input = cast(as_value(input), dtype)  # one dtype for both bounds
    numbers = {name: bound for name, bound in (("low", min), ("high", max)) if bound is not None}
    if dtype in _WIDE and all(type(bound) in (int, float) for bound in numbers.values()):
        for bound in numbers.values():
            check_fits(dtype, bound)
        limit = _between if len(numbers) == 2 else _at_most if min is None else _at_least
        return limit(input, **{name: float(bound) for name, bound in numbers.items()})
    for bound, extremum, within in ((min, prims.maximum, prims.ge), (max, prims.minimum, prims.le)):
        if bound is not None:
            x, limit = operands(input, bound)
            check_fits(dtype_of(x), bound)
            input = prims.where(within(x, limit), x, _beyond(extremum, x, limit, bound))
    return input


_WIDE = (dt.float32, dt.float64)


@whole(lies="alike", pointwise=True)
def _at_least(x: Value, *, low: float) -> Value:
    low = level(x, low)
    return prims.where(prims.ge(x, low), x, prims.maximum(low, prims.detach(x)))


@whole(lies="alike", pointwise=True)
def _at_most(x: Value, *, high: float) -> Value:
    high = level(x, high)
    return prims.where(prims.le(x, high), x, prims.minimum(high, prims.detach(x)))


@whole(lies="alike", pointwise=True)
def _between(x: Value, *, low: float, high: float) -> Value:
    low, high = level(x, low), level(x, high)
    x = prims.where(prims.ge(x, low), x, prims.maximum(low, prims.detach(x)))
    return prims.where(prims.le(x, high), x, prims.minimum(high, prims.detach(x)))


def _beyond(extremum: Callable[[Value, Value], Value], x: Value, bound: Value, given: Operand) -> Value:
    """The bound, or NaN where x or the bound is: then neither has a gradient."""
    value = extremum(prims.detach(x), bound if is_scalar(given) else prims.detach(bound))
    return value if is_scalar(given) else prims.where(prims.eq(value, bound), bound, value)


@remembered
@lying.lies("alike")
@rounded_once
def lerp(input: Value, end: Value, weight: Operand) -> Value:
    """input + weight * (end - input); from a weight of 1/2 on end - (1 - weight) * (end - input): exact at both ends.

    Raises DTypeError for other dtypes than input's.
    """
    dtype = dtype_of(as_value(input))
    for given in (end, *((weight,) if shape_of(weight) else ())):
        if dtype_of(given) is not dtype:
            raise DTypeError("lerp: end and weight have input's dtype", expected=dtype.name, got=dtype_of(given).name)
    need_floating("lerp", as_value(input))
    span = sub(end, input)
    if is_scalar(weight):
        number = plain(weight)
        return add(input, times(span, number)) if abs(number) < 0.5 else sub(end, times(span, 1 - number))
    near = prims.lt(prims.abs(weight), prims.full_like(prims.abs(weight), 0.5))  # in the dtype that a number of it has
    factor = prims.where(near, weight, prims.sub(weight, prims.full_like(weight, 1.0)))
    a, b, factor, span = operands(input, end, cast(factor, dtype), span)
    return prims.add(prims.where(broadcast_to(near, shape_of(a)), a, b), prims.mul(span, factor))


@remembered
@rounded_once
def addcmul(input: Value, tensor1: Value, tensor2: Value, *, value: Scalar = 1) -> Value:
    """input + value * tensor1 * tensor2."""
    need_kind("addcmul", "iufc", tensor1)
    if is_scalar(value) and dt.promote(as_value(input), as_value(tensor1), as_value(tensor2)).kind not in "fc":
        value = int(value)  # as torch: cast to whole numbers
    return add(input, mul(tensor1 if is_scalar(value) and value == 1 else mul(tensor1, value), tensor2))


@remembered
@rounded_once
def addcdiv(input: Value, tensor1: Value, tensor2: Value, *, value: Scalar = 1) -> Value:
    """input + value * tensor1 / tensor2."""
    if dt.promote(as_value(tensor1), as_value(tensor2)).kind in "biu":
        raise DTypeError("addcdiv: integer division is not supported", remedy="use add() and div()")
    scaled = tensor1 if is_scalar(value) and value == 1 else mul(tensor1, value)
    return add(input, true_divide(scaled, tensor2))


def square(input: Value) -> Value:
    """input * input."""
    return pow(input, 2)


@remembered
def reciprocal(input: Value) -> Value:
    """1 / input."""
    return true_divide(1.0, input)
