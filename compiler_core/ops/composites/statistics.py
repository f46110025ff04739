"""Counting, ordering statistics and covariance: histc, bucketize, searchsorted, isin, quantile, mode, cov, corrcoef.

In: values, torch's arguments. Out: values. Searches halve the sequence, log2(n) reads an element (Knuth 6.2.1); order
statistics sort through the primitive argsort; counts are scatter_add. So all of it traces.
"""

from __future__ import annotations

import math
from typing import Any

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError, NoKernelError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    Scalar,
    as_value,
    broadcast_to,
    cast,
    dtype_of,
    floating,
    is_scalar,
    like,
    normalize_dim,
    shape_of,
    strict,
)
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.composites.reduction import ValuesAndIndices, named
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.size_numbers import as_float, less

# ---- searches


def searchsorted(
    sorted_sequence: Value,
    input: Value | Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """Where input's elements would stand in the sequence, ascending along its last dim: i64 (or i32) of input's shape.

    side "left" (the default): before equal ones; "right", or right=True: after them. sorter: the order of a sequence
    that is not sorted.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ShapeError("searchsorted: side is 'left' or 'right'", got=f"side={side!r}, right={right}")
    sequence = as_value(sorted_sequence)
    if sorter is not None:
        sequence = F.gather(sequence, -1, sorter)
    values = strict(input, (), dtype_of(sequence)) if is_scalar(input) else as_value(input)
    dtype = dt.promote(sequence, values)
    sequence, values = cast(sequence, dtype), cast(values, dtype)
    if len(sequence.shape) > 1 and shape_of(sequence)[:-1] != shape_of(values)[:-1]:
        raise ShapeError(
            "searchsorted: leading sizes differ", expected=str(shape_of(sequence)[:-1]), got=str(shape_of(values))
        )
    places = like(_search(sequence, values, right=right or side == "right"), values)
    return cast(places, dt.int32) if out_int32 else places


def _search(sequence: Value, values: Value, *, right: bool) -> Value:
    n, shape = sequence.shape[-1], shape_of(values)
    flat, floating = len(sequence.shape) == 1, dtype_of(values).is_floating_point
    low = prims.full(shape, 0, dt.int64)
    last = F.isnan(values) if floating else None  # NaN counts as the largest
    step = 1 << max(n.bit_length() - 1, 0)
    while n and step:
        probe = F.add(low, step - 1)
        inside = prims.minimum(probe, prims.full(shape, n - 1, dt.int64))
        found = prims.take(sequence, inside) if flat else prims.gather(sequence, inside, len(shape) - 1)
        before = F.le(found, values) if right else F.lt(found, values)
        if last is not None:
            before = F.logical_or(before, last if right else F.logical_and(last, F.logical_not(F.isnan(found))))
        taken = F.logical_and(before, F.lt(probe, n))
        low = F.add(low, F.mul(cast(taken, dt.int64), step))  # no choice between two numbers: vectors have none
        step >>= 1
    return low


@lies("rows")
def bucketize(input: Value | Scalar, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    """The bucket each element falls in: the number of boundaries below it (right: below it or equal)."""
    need_kind("bucketize", "iuf", input)
    if len(boundaries.shape) != 1:
        raise ShapeError("bucketize: boundaries are a vector", got=str(tuple(boundaries.shape)))
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Value:
    """Whether each element is among test_elements."""
    if is_scalar(elements) and is_scalar(test_elements):
        raise DTypeError("isin takes at least one tensor", got=f"{elements!r}, {test_elements!r}")
    need_kind("isin", "iuf", *(x for x in (elements, test_elements) if hasattr(x, "dtype")))
    tests = test_elements if is_scalar(test_elements) else F.reshape(test_elements, -1)
    if is_scalar(tests):
        found = F.eq(elements, tests)
    elif is_scalar(elements):
        found = F.any(F.eq(tests, elements))
    else:
        found = F.any(F.eq(F.unsqueeze(elements, -1), tests), -1)
    return F.logical_not(found) if invert else found


def unravel_index(indices: Value, shape: Any) -> tuple[Value, ...]:
    """Flat places as one index a dim."""
    need_kind("unravel_index", "iu", indices)
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    places, rest = [], cast(as_value(indices), dt.int64)
    for n in reversed(sizes):
        places.append(F.remainder(rest, n))
        rest = F.floor_divide(rest, n)
    return tuple(reversed(places))


# ---- counts


def histc(input: Value, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Value:
    """How many elements fall in each of `bins` equal parts of [min, max]: of the data's range if both are 0.

    On a GPU of whole numbers, too, as in torch. Raises NoKernelError for these on the CPU, ShapeError for no parts.
    """
    x = F.reshape(as_value(input), -1)
    is_whole = dtype_of(x).kind in "iu" and getattr(x, "is_cuda", False)
    if not (dtype_of(x).is_floating_point or is_whole):
        raise NoKernelError("histc takes floating tensors", got=dtype_of(x).name)
    if bins <= 0 or min > max:
        raise ShapeError("histc: bins > 0 and min <= max", got=f"{bins}, {min}, {max}")
    if not x.shape[0]:
        return F.zeros((bins,), dtype=dtype_of(x))
    if is_whole:
        return cast(_counts(cast(x, dt.int64), bins, int(min), int(max), dt.int64), dtype_of(x))
    return _counts(prims.detach(x), bins, min, max, dtype_of(x))


def _counts(x: Value, bins: int, min: Scalar, max: Scalar, dtype: DType) -> Value:
    """[bins] of dtype, which x has. Of whole numbers the parts' bounds are rounded down, in their arithmetic."""
    is_whole = not dtype.is_floating_point
    number: type[int | float] = int if is_whole else float
    if min == max and not is_whole:
        x = prims.require(x, F.logical_not(F.isfinite(x)), "value", "histc: the range of the data is not finite")
    low, high = (F.amin(x), F.amax(x)) if min == max else (F.full((), v, dtype=dtype) for v in (min, max))
    if min == max:
        flat = F.eq(low, high)
        low, high = F.where(flat, F.sub(low, number(1)), low), F.where(flat, F.add(high, number(1)), high)
    steps = F.mul(F.sub(x, low), number(bins))
    place = (F.floor_divide if is_whole else F.div)(steps, F.sub(high, low))
    inside = F.logical_and(F.ge(x, low), F.le(x, high))
    place = F.where(inside, place if is_whole else F.floor(place), number(0))
    place = cast(F.clamp(place, number(0), number(bins - 1)), dt.int64)
    return prims.scatter_add(prims.full((bins,), 0, dtype), place, cast(inside, dtype), 0)


# ---- order


def _sorted(x: Value, dim: int) -> Value:
    return prims.gather(x, prims.argsort(prims.detach(x), dim, False), dim)


@in_float32_on_cpu
def quantile(
    input: Value, q: Value | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Value:
    """The q-th quantiles along `dim` (None: of all elements): T[*q.shape, ...]. NaN if there is one.

    interpolation: "linear", "lower", "higher", "midpoint" or "nearest".
    """
    return _quantile(input, q, dim, keepdim, interpolation, ignore_nan=False)


@in_float32_on_cpu
def nanquantile(
    input: Value, q: Value | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Value:
    """`quantile` of what is not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, ignore_nan=True)


def _quantile(
    input: Value, q: Value | float, dim: int | None, keepdim: bool, interpolation: str, *, ignore_nan: bool
) -> Value:
    x = as_value(input)
    if not dtype_of(x).is_floating_point or math.prod(x.shape) == 0:
        raise ShapeError("quantile takes floating tensors that are not empty", got=f"{x.dtype}{tuple(x.shape)}")
    shape = shape_of(x)
    d = 0 if dim is None or not shape else normalize_dim(dim, len(shape))
    x = F.reshape(x, -1) if dim is None or not shape else x
    lines = _sorted(F.movedim(x, d, -1), len(x.shape) - 1)  # (*rest, n), NaN last
    wanted = F.full((), q, dtype=dtype_of(x)) if is_scalar(q) else cast(as_value(q), dtype_of(x))
    ranks = F.reshape(wanted, -1)  # (Q,)
    n = x.shape[d]
    valid = F.sum(F.logical_not(F.isnan(lines)), -1, True)  # (*rest, 1)
    last = F.clamp(F.sub(valid, 1), min=0) if ignore_nan else F.full_like(valid, n - 1)
    last = cast(last, dtype_of(x))
    place = F.mul(ranks, last)  # (*rest, Q)
    if not ignore_nan:  # the last element is one, and takes the gradient
        place = F.where(F.lt(valid, n), last, place)
    values = F.movedim(_interpolated(lines, place, interpolation), -1, 0)  # (Q, *rest)
    kept = (1,) * len(shape) if dim is None else tuple(1 if k == d else m for k, m in enumerate(shape))
    rest = kept if keepdim else () if dim is None else tuple(m for k, m in enumerate(shape) if k != d)
    return F.reshape(values, (*shape_of(wanted), *rest))


def _interpolated(lines: Value, place: Value, interpolation: str) -> Value:
    """The elements of `lines` along their last dim at fractional places."""

    def at(places: Value) -> Value:
        return prims.gather(lines, cast(prims.detach(places), dt.int64), len(lines.shape) - 1)

    low, high = F.floor(place), F.ceil(place)
    if interpolation == "lower":
        return at(low)
    if interpolation == "higher":
        return at(high)
    if interpolation == "nearest":
        return at(F.round(place))
    if interpolation not in ("linear", "midpoint"):
        raise ShapeError("quantile: unknown interpolation", got=repr(interpolation))
    weight = F.sub(place, low) if interpolation == "linear" else F.full_like(place, 0.5)
    return F.lerp(at(low), at(high), weight)  # from the nearer one, which may be infinite


def mode(input: Value, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """(the most frequent element along `dim`, the smallest of several; its last place: i64)."""
    if not input.shape:
        one = mode(F.reshape(input, 1), 0)
        return named("mode")(F.reshape(one.values, ()), F.reshape(one.indices, ()))
    x = F.movedim(input, dim, -1)
    last = len(x.shape) - 1
    order = prims.argsort(prims.detach(x), last, False)
    lines = prims.detach(prims.gather(x, order, last))
    same = F.eq(F.unsqueeze(lines, -1), F.unsqueeze(lines, -2))
    best = F.unsqueeze(F.argmax(F.sum(same, -1), -1), -1)  # the first place of the most frequent
    value = prims.gather(lines, best, last)
    count = prims.iota(shape_of(x), last, dt.int64)
    hit = F.eq(prims.detach(x), broadcast_to(value, shape_of(x)))
    place = F.clamp(F.amax(F.where(hit, count, -1), -1, True), min=0)  # NaN, which equals nothing: the first
    values = prims.gather(x, place, last)
    both = (F.movedim(values, -1, dim), F.movedim(place, -1, dim))
    return named("mode")(*(both if keepdim else (F.squeeze(v, dim) for v in both)))


# ---- moments


def std_mean(
    input: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Value, Value]:
    """(standard deviation, mean) over `dim`; std_mean(x, False) is of all elements with that `unbiased`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return F.std(input, dim, unbiased, keepdim, correction=correction), F.mean(input, dim, keepdim)


def _observed(name: str, weights: Value | None, x: Value, *, whole: bool) -> Value | None:
    """The weights of x's columns, once they were seen to be one a column, and none negative."""
    if weights is None:
        return None
    if len(weights.shape) > 1:
        raise ShapeError(f"cov(): expected {name} to have one or fewer dimensions", got=str(tuple(weights.shape)))
    if whole == dtype_of(weights).is_inexact:
        kind = "integral" if whole else "floating point"
        raise DTypeError(f"cov(): expected {name} to have {kind} dtype", got=dtype_of(weights).name)
    if math.prod(weights.shape) != x.shape[1]:
        got = f"{math.prod(weights.shape)} != {x.shape[1]}"
        raise ShapeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input", got=got
        )
    negative = prims.lt(weights, prims.full_like(weights, 0))
    return prims.require(weights, negative, "value", f"cov(): {name} cannot be negative")


def cov(input: Value, *, correction: int = 1, fweights: Value | None = None, aweights: Value | None = None) -> Value:
    """The covariance matrix of the rows (variables) over the columns (observations).

    fweights: how often each observation counts; aweights: its importance.
    """
    need_kind("cov", "iufc", input)
    if len(input.shape) > 2:
        raise ShapeError("cov takes at most two dims", got=str(tuple(input.shape)))
    x = floating(input)
    x = F.reshape(x, (1, -1)) if len(x.shape) < 2 else x
    fweights, aweights = _observed("fweights", fweights, x, whole=True), _observed("aweights", aweights, x, whole=False)
    weights = fweights if aweights is None else aweights if fweights is None else F.mul(fweights, aweights)
    if weights is None:
        total: Any = as_float(x.shape[1])
        average = F.div(F.sum(x, 1, True), total)
        divisor: Any = less(total, correction)
        away = F.sub(x, average)
        weighted = away
    else:
        w = cast(weights, dtype_of(x).real)
        total = F.sum(w)
        average = F.div(F.sum(F.mul(x, w), 1, True), total)
        away = F.sub(x, average)
        weighted = F.mul(away, w)
        spread = total if aweights is None else F.div(F.sum(F.mul(w, aweights)), total)
        divisor = F.clamp(F.sub(total, F.mul(spread, correction) if aweights is not None else correction), min=0.0)
    product = F.matmul(weighted, prims.conj(F.t(away)))
    product = F.div(product, divisor)
    return F.reshape(product, ()) if product.shape == (1, 1) else product


def corrcoef(input: Value) -> Value:
    """Pearson's correlation of the rows, within [-1, 1]."""
    need_kind("corrcoef", "iufc", input)
    c = cov(input)
    if not c.shape:
        return F.div(c, c)
    n = c.shape[0]
    on = prims.eq(prims.iota((n, n), 0, dt.int64), prims.iota((n, n), 1, dt.int64))
    variances = prims.real(c) if dtype_of(c).is_complex else c
    spread = F.sqrt(F.sum(F.where(on, variances, 0.0), 1))
    result = F.div(F.div(c, F.unsqueeze(spread, 1)), F.unsqueeze(spread, 0))
    if dtype_of(c).is_complex:
        return prims.complex(*(F.clamp(part, -1.0, 1.0) for part in (prims.real(result), prims.imag(result))))
    return F.clamp(result, -1.0, 1.0)
