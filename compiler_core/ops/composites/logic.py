"""Comparison, logic and choice over any Value, with torch's names and arguments.

In: values and Python scalars, broadcast and promoted (see broadcasting.py). Out: bools, or one operand's elements by a
condition. A number stands for "not 0" where a condition is wanted.
"""

from __future__ import annotations

import math

from compiler_core import dtype as dt
from compiler_core.dtype import bool_
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_new,
    as_value,
    broadcast_shapes,
    dtype_of,
    is_scalar,
    like,
    loose,
    operands,
    shape_of,
    strict,
)
from compiler_core.ops.composites.arithmetic import Operand, add, mul, sub
from compiler_core.ops.composites.unary import abs, truth
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import check_fits, need_mask, need_one_dtype
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered


def eq(input: Operand, other: Operand) -> Value:
    """input == other, elementwise."""
    return prims.eq(*operands(input, other))


def ne(input: Operand, other: Operand) -> Value:
    """input != other."""
    return prims.ne(*operands(input, other))


def lt(input: Operand, other: Operand) -> Value:
    """input < other."""
    return prims.lt(*operands(input, other))


def le(input: Operand, other: Operand) -> Value:
    """input <= other."""
    return prims.le(*operands(input, other))


def gt(input: Operand, other: Operand) -> Value:
    """input > other."""
    return prims.gt(*operands(input, other))


def ge(input: Operand, other: Operand) -> Value:
    """input >= other."""
    return prims.ge(*operands(input, other))


def logical_not(input: Value) -> Value:
    """input == 0."""
    return prims.logical_not(truth(input))


@lies("alike")
def logical_and(input: Value, other: Value) -> Value:
    """Both are non-zero."""
    return prims.bitwise_and(*operands(truth(input), truth(other)))


@lies("alike")
def logical_or(input: Value, other: Value) -> Value:
    """One is non-zero."""
    return prims.bitwise_or(*operands(truth(input), truth(other)))


@lies("alike")
def logical_xor(input: Value, other: Value) -> Value:
    """One of them is non-zero and the other is not."""
    return prims.bitwise_xor(*operands(truth(input), truth(other)))


def bitwise_and(input: Operand, other: Operand) -> Value:
    """input & other; integers or bools."""
    return prims.bitwise_and(*operands(input, other))


def bitwise_or(input: Operand, other: Operand) -> Value:
    """input | other."""
    return prims.bitwise_or(*operands(input, other))


def bitwise_xor(input: Operand, other: Operand) -> Value:
    """input ^ other."""
    return prims.bitwise_xor(*operands(input, other))


def bitwise_not(input: Value) -> Value:
    """~input."""
    x = as_value(input)
    if dtype_of(x) is bool_:
        return prims.logical_not(x)
    ones = -1 if dtype_of(x).kind == "i" else 2 ** (8 * dtype_of(x).itemsize) - 1
    return prims.bitwise_xor(x, prims.full_like(x, ones))


def isnan(input: Value) -> Value:
    """input is NaN."""
    x = as_value(input)
    return prims.isnan(x) if dtype_of(x).is_inexact else like(prims.full(shape_of(x), False, bool_), x)


def isinf(input: Value) -> Value:
    """input is +inf or -inf."""
    x = as_value(input)
    if not dtype_of(x).is_inexact:
        return like(prims.full(shape_of(x), False, bool_), x)
    return eq(prims.abs(x), math.inf)


def isfinite(input: Value) -> Value:
    """input is neither NaN nor infinite."""
    x = as_value(input)
    if not dtype_of(x).is_inexact:
        return like(prims.full(shape_of(x), True, bool_), x)
    return lt(prims.abs(x), math.inf)


def isclose(input: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Value:
    """|input - other| <= atol + rtol * |other|, or both equal."""
    need_one_dtype("isclose", as_value(input), as_value(other))
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise ShapeError(f"isclose: {name} must be greater than or equal to zero", got=str(tolerance))
    a, b = operands(input, other)
    if dtype_of(a) is bool_:
        return prims.eq(a, b)
    near = prims.bitwise_and(isfinite(a), _are_near(a, b, add(abs(mul(b, rtol)), atol)))
    close = prims.bitwise_or(prims.eq(a, b), prims.bitwise_and(near, isfinite(b)))
    return prims.bitwise_or(close, prims.bitwise_and(isnan(a), isnan(b))) if equal_nan else close


def _are_near(a: Value, b: Value, allowed: Value) -> Value:
    """|a - b| <= allowed, also where a difference of whole numbers wraps: that of signed ones is negative then."""
    if dtype_of(a).kind not in "iu":
        return le(abs(sub(a, b)), allowed)
    distance = sub(prims.maximum(a, b), prims.minimum(a, b))
    return prims.bitwise_and(prims.ge(distance, prims.full_like(distance, 0)), le(distance, allowed))


@remembered
def where(condition: Value, input: Operand, other: Operand) -> Value:
    """input where condition holds, else other."""
    if dtype_of(condition) not in (bool_, dt.uint8):
        need_mask("where", condition)
    condition = truth(condition)
    a, b = loose(input), loose(other)
    shape = broadcast_shapes(shape_of(condition), shape_of(a), shape_of(b))
    dtype = dt.promote(a, b)
    for choice in (a, b) if dtype.compute is dtype else ():
        check_fits(dtype, choice)
    return prims.where(strict(condition, shape, bool_), strict(a, shape, dtype), strict(b, shape, dtype))


@remembered
@lies("rows")
def masked_fill(input: Value, mask: Value, value: Operand) -> Value:
    """input, with `value` where mask holds. Keeps input's dtype."""
    x = as_value(input)
    need_mask("masked_fill", mask)
    shape = broadcast_shapes(shape_of(x), shape_of(mask))
    if not is_scalar(value) and shape_of(value):
        raise ShapeError("masked_fill_ only supports a 0-dimensional value tensor", got=str(shape_of(value)))
    if not is_scalar(value) and dtype_of(value).is_complex and not dtype_of(x).is_complex:
        raise DTypeError("value cannot be converted to a real type without overflow", got=dtype_of(value).name)
    check_fits(dtype_of(x), value)
    fill = strict(value, shape, dtype_of(x))
    return prims.where(strict(mask, shape, bool_), fill, strict(x, shape, dtype_of(x)))


@lies("alike")
def nan_to_num(input: Value, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Value:
    """input with NaN and infinities replaced; None: by the dtype's largest and smallest."""
    import ml_dtypes

    x = as_value(input)
    if dtype_of(x).is_complex:
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (prims.real(x), prims.imag(x)))
        return prims.complex(*parts)
    if not dtype_of(x).is_floating_point:
        return as_new(x)
    limits = ml_dtypes.finfo(dtype_of(x).numpy)  # type: ignore[no-untyped-call]
    x = masked_fill(x, prims.isnan(x), nan)
    x = masked_fill(x, eq(x, math.inf), float(limits.max) if posinf is None else posinf)
    return masked_fill(x, eq(x, -math.inf), float(limits.min) if neginf is None else neginf)
