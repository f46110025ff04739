"""Parts of a tensor replaced or reduced into: masked_scatter, scatter_reduce, select_scatter.

In: values, torch's arguments. Out: new values (none of these results is a view).
scatter_reduce by prod compares every index with every place of its line, so it costs their product; amax and amin sort
what is put; sum and mean are scatter_add. A mask's places are numbered by a running sum, so nothing here needs data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    Scalar,
    as_value,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    is_scalar,
    normalize_dim,
    rounded_once,
    shape_of,
    strict,
)
from compiler_core.ops.composites.movement import depending
from compiler_core.ops.composites.stacking import diag_embed
from compiler_core.ops.lying import lies
from compiler_core.ops.primitives.strided import check_strided, strided_places
from compiler_core.ops.refusals import check_fits, need_kind
from compiler_core.ops.registry import Value


def with_flat(input: Value, result: Value) -> Value:
    """result, which does not depend smoothly on input, as a function of it whose gradient is 0."""
    return prims.where(prims.full(shape_of(result), True, dt.bool_), result, as_value(input))


# ---- by a mask, by flat places


@lies("rows")
def masked_scatter(input: Value, mask: Value, source: Value) -> Value:
    """input with source's first elements, in order, where mask holds. Raises IndexError_ if source has too few."""
    shape = broadcast_shapes(shape_of(input), shape_of(mask))
    x, mask = broadcast_to(as_value(input), shape), broadcast_to(as_value(mask), shape)
    if dtype_of(mask) is not dt.bool_:
        raise DTypeError("masked_scatter takes a bool mask", expected="bool", got=dtype_of(mask).name)
    if dtype_of(source) is not dtype_of(x):
        raise DTypeError("masked_scatter: dtypes differ", expected=dtype_of(x).name, got=dtype_of(source).name)
    count = math.prod(shape)
    if not count or not math.prod(source.shape):
        return depending(F.where(mask, F.zeros((), dtype=dtype_of(x)), x) if count else x, source)
    flat = F.reshape(mask, -1)
    places = F.sub(F.cumsum(flat, 0), 1)
    taken = prims.take(F.reshape(source, -1), prims.where(flat, places, prims.full_like(places, 0)))
    return prims.where(mask, F.reshape(taken, shape), x)


@lies("first")
def put(input: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """input with source's elements put (or added) at flat places `index`."""
    flat = F.setitem(F.reshape(input, -1), (F.reshape(index, -1),), F.reshape(source, -1), accumulate=accumulate)
    return F.reshape(flat, shape_of(input))


def take(input: Value, index: Value) -> Value:
    """The elements of the flattened input at places `index`: T[*index.shape]."""
    return F.getitem(F.reshape(input, -1), (index,))


@lies("first")
def index_fill(input: Value, dim: int, index: Value, value: Any) -> Value:
    """input with one value at places `index` along `dim`."""
    if not is_scalar(value) and tuple(value.shape):
        raise ShapeError("index_fill takes a number or a 0-d tensor", got=str(tuple(value.shape)))
    x = F.reshape(input, 1) if not input.shape else as_value(input)
    d = normalize_dim(dim, len(x.shape))
    hit = F.zeros((x.shape[d],), dtype=dt.int64)
    hit = F.gt(F.setitem(hit, (F.reshape(index, -1),), 1), 0)  # places named twice are as good as once
    mask = F.reshape(hit, tuple(n if k == d else 1 for k, n in enumerate(x.shape)))
    return F.reshape(F.masked_fill(x, F.expand(mask, shape_of(x)), value), shape_of(input))


# ---- slices replaced


def _fits(name: str, want: Sequence[int], src: Value) -> None:
    if tuple(src.shape) != tuple(want):
        raise ShapeError(f"{name}: src has the wrong shape", expected=str(tuple(want)), got=str(tuple(src.shape)))


@lies("first")
def slice_scatter(
    input: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """input with src in place of input[start:end:step] along `dim`."""
    d = normalize_dim(dim, len(input.shape))
    places = slice(start, end, step)
    count = len(range(*places.indices(input.shape[d])))
    _fits("slice_scatter", (*input.shape[:d], count, *input.shape[d + 1 :]), src)
    return F.setitem(input, (*[slice(None)] * d, places), src)


@lies("first")
def select_scatter(input: Value, src: Value, dim: int, index: int) -> Value:
    """input with src in place of the slice at `index` along `dim`."""
    d = normalize_dim(dim, len(input.shape))
    _fits("select_scatter", (*input.shape[:d], *input.shape[d + 1 :]), src)
    return F.setitem(input, (*[slice(None)] * d, index), src)


@lies("first")
def diagonal_scatter(input: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """input with src in place of a diagonal over dims dim1 and dim2."""
    x = F.movedim(input, (dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    _fits("diagonal_scatter", (*x.shape[:-2], count), src)
    if not count:
        return x if x is input else F.movedim(x, (-2, -1), (dim1, dim2))
    top, left = max(-offset, 0), max(offset, 0)
    square = diag_embed(src)  # (*, count, count)
    placed = F.pad(square, (left, columns - left - count, top, rows - top - count))
    row, column = prims.iota((rows, columns), 0, dt.int64), prims.iota((rows, columns), 1, dt.int64)
    on = broadcast_to(F.eq(column, F.add(row, offset)), shape_of(x))
    return F.movedim(prims.where(on, placed, x), (-2, -1), (dim1, dim2))


# ---- reduced into places


def integer_limits(dtype: dt.DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer dtype, or bool."""
    bits = 8 * dtype.itemsize
    if dtype is dt.bool_:
        return 0, 1
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)


def scatter_reduce(
    input: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """input with src[i][j] reduced into place [index[i][j]][j] for dim 0, and so on.

    reduce: "sum", "prod", "mean", "amax" or "amin". include_self: whether input's element takes part.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ShapeError("scatter_reduce: unknown reduce", expected="sum, prod, mean, amax or amin", got=repr(reduce))
    if not input.shape:
        one = (F.reshape(v, 1) for v in (input, index, src))
        x, index, src = one
        return F.reshape(scatter_reduce(x, dim, index, src, reduce, include_self=include_self), ())
    d = normalize_dim(dim, len(input.shape))
    region = tuple(slice(None) if k == d else slice(n) for k, n in enumerate(index.shape))
    src = F.getitem(src, tuple(slice(n) for n in index.shape))
    part = F.getitem(input, region)  # the lines that have an index
    reduced = _reduced(part, d, cast(index, dt.int64), src, reduce, include_self)
    return reduced if shape_of(part) == shape_of(input) else F.setitem(input, region, reduced)


def _reduced(x: Value, d: int, index: Value, src: Value, reduce: str, include_self: bool) -> Value:
    count = prims.scatter_add(prims.full(shape_of(x), 0, dt.int64), index, prims.full(shape_of(index), 1, dt.int64), d)
    if reduce in ("sum", "mean"):
        base = x if include_self else prims.where(F.gt(count, 0), prims.full_like(x, 0), x)
        total = F.scatter_add(base, d, index, src)
        if reduce == "sum":
            return total
        parts = F.clamp(F.add(count, 1) if include_self else count, min=1)
        mode = None if dtype_of(x).is_floating_point else "floor"
        return F.div(total, cast(parts, dtype_of(x)), rounding_mode=mode)
    untouched = prims.eq(count, prims.full_like(count, 0))
    keeps = prims.full(shape_of(x), True, dt.bool_) if include_self else untouched
    index = prims.check_index(index, x.shape[d])
    if reduce == "prod":
        return _by_comparison(x, d, index, src, keeps)
    return _extreme(x, d, index, src, reduce == "amax", keeps)


def _by_comparison(x: Value, d: int, index: Value, src: Value, keeps: Value) -> Value:
    """Products. Each place has the factors of its line beside it on a new last dim: T[*x.shape, K + 1], with its own.

    keeps: where that is one.
    """
    lines = (*shape_of(x), index.shape[d])
    place = broadcast_to(F.unsqueeze(F.movedim(index, d, -1), d), lines)
    hit = prims.eq(place, prims.iota(lines, d, dt.int64))
    factors = broadcast_to(F.unsqueeze(F.movedim(src, d, -1), d), lines)
    factors = prims.where(hit, factors, prims.full(lines, 1, dtype_of(x)))
    own = prims.where(keeps, x, prims.full(shape_of(x), 1, dtype_of(x)))
    return cast(F.prod(F.cat([factors, F.unsqueeze(own, -1)], -1), -1), dtype_of(x))


def _extreme(x: Value, d: int, index: Value, src: Value, is_largest: bool, keeps: Value) -> Value:
    """The largest (or smallest) that is put in each place, and its own where it `keeps` that.

    Method: put in ascending order, the last stays. The gradient is shared evenly between equal ones: of each the
    number less itself, which is 0, is added up; an infinity less 0. Beside NaN it is NaN.
    """
    dtype, own, seen = dtype_of(x), prims.detach(x), prims.detach(src)
    is_float = dtype.is_floating_point
    rising = is_largest or is_float  # NaN comes last so, of the negated ones too
    order = prims.argsort(seen if is_largest or not is_float else prims.neg(seen), d, not rising)
    found = prims.scatter(own, prims.gather(index, order, d), prims.gather(seen, order, d), d)
    found = prims.where(keeps, (F.maximum if is_largest else F.minimum)(own, found), found)
    if not is_float:
        return found

    def away(values: Value, constant: Value, equal: Value) -> Value:
        number = prims.where(F.isfinite(constant), constant, prims.full_like(constant, 0))
        return prims.sub(number, prims.where(equal, values, number))

    at = prims.gather(found, index, d)
    is_own = F.logical_and(keeps, F.logical_or(prims.eq(own, found), F.isnan(found)))
    is_of = F.logical_or(prims.eq(seen, at), F.isnan(at))
    equals = prims.scatter_add(cast(is_own, dt.int64), index, cast(is_of, dt.int64), d)
    equals = prims.where(F.isnan(found), prims.full_like(found, math.nan), cast(F.clamp(equals, min=1), dtype))
    rest = prims.div(away(src, seen, is_of), prims.gather(equals, index, d))
    rest = prims.scatter_add(prims.div(away(x, own, is_own), equals), index, rest, d)
    return prims.sub(prims.where(F.isfinite(found), found, prims.full_like(found, 0)), rest)


def index_reduce(
    input: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """input with source's slices reduced into places `index` along `dim`. reduce: "prod", "mean", "amax" or "amin"."""
    need_kind("index_reduce", "iuf", input)
    x = F.reshape(input, 1) if not input.shape else as_value(input)
    d = normalize_dim(dim, len(x.shape))
    flat = F.reshape(index, -1)
    shape = tuple(flat.shape[0] if k == d else n for k, n in enumerate(x.shape))
    lines = F.reshape(flat, tuple(flat.shape[0] if k == d else 1 for k in range(len(shape))))
    spread = broadcast_to(lines, shape)
    out = scatter_reduce(x, d, spread, F.reshape(source, shape), reduce, include_self=include_self)
    return F.reshape(out, shape_of(input))


# ---- by strides


@lies("first")
def as_strided_scatter(
    input: Value, src: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """input with src put where `as_strided` would read."""
    size, stride, offset = tuple(size), tuple(stride), storage_offset or 0
    check_strided("as_strided_scatter", math.prod(input.shape), size, stride, offset)
    flat = prims.index_copy(
        F.reshape(input, -1), strided_places(size, stride, offset), strict(src, size, dtype_of(input))
    )
    return F.reshape(flat, shape_of(input))


@lies("rows")
@rounded_once
def renorm(input: Value, p: float, dim: int, maxnorm: float) -> Value:
    """input with each slice along `dim` whose p-norm exceeds maxnorm scaled down to it."""
    if len(input.shape) < 2:
        raise ShapeError("renorm: input needs at least 2 dimensions", got=str(tuple(input.shape)))
    d = normalize_dim(dim, len(input.shape))
    others = tuple(k for k in range(len(input.shape)) if k != d)
    norms = F.norm(input, p, others, True)
    factor = F.where(F.gt(norms, maxnorm), F.div(maxnorm, F.add(norms, 1e-7)), 1.0)
    return F.mul(input, factor)


def fill(input: Value, value: Value | Scalar) -> Value:
    """`value` in input's shape and dtype. input's gradient is 0."""
    check_fits(dtype_of(input), value)
    return with_flat(input, strict(value, shape_of(input), dtype_of(input)))
