"""Functions that order by value: sort, argsort, msort, topk, kthvalue, median, nanmedian, with torch's arguments.

In: values. Out: values (differentiable: taken from the input at the places found) and places, i64.
All come from the primitives of op.py: stable, NaN counts as the largest. Where torch leaves the order of equal
elements open (topk, kthvalue), ours is that of the stable sort.
"""

from __future__ import annotations

import math

from compiler_core import dtype as dt
from compiler_core.errors import IndexError_, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_new, as_value, dtype_of, normalize_dim
from compiler_core.ops.composites.logic import isnan, where
from compiler_core.ops.composites.movement import narrow, reshape, squeeze
from compiler_core.ops.composites.reduction import ValuesAndIndices, any, argmax, named, sum
from compiler_core.ops.indexing.composite import take_along_dim
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value


def _places(x: Value, dim: int, descending: bool = False) -> Value:
    return prims.argsort(x, normalize_dim(dim, len(x.shape)), descending)


def _at(x: Value, places: Value, dim: int) -> Value:
    """The elements at places that are there, along dim."""
    return prims.gather(x, places, normalize_dim(dim, len(x.shape)))


@lies("first")
def sort(input: Value, dim: int = -1, descending: bool = False, stable: bool | None = False) -> ValuesAndIndices:
    """Sorted along dim. Equal elements keep their order."""
    x = as_value(input)
    if not x.shape:
        normalize_dim(dim, 0)
        return named("sort")(as_new(x), prims.argmax(prims.reshape(x, (1,)), (0,)))
    places = _places(x, dim, descending)
    return named("sort")(_at(x, places, dim), places)


@lies("first")
def argsort(input: Value, dim: int = -1, descending: bool = False, stable: bool = False) -> Value:
    """The places that `sort` gives."""
    x = as_value(input)
    return _places(x, dim, descending) if x.shape else sort(x, dim, descending).indices


@lies("first")
def msort(input: Value) -> Value:
    """Sorted along the first dim."""
    return sort(input, 0).values


def topk(input: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesAndIndices:
    """The k largest (or smallest) elements along dim, in order. Raises ShapeError if there are fewer."""
    need_kind("topk", "iufc", input)
    x = as_value(input)
    size = x.shape[normalize_dim(dim, len(x.shape))] if x.shape else 1
    if not 0 <= k <= size:
        raise ShapeError("topk: selected index k out of range", expected=f"0..{size}", got=str(k))
    if not x.shape:
        ordered = sort(x, dim)
        return named("topk")(*(ordered if k else (narrow(reshape(v, 1), 0, 0, 0) for v in ordered)))
    places = prims.topk_places(x, k, normalize_dim(dim, len(x.shape)), largest)
    return named("topk")(_at(x, places, dim), places)


def _one_place(name: str, x: Value, places: Value, dim: int, keepdim: bool) -> ValuesAndIndices:
    """For function `name`, the elements at `places` along dim (of size 1 there), which is dropped unless keepdim."""
    values = _at(x, places, dim)
    both = (values, places) if keepdim else (squeeze(values, dim), squeeze(places, dim))
    return named(name)(*both)


def kthvalue(input: Value, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The k-th smallest element along dim, k from 1. Raises ShapeError if there are fewer."""
    need_kind("kthvalue", "iufc", input)
    x = as_value(input)
    size = x.shape[normalize_dim(dim, len(x.shape))] if x.shape else 1
    if not 1 <= k <= size:
        raise ShapeError("kthvalue: selected number k out of range for dimension", expected=f"1..{size}", got=str(k))
    if not x.shape:
        return named("kthvalue")(*sort(x))
    return _one_place("kthvalue", x, prims.rank_place(x, k - 1, normalize_dim(dim, len(x.shape))), dim, keepdim)


def median(input: Value, dim: int | None = None, keepdim: bool = False) -> Value | ValuesAndIndices:
    """The lower median: of all elements, or with its place along dim. NaN if there is one."""
    return _median("median", as_value(input), dim, keepdim)


def nanmedian(input: Value, dim: int | None = None, keepdim: bool = False) -> Value | ValuesAndIndices:
    """The lower median of what is not NaN; NaN if all is."""
    return _median("nanmedian", as_value(input), dim, keepdim)


def _median(name: str, x: Value, dim: int | None, keepdim: bool) -> Value | ValuesAndIndices:
    need_kind("median", "iufc", x)
    if dim is None and 0 in x.shape:
        dtype = dtype_of(x)
        least = -(1 << 8 * dtype.itemsize - 1) if dtype.is_signed else 0
        nothing = prims.full((), math.nan if dtype.is_floating_point else least, dtype)
        return prims.add(prims.sum(x, tuple(range(len(x.shape)))), nothing)  # of x: it has a gradient
    if dim is None:
        return _spread(x, _median(name, prims.reshape(prims.detach(x), (math.prod(x.shape),)), 0, False).values)
    d = normalize_dim(dim, len(x.shape))
    if not x.shape:
        return named(name)(*sort(x))
    size = x.shape[d]
    if size == 0:
        raise IndexError_("median: the dim must not be empty", got=str(tuple(x.shape)))
    if not dtype_of(x).is_floating_point:
        return _one_place(name, x, prims.rank_place(x, (size - 1) // 2, d), d, keepdim)
    spoiled = isnan(x)
    if name == "median":
        middle = prims.rank_place(x, (size - 1) // 2, d)
        places = where(any(spoiled, d, True), argmax(cast_bits(spoiled), d, True), middle)
        return _one_place(name, x, places, d, keepdim)
    valid = prims.sub(prims.full(_kept(x.shape, d), size, dt.int64), sum(spoiled, d, True))
    last = prims.maximum(prims.sub(valid, prims.full_like(valid, 1)), prims.full_like(valid, 0))
    middle = prims.floor_divide(last, prims.full_like(last, 2))
    return _one_place(name, x, take_along_dim(_places(x, d), middle, d), d, keepdim)


def cast_bits(x: Value) -> Value:
    """Booleans as numbers that argmax takes."""
    return prims.cast(x, dt.uint8)


def _kept(shape: tuple[int, ...], d: int) -> tuple[int, ...]:
    return (*shape[:d], 1, *shape[d + 1 :])


def _spread(x: Value, value: Value) -> Value:
    """`value`, an element of x, with the gradient spread evenly over the elements that equal it, as torch does."""
    if not dtype_of(x).is_floating_point:
        return value
    dims, low = tuple(range(len(x.shape))), prims.full_like(x, -math.inf)
    equal = prims.eq(x, prims.expand(value, tuple(x.shape)))
    above = prims.min(prims.where(equal, x, prims.neg(low)), dims)
    below = prims.max(prims.where(equal, x, low), dims)
    found = prims.where(prims.eq(value, prims.full_like(value, -math.inf)), above, below)
    return prims.where(isnan(value), prims.max(x, dims, shared=True), found)
