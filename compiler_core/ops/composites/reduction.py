"""Reductions over any Value, with torch's names and arguments.

In: a value, `dim` (int, ints, or None for all; negative allowed), `keepdim`. Out: one value, or (values, indices).
Sums of bools and integers are int64. Means, variances and norms of 16-bit floats are computed in f32 and rounded once.
Variance is computed in two passes, about the mean.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import EmptyReductionError
from compiler_core.names.spelling import RETURN_TYPES, result_text
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    Dim,
    as_new,
    as_value,
    broadcast_to,
    cast,
    dtype_of,
    floating,
    is_narrow,
    kept_shape,
    like,
    normalize_dim,
    normalize_dims,
    plain,
    shape_of,
    widened,
)
from compiler_core.ops.casting import in_float32
from compiler_core.ops.composites.arithmetic import maximum, minimum, pow
from compiler_core.ops.composites.unary import truth
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.primitives.deviation import centered
from compiler_core.ops.refusals import need_floating, need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import as_float, as_like, less
from compiler_core.ops.whole import whole


class ValuesAndIndices(NamedTuple):
    """What max(x, dim) and its kin return."""

    values: Value
    indices: Value


@functools.cache
def named(name: str) -> type[ValuesAndIndices]:
    """The class of what torch's function `name` returns, torch.return_types.`name`."""
    members = {"__slots__": (), "__module__": RETURN_TYPES, "__repr__": lambda self: result_text(name, self)}
    kind: type[ValuesAndIndices] = type(name, (ValuesAndIndices,), members)
    return kind


def _keep(result: Value, shape: tuple[int, ...], dims: tuple[int, ...], keepdim: bool) -> Value:
    return prims.reshape(result, kept_shape(shape, dims)) if keepdim and dims else result


def _count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    return math.prod(shape[d] for d in dims)


def _summable(x: Value, dtype: DType | None) -> Value:
    """x in the dtype of its sum: int64 for bools and integers."""
    if dtype is None and dtype_of(x).kind not in "fc":
        dtype = dt.int64
    return cast(x, dtype)


@remembered
@numpy_names
def sum(input: Value, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Value:
    """The sum over `dim`."""
    if dtype is dt.bool_:
        return _extreme(prims.max, truth(input), dim, keepdim)
    x = _summable(as_value(input), dtype)
    dims = normalize_dims(dim, len(x.shape))
    if not dims:
        return as_new(x)
    return _keep(prims.sum(x, dims), shape_of(x), dims, True) if keepdim else prims.sum(x, dims)


@remembered
@numpy_names
@in_float32
def prod(input: Value, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Value:
    """The product over `dim`."""
    if dtype is dt.bool_:
        return _extreme(prims.min, truth(input), dim, keepdim)
    x = _summable(as_value(input), dtype)
    dims = normalize_dims(dim, len(x.shape))
    return _keep(prims.prod(x, dims), shape_of(x), dims, keepdim) if dims else as_new(x)


@remembered
@numpy_names
def mean(input: Value, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Value:
    """The arithmetic mean over `dim`. Raises DTypeError for integers."""
    x = cast(as_value(input), dtype)
    need_floating("mean", x)
    return averaged(x, normalize_dims(dim, len(x.shape)), keepdim)


def averaged(x: Value, dims: tuple[int, ...], keepdim: bool) -> Value:
    """The mean over dims, of 16-bit floats whole: they are read once, where there is a definition for it."""
    found: Value = (_whole_average if is_narrow(x) and dims else average)(x, dims=dims, keepdim=keepdim)
    return found


def average(x: Value, *, dims: tuple[int, ...], keepdim: bool) -> Value:
    """The same, op by op."""
    wide = widened(x)
    total = prims.sum(wide, dims) if dims else wide
    result = prims.div(total, prims.full_like(total, as_float(_count(shape_of(x), dims))))
    return _keep(cast(result, dtype_of(x)), shape_of(x), dims, keepdim)


_whole_average = whole(average)


def abs_squared(x: Value) -> Value:
    """|x|^2, real."""
    if not dtype_of(x).is_complex:
        return prims.mul(x, x)
    re, im = prims.real(x), prims.imag(x)
    return prims.add(prims.mul(re, re), prims.mul(im, im))


def var_mean(
    input: Value, dim: Dim = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Value, Value]:
    """(variance, mean) over `dim`. correction: the divisor is count - correction; unbiased=True means 1.

    A bool in `dim`'s place is `unbiased`, as in torch: x.var(False). So it is for `var` and `std`.
    """
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    x = as_value(input)
    need_floating("std and var", x)
    dims = normalize_dims(dim, len(x.shape))
    shape = shape_of(x)
    average, deviation = centered(widened(x), dims)
    total = prims.sum(abs_squared(deviation), dims)
    freedom = less(_count(shape, dims), float(unbiased) if correction is None else correction)
    result = prims.div(total, as_like(total, freedom))
    kept = average if keepdim else prims.reshape(average, tuple(n for d, n in enumerate(shape) if d not in dims))
    return cast(_keep(result, shape, dims, keepdim), dtype_of(x).real), cast(kept, dtype_of(x))


@remembered
@numpy_names
def var(
    input: Value, dim: Dim = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Value:
    """The variance over `dim`."""
    return var_mean(input, dim, unbiased, keepdim, correction=correction)[0]


def sqrt_flat_at_zero(x: Value) -> Value:
    """sqrt(x) with derivative 0 at 0, as torch's norm and std have it."""
    zero = prims.full_like(x, 0.0)
    is_zero = prims.eq(x, zero)
    return prims.where(is_zero, zero, prims.sqrt(prims.where(is_zero, prims.full_like(x, 1.0), x)))


def only_size(size: Value, dims: tuple[int, ...], keepdim: bool) -> Value | None:
    """The norm over dims of one element each, which is that element's size, whatever the order; None over others."""
    shape = shape_of(size)
    if builtins.any(type(shape[d]) is not int or shape[d] != 1 for d in dims):
        return None
    return sum(size, dims, keepdim) if dims else as_new(size)  # a sum lies as torch's norm does


def power_norm(size: Value, power: float, dim: Dim, keepdim: bool) -> Value:
    """(sum size^power)^(1/power). A size of 0 has the gradient 0; if the power is negative, it makes the norm 0."""
    zero = prims.eq(size, prims.full_like(size, 0.0))
    powers = pow(prims.where(zero, prims.full_like(size, 1.0), size), power)
    total = sum(powers if power < 0 else prims.where(zero, prims.full_like(size, 0.0), powers), dim, keepdim)
    nothing = prims.full_like(total, 0.0)
    flat = any(zero, dim, keepdim) if power < 0 else prims.eq(total, nothing)
    return prims.where(flat, nothing, pow(prims.where(flat, prims.full_like(total, 1.0), total), 1.0 / power))


@remembered
@numpy_names
def std(
    input: Value, dim: Dim = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Value:
    """The standard deviation over `dim`. On the CPU squares of float32 are added up in float64, as torch does."""
    dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    x = as_value(input)
    need_floating("std and var", x)
    if dtype_of(x).is_complex:
        return sqrt_flat_at_zero(var(x, dim, unbiased, keepdim, correction=correction))
    values, dims = widened(x), normalize_dims(dim, len(x.shape))
    less = float(unbiased) if correction is None else float(plain(correction))
    in_float64 = dtype_of(values) is dt.float32 and not getattr(x, "is_cuda", False)
    result = prims.std(values, dims=dims, correction=less, wide=in_float64)
    return cast(_keep(result, shape_of(x), dims, keepdim), dtype_of(x))


@remembered
@numpy_names
def amax(input: Value, dim: Dim = None, keepdim: bool = False) -> Value:
    """The largest over `dim`; the cotangent is shared evenly between equal ones."""
    need_kind("amax", "biuf", input)
    return _extreme(prims.max, _filled("amax", as_value(input), dim), dim, keepdim)


@remembered
@numpy_names
def amin(input: Value, dim: Dim = None, keepdim: bool = False) -> Value:
    """The smallest over `dim`."""
    need_kind("amin", "biuf", input)
    return _extreme(prims.min, _filled("amin", as_value(input), dim), dim, keepdim)


def _filled(name: str, x: Value, dim: Dim) -> Value:
    """x. Raises EmptyReductionError for bools without an element, of which the ops make what `any` and `all` are."""
    if dtype_of(x) is dt.bool_ and 0 in [x.shape[d] for d in normalize_dims(dim, len(x.shape)) if x.shape]:
        what = f"{name} over an empty dimension has no value"
        raise EmptyReductionError(what, got=str(tuple(x.shape)), remedy="check the size before reducing")
    return x


def _extreme(extreme: Callable[..., Value], x: Value, dim: Dim, keepdim: bool) -> Value:
    dims = normalize_dims(dim, len(x.shape))
    return _keep(extreme(x, dims), shape_of(x), dims, keepdim) if dims else as_new(x)


@remembered
@numpy_names
def argmax(input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The index of the first largest along `dim`, or in the flattened input. i64."""
    need_kind("argmax", "iufc", input)
    return _place(as_value(input), dim, keepdim, largest=True)


@remembered
@numpy_names
def argmin(input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The index of the first smallest along `dim`, or in the flattened input. i64."""
    need_kind("argmin", "iufc", input)
    return _place(as_value(input), dim, keepdim, largest=False)


def _place(x: Value, dim: int | None, keepdim: bool, *, largest: bool) -> Value:
    shape = shape_of(x)
    if dim is None or not shape:
        flat, dims = prims.reshape(x, (math.prod(shape),)), (0,)
    else:
        flat, dims = x, (normalize_dim(dim, len(shape)),)
    place = (prims.argmax if largest else prims.argmin)(flat, dims)
    if not keepdim:
        return place
    return prims.reshape(place, kept_shape(shape, range(len(shape)) if dim is None else dims))


def _along(x: Value, dim: int, keepdim: bool, *, largest: bool) -> ValuesAndIndices:
    d = normalize_dim(dim, len(x.shape))
    if not x.shape:
        return ValuesAndIndices(as_new(x), like(prims.full((), 0, dt.int64), x))
    kept = _place(x, d, True, largest=largest)
    values = prims.gather(x, kept, d)
    dropped = tuple(n for k, n in enumerate(x.shape) if k != d)
    both = (values, kept) if keepdim else (prims.reshape(values, dropped), prims.reshape(kept, dropped))
    return ValuesAndIndices(*both)


def _of_all(extremum: Callable[..., Value], x: Value) -> Value:
    """The extremum of all elements: if NaN, its gradient is shared by those that are, as by equal numbers."""
    dims = tuple(range(len(x.shape)))
    return extremum(x, dims, shared=dtype_of(x).is_floating_point) if dims else as_new(x)


@remembered
def _greatest(input: Value) -> Value:
    return _of_all(prims.max, _filled("max", as_value(input), None))


@remembered
def _least(input: Value) -> Value:
    return _of_all(prims.min, _filled("min", as_value(input), None))


@numpy_names
def max(
    input: Value, dim: int | Value | None = None, keepdim: bool = False, *, other: Value | None = None
) -> Value | ValuesAndIndices:
    """max(x): the largest. max(x, dim): (values, indices). max(x, y): the elementwise larger."""
    need_kind("max", "biuf", input)
    if other is not None:
        return maximum(input, other)
    if dim is None:
        return _greatest(input)
    if isinstance(dim, (int, np.integer)):
        return named("max")(*_along(as_value(input), int(dim), keepdim, largest=True))
    return maximum(input, dim)


@numpy_names
def min(
    input: Value, dim: int | Value | None = None, keepdim: bool = False, *, other: Value | None = None
) -> Value | ValuesAndIndices:
    """min(x): the smallest. min(x, dim): (values, indices). min(x, y): the elementwise smaller."""
    need_kind("min", "biuf", input)
    if other is not None:
        return minimum(input, other)
    if dim is None:
        return _least(input)
    if isinstance(dim, (int, np.integer)):
        return named("min")(*_along(as_value(input), int(dim), keepdim, largest=False))
    return minimum(input, dim)


def _as_asked(found: Value, input: Value) -> Value:
    """A truth value; of uint8, as torch has it, a uint8."""
    return cast(found, dt.uint8) if dtype_of(as_value(input)) is dt.uint8 else found


@remembered
@numpy_names
def any(input: Value, dim: Dim = None, keepdim: bool = False) -> Value:
    """Whether some element is non-zero."""
    return _as_asked(_extreme(prims.max, truth(input), dim, keepdim), input)


@remembered
@numpy_names
def all(input: Value, dim: Dim = None, keepdim: bool = False) -> Value:
    """Whether all elements are non-zero."""
    return _as_asked(_extreme(prims.min, truth(input), dim, keepdim), input)


@numpy_names
def count_nonzero(input: Value, dim: Dim = None) -> Value:
    """How many elements are non-zero. i64."""
    return sum(truth(input), dim)


@remembered
def norm(input: Value, p: float | str = 2, dim: Dim = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    """The vector norm (sum |x|^p)^(1/p) over `dim`; p may be inf, -inf, 0, or "fro" (2)."""
    need_floating("norm", as_value(input))
    x = cast(as_value(input), dtype)
    p = p if isinstance(p, str) else plain(p)
    if p == "nuc":
        from compiler_core.ops.linear_algebra import norms as composite_matrix  # which is above this file

        return composite_matrix.nuclear_norm(x, dim, keepdim)
    wide, dims = widened(x), normalize_dims(dim, len(x.shape))
    if not isinstance(p, str) and p < 0 and builtins.any(shape_of(x)[d] == 0 for d in dims):
        raise EmptyReductionError("norm: of negative order there is none over nothing", got=str(shape_of(x)))
    single = only_size(prims.abs(wide), dims, keepdim) if p != 0 else None
    if single is not None:
        result = single
    elif p in ("fro", 2):
        result = sqrt_flat_at_zero(sum(abs_squared(wide), dim, keepdim))
    elif p == math.inf:
        result = _keep(prims.max(prims.abs(wide), dims, shared=True), shape_of(x), dims, keepdim)
    elif p == -math.inf:
        result = _keep(prims.min(prims.abs(wide), dims, shared=True), shape_of(x), dims, keepdim)
    elif p == 0:
        count = cast(sum(truth(wide), dim, keepdim), dtype_of(wide).real)
        always = prims.full(shape_of(count), True, dt.bool_)
        rest = cast(sum(wide, dim, keepdim), dtype_of(count))
        result = prims.where(always, count, rest)  # its gradient is 0, as torch has it
    elif p == 1:
        result = sum(prims.abs(wide), dim, keepdim)
    else:
        result = power_norm(prims.abs(wide), float(p), dim, keepdim)
    return cast(result, dtype_of(x).real)


def stable_shift(wide: Value, dims: tuple[int, ...]) -> tuple[Value, Value]:
    """(m, wide - m) with m the detached maximum over dims, kept: exp of the second cannot overflow.

    The functions that use it do not depend on m, so cutting its gradient changes no derivative.
    """
    shape = shape_of(wide)
    peak = prims.reshape(prims.detach(prims.max(wide, dims)), kept_shape(shape, dims))
    return peak, prims.sub(wide, broadcast_to(peak, shape))


@remembered
def logsumexp(input: Value, dim: Dim, keepdim: bool = False) -> Value:
    """log(sum(exp(input))) over `dim`, without overflow."""
    x = floating(input)
    wide = widened(x)
    dims = normalize_dims(dim, len(x.shape))
    shape = shape_of(x)
    if not _count(shape, dims):
        return _keep(prims.log(prims.sum(x, dims)), shape, dims, keepdim)
    peak = prims.detach(prims.max(prims.real(wide) if dtype_of(x).is_complex else wide, dims))
    finite = prims.lt(prims.abs(peak), prims.full_like(peak, math.inf))
    peak = prims.where(finite, peak, prims.full_like(peak, 0.0))  # all -inf: shift by 0, so that the result is -inf
    peak = cast(peak, dtype_of(wide))
    shifted = prims.sub(wide, broadcast_to(prims.reshape(peak, kept_shape(shape, dims)), shape))
    result = prims.add(prims.log(prims.sum(prims.exp(shifted), dims)), peak)
    return _keep(cast(result, dtype_of(x)), shape, dims, keepdim)


@remembered
@numpy_names
def cumsum(input: Value, dim: int, *, dtype: DType | None = None) -> Value:
    """Running sums along `dim`."""
    x = _summable(as_value(input), dtype)
    d = normalize_dim(dim, len(x.shape))
    return prims.cumsum(x, d) if x.shape else as_new(x)
