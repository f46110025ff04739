"""Whole-number functions, ranges and places: shifts, gcd, lcm, logspace, tril_indices, nonzero_static, constant_pad_nd.

In: values, torch's arguments. Out: values. A shift by a negative count or by the width and more gives 0 (or -1 for a
negative number shifted right), as in generated code; gcd is a call back into NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import NoKernelError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import Scalar, as_value, cast, dtype_of, operands, shape_of
from compiler_core.ops.composites.arithmetic import Operand
from compiler_core.ops.composites.creation import end_of
from compiler_core.ops.registry import Value


def _shift_operands(input: Operand, other: Operand) -> tuple[Value, Value, Value]:
    """(input, 2^other, whether other is within the width)."""
    a, b = operands(input, other)
    if dtype_of(a).kind not in "iu":
        raise NoKernelError("shifts take integers", got=dtype_of(a).name)
    width = 8 * dtype_of(a).itemsize - (dtype_of(a).kind == "i")
    inside = F.logical_and(F.ge(b, 0), F.lt(b, width))
    power = prims.full_like(a, 1)
    for bit in range(width.bit_length()):  # 2^b = the product of 2^(2^k) over the bits of b
        square = 2 ** (2**bit) if 2**bit < width else 0
        is_set = F.ne(F.bitwise_and(b, 1 << bit), 0)
        power = prims.where(F.logical_and(inside, is_set), prims.mul(power, prims.full_like(a, square)), power)
    return a, power, inside


def bitwise_left_shift(input: Operand, other: Operand) -> Value:
    """input << other."""
    a, power, inside = _shift_operands(input, other)
    top = prims.full_like(a, 0)
    if dtype_of(a).kind == "i":  # the sign bit alone is left of a shift by the width less one
        bits = 8 * dtype_of(a).itemsize
        last = F.eq(operands(input, other)[1], bits - 1)
        odd = F.logical_and(last, F.ne(F.bitwise_and(a, 1), 0))
        top = prims.where(odd, prims.full_like(a, -(1 << bits - 1)), top)
    return prims.where(inside, prims.mul(a, power), top)


def bitwise_right_shift(input: Operand, other: Operand) -> Value:
    """input >> other, the sign kept."""
    a, power, inside = _shift_operands(input, other)
    gone = prims.cast(prims.lt(a, prims.full_like(a, 0)), dtype_of(a))
    return prims.where(inside, prims.floor_divide(a, power), prims.neg(gone) if dtype_of(a).kind == "i" else gone)


def gcd(input: Value, other: Value) -> Value:
    """The greatest common divisor, not negative."""
    return prims.gcd(*operands(input, other))


def lcm(input: Value, other: Value) -> Value:
    """The least common multiple, not negative; 0 where one is 0."""
    a, b = operands(input, other)
    divisor = prims.gcd(a, b)
    nothing = prims.eq(divisor, prims.full_like(a, 0))
    product = prims.mul(prims.floor_divide(a, prims.where(nothing, prims.full_like(a, 1), divisor)), b)
    return F.abs(product)


# ---- ranges and constants


def logspace(start: Scalar, end: Scalar, steps: int, base: float = 10.0, *, dtype: DType | None = None) -> Value:
    """base to the powers of `steps` numbers from start to end."""
    exponents = F.linspace(end_of(start), end_of(end), steps, dtype=dt.float64)
    return cast(prims.pow(prims.full_like(exponents, base), exponents), dtype or dt.get_default_dtype())


def scalar_tensor(s: Scalar, *, dtype: DType | None = None) -> Value:
    """A 0-d tensor, of the default dtype unless given."""
    return F.full((), s, dtype=dtype or dt.get_default_dtype())


def _triangle_places(row: int, col: int, offset: int, dtype: DType | None, *, lower: bool) -> Value:
    if row < 0 or col < 0:
        raise ShapeError("a triangle of a negative size", got=f"{row}, {col}")
    spans = [
        range(max(min(i + offset + 1, col), 0)) if lower else range(min(max(i + offset, 0), col), col)
        for i in range(row)
    ]
    places = [[i for i, span in enumerate(spans) for _ in span], [j for span in spans for j in span]]
    return (
        F.stack([_vector(p) for p in places]) if dtype is None else cast(F.stack([_vector(p) for p in places]), dtype)
    )


def _vector(numbers: list[int]) -> Value:
    return as_value(numbers) if numbers else F.zeros((0,), dtype=dt.int64)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None) -> Value:
    """i64[2, K]: rows and columns of a lower triangle."""
    return _triangle_places(row, col, offset, dtype, lower=True)


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: DType | None = None) -> Value:
    """i64[2, K]: rows and columns of an upper triangle."""
    return _triangle_places(row, col, offset, dtype, lower=False)


# ---- places and padding


def nonzero_static(input: Value, *, size: int, fill_value: int = -1) -> Value:
    """i64[size, ndim]: the places of the elements that are not zero, the first `size` of them, or filled up."""
    shape = shape_of(input)
    flat = F.reshape(F.ne(input, 0) if dtype_of(input) is not dt.bool_ else input, -1)
    count = F.sum(flat)
    order = prims.argsort(cast(F.logical_not(flat), dt.uint8), 0, False)  # stable: those that are not zero first
    taken = F.narrow(order, 0, 0, min(size, math.prod(shape)))
    rest = F.pad(taken, (0, size - taken.shape[0]))
    columns, strides = [], [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    for n, stride in zip(shape, strides):
        columns.append(F.remainder(F.floor_divide(rest, max(stride, 1)), max(n, 1)))
    places = F.stack(columns, 1) if columns else F.zeros((size, 0), dtype=dt.int64)
    known = F.lt(prims.iota((size,), 0, dt.int64), count)
    return F.where(F.unsqueeze(known, 1), places, fill_value)


def constant_pad_nd(input: Value, pad: Sequence[int], value: Scalar = 0) -> Value:
    """input with `value` around it: (low, high) pairs from the last dim backwards."""
    return F.pad(input, tuple(pad), "constant", value)
