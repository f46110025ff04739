"""Indexing over any Value: x[...] as NumPy and torch spell it, its functional assignment, and torch's index functions.

In: a value and an index: ints, slices, None, Ellipsis, integer arrays or lists; bool masks where their data is known.
Out: a value; `setitem` gives the changed copy, the handle (Tensor) puts it in place.
A basic index is at most one `slice` and one `reshape`. Integer arrays are broadcast, folded into one row number, and
read by one `take` (written by `index_copy` or `index_add`). An int beside arrays is taken first, as torch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import EllipsisType, NoneType
from typing import Any, NamedTuple

import numpy as np

from compiler_core import dtype as dt
from compiler_core.device import array_module, device_of, is_array
from compiler_core.errors import DTypeError, GraphBreak, IndexError_, IndexTypeError, ShapeError
from compiler_core.meta import INTEGERS, Shape, as_size, same_shape
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Strides
from compiler_core.ops.broadcasting import (
    Scalar,
    as_new,
    as_value,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    is_scalar,
    normalize_dim,
    shape_of,
    strict,
)
from compiler_core.ops.casting import in_widest
from compiler_core.ops.composites.arithmetic import mul
from compiler_core.ops.composites.movement import depending, movedim, permute, reshape
from compiler_core.ops.composites.unary import truth
from compiler_core.ops.indexing.ends import as_given, check_int, clip
from compiler_core.ops.lying import as_told, lies
from compiler_core.ops.primitives.movement import slice_size
from compiler_core.ops.refusals import check_fits, need_index, need_one_dtype
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.whole import whole

_FULL = slice(None)
BASIC = frozenset((int, slice, NoneType, EllipsisType))  # parts of an index that stand for themselves


class BasicIndex(NamedTuple):
    """The part of an index that needs no data: one slice per dim of x, then the shape with ints dropped, Nones added.

    arrays: (dim of the sliced and reshaped value, index array) for what is left.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    shape: Shape
    arrays: tuple[tuple[int, Value], ...]

    def is_whole(self, shape: Shape) -> bool:
        """Whether the slices take everything."""
        ndim = len(shape)
        return (
            same_shape(self.stops, shape)
            and same_shape(self.starts, (0,) * ndim)
            and same_shape(self.steps, (1,) * ndim)
        )


def as_tuple(index: Any) -> tuple[Any, ...]:
    """The index as a tuple of entries, lists as arrays, arrays of uint8 as masks (torch's masks of old)."""
    entries = index if isinstance(index, tuple) else (index,)
    arrays = (np.asarray(e) if isinstance(e, (list, range)) else e for e in entries)
    return tuple(truth(e) if hasattr(e, "shape") and dtype_of(e) is dt.uint8 else e for e in arrays)


def _filled(index: Any, shape: Shape) -> tuple[Any, ...]:
    """The entries of an index of a value of `shape`, one for each of its dims at least. Raises IndexError_."""
    entries = index if isinstance(index, tuple) else (index,)
    if not BASIC.issuperset(map(type, entries)):
        entries = as_tuple(index)
        check_masks(entries, shape)
        entries = _expand_masks(entries)
    used = len([e for e in entries if e is not None and e is not Ellipsis and type(e) is not bool])
    dots = [k for k, e in enumerate(entries) if e is Ellipsis]
    if used > len(shape) or len(dots) > 1:
        raise IndexError_("too many indices", expected=f"at most {len(shape)}, one Ellipsis", got=str(index))
    place = dots[0] if dots else len(entries)
    return *entries[:place], *[_FULL] * (len(shape) - used), *entries[place + 1 :]


def parse_index(index: Any, shape: Shape) -> BasicIndex:
    """Split `index` of a value of `shape`. Raises IndexError_ for too many or bad entries."""
    slices: list[tuple[int, int, int]] = []
    out: list[int] = []
    arrays: list[tuple[int, Value]] = []
    for entry in _filled(index, shape):
        if entry is None or isinstance(entry, bool):  # a bool: a dim of its own, with one element or none
            arrays += [] if entry is None else [(len(out), np.zeros(int(entry), np.int64))]
            out.append(1)
            continue
        n = shape[len(slices)]
        if entry is _FULL:
            slices.append((0, n, 1))
            out.append(n)
        elif type(entry) is slice:
            start, stop, step = clip(entry, n)
            slices.append((start, stop, step))
            out.append(stop - start if step == 1 else slice_size(start, stop, step))
        elif _is_int(entry):
            at = check_int(as_size(entry), n)
            slices.append((at, at + 1, 1))
        elif not hasattr(entry, "shape"):
            raise IndexTypeError(
                "what stands in an index is no index", expected="ints, slices, arrays", got=repr(entry)
            )
        else:
            slices.append((0, n, 1))
            arrays.append((len(out), entry))
            out.append(n)
    starts, stops, steps = zip(*slices) if slices else ((), (), ())
    return BasicIndex(starts, stops, steps, tuple(out), tuple(arrays))


def _is_int(entry: Any) -> bool:
    return isinstance(entry, (*INTEGERS, np.integer)) and not isinstance(entry, (bool, np.bool_))


def check_masks(entries: tuple[Any, ...], shape: Shape) -> None:
    """Raises IndexError_ for a mask of another shape than the dims that it stands at: none is broadcast."""
    masks = [_is_mask(e) for e in entries]
    if not any(masks):
        return
    widths = [len(e.shape) if is_mask else int(not (e is None or e is Ellipsis or isinstance(e, bool)))
              for e, is_mask in zip(entries, masks)]  # fmt: skip
    at = 0
    for place, (entry, is_mask, width) in enumerate(zip(entries, masks, widths)):
        if entry is Ellipsis:
            at = max(at, len(shape) - sum(widths[place + 1 :]))
        dims = shape[at : at + width]
        if is_mask and len(dims) == width and tuple(entry.shape) != tuple(dims):
            raise IndexError_(
                f"The shape of the mask {list(entry.shape)} at index {place} does not match the shape of the indexed "
                f"tensor {list(shape)} at index {at}",
                expected=str(list(dims)),
                got=str(list(entry.shape)),
            )
        at += width


def _is_mask(entry: Any) -> bool:
    return hasattr(entry, "dtype") and hasattr(entry, "shape") and dtype_of(entry) is dt.bool_


def _expand_masks(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """Bool arrays replaced by the index arrays of their True places, which needs their data; 0-d ones by a bool."""
    result: list[Any] = []
    for e in entries:
        if isinstance(e, (bool, np.bool_)):
            result.append(bool(e))
        elif _is_mask(e):
            if hasattr(e, "no_data"):
                raise e.no_data("indexing by a bool mask")
            if not is_array(e):
                raise GraphBreak("indexing by a bool mask needs its data", remedy="use where or masked_fill")
            with device_of(e).working():
                result.extend(array_module(e).nonzero(e) if e.ndim else [bool(e)])
        else:
            result.append(e)
    return tuple(result)


def getitem(input: Value, index: Any) -> Value:
    """input[index]."""
    entries = index if type(index) is tuple else (index,)
    dtypes = [getattr(entry, "dtype", None) for entry in entries]
    return (_read if dt.bool_ in dtypes or dt.uint8 in dtypes else _read_by_places)(input, index)  # masks are read


def _read(input: Value, index: Any) -> Value:
    x = as_value(input)
    shape = tuple(x.shape)
    basic = parse_index(index, shape)
    if not basic.is_whole(shape):
        x = prims.slice(x, basic.starts, basic.stops, basic.steps)
    if not same_shape(tuple(x.shape), basic.shape):
        x = prims.reshape(x, basic.shape)
    return _Rows(x, basic.arrays).read() if basic.arrays else x


_read_by_places = remembered(_read)


def setitem(input: Value, index: Any, value: Value | Scalar, *, accumulate: bool = False) -> Value:
    """input with input[index] = value (or += value): a new value of input's shape and dtype."""
    x = as_value(input)
    if accumulate and dtype_of(x) is dt.bool_:  # a sum of truths is whether there is one
        return _truths(lambda whole: setitem(whole, index, _counted(value), accumulate=True), x)
    basic = parse_index(index, shape_of(x))
    whole = basic.is_whole(shape_of(x))
    part = x if whole else prims.slice(x, basic.starts, basic.stops, basic.steps)
    kept = shape_of(part)
    if basic.arrays:
        new = _Rows(reshape(part, basic.shape), basic.arrays).write(value, accumulate)
    else:
        new = _fit(value, basic.shape, x)
        new = prims.add(reshape(part, basic.shape), new) if accumulate else new
    new = reshape(new, kept)
    return new if whole else prims.slice_scatter(x, new, basic.starts, basic.stops, basic.steps)


def _truths(function: Callable[[Value], Value], x: Value) -> Value:
    """What `function` makes of truths as numbers, as truths again."""
    return prims.ne(function(cast(x, dt.int64)), prims.full(shape_of(x), 0, dt.int64))


def _counted(value: Value | Scalar) -> Value | Scalar:
    return int(value) if is_scalar(value) else cast(as_value(value), dt.int64)


def _fit(value: Value | Scalar, shape: Shape, x: Value) -> Value:
    """`value` as something that can be assigned to `shape` elements of x: leading 1s may go, as in NumPy."""
    if not is_scalar(value):
        value = as_value(value)
        while len(value.shape) > len(shape) and value.shape[0] == 1:
            value = reshape(value, value.shape[1:])
    return strict(value, shape, dtype_of(x))


class _Rows:
    """Integer arrays at some dims of x: the dims go to the front, become one, and are addressed by one row number.

    wraps: whether negative ones count from the end.
    """

    def __init__(self, x: Value, arrays: Sequence[tuple[int, Value]], *, wraps: bool = True) -> None:
        self.x, self.wraps = x, wraps
        self.arrays = [array for _, array in arrays]
        self.dims = [d for d, _ in arrays]
        self.rest = [d for d in range(len(x.shape)) if d not in self.dims]
        self.order = [*self.dims, *self.rest]
        sizes = [x.shape[d] for d in self.dims]
        self.index_shape = broadcast_shapes(*(shape_of(a) for _, a in arrays))
        self.front = (math.prod(sizes), *(x.shape[d] for d in self.rest))
        self.row = self._row_number(self.arrays, sizes)
        self.rows = reshape(permute(self.x, self.order), self.front)
        adjacent = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
        self.place = self.dims[0] if adjacent else 0

    def _row_number(self, arrays: list[Value], sizes: list[int]) -> Value:
        """sum of index_k * stride_k, negative indices counted from the end."""
        row: Value = None
        for k, (array, size) in enumerate(zip(arrays, sizes)):
            index = wrap_negative(array, size) if self.wraps else cast(as_value(array), dt.int64)
            if len(arrays) > 1:
                index = as_given(size, prims.check_index, index, size)
            index = broadcast_to(index, self.index_shape)
            stride = math.prod(sizes[k + 1 :])
            term = index if type(stride) is int and stride == 1 else prims.mul(index, prims.full_like(index, stride))
            row = term if row is None else prims.add(row, term)
        return row

    def _places(self) -> tuple[list[int], list[int]]:
        k = len(self.index_shape)
        return list(range(k)), list(range(self.place, self.place + k))

    def read(self) -> Value:
        taken = as_given(self.wraps * self.front[0], prims.take, self.rows, self.row)  # (*index, *rest)
        return as_told(self._steps, movedim(taken, *self._places()), (self.x, *self.arrays))

    def _steps(self, strides: list[Strides]) -> list[Strides]:
        """The strides with which x and the arrays are walked through for the result."""
        k, behind = len(self.index_shape), len(self.rest) - self.place
        rest = [strides[0][d] for d in self.rest]
        steps: list[Strides] = [(*rest[: self.place], *(0,) * k, *rest[self.place :])]
        for array, own in zip(self.arrays, strides[1:]):
            if own:
                kept = (step if n > 1 else 0 for step, n in zip(own, shape_of(array)))
                steps.append((*(0,) * (self.place + k - len(own)), *kept, *(0,) * behind))
        return steps

    def write(self, value: Value | Scalar, accumulate: bool) -> Value:
        rest = [self.x.shape[d] for d in self.rest]
        shape = (*rest[: self.place], *self.index_shape, *rest[self.place :])
        front, home = self._places()
        src = movedim(_fit(value, shape, self.x), home, front)
        put = prims.index_add if accumulate else prims.index_copy
        rows = as_given(self.wraps * self.front[0], put, self.rows, self.row, src)
        moved = reshape(rows, [self.x.shape[d] for d in self.order])
        return permute(moved, [self.order.index(d) for d in range(len(self.order))])


def wrap_negative(index: Value, size: int) -> Value:
    """index as i64, with `size` added where it is negative. Arrays known to be non-negative pass unchanged."""
    index = as_value(index)
    if dtype_of(index).kind not in "iu":
        raise IndexError_("an index array must hold integers", expected="int64", got=dtype_of(index).name)
    index = cast(index, dt.int64)
    if isinstance(index, np.ndarray) and (index.size == 0 or index.min() >= 0):
        return index
    negative = prims.lt(index, prims.full_like(index, 0))
    return prims.where(negative, prims.add(index, prims.full_like(index, size)), index)


# ---- torch's functions


@remembered
@lies("rows")
def index_select(input: Value, dim: int, index: Value) -> Value:
    """The slices of input along `dim` at places `index`: i64[K]."""
    d = normalize_dim(dim, len(input.shape))
    need_index("index_select", index)
    if len(shape_of(index)) > 1:
        raise IndexError_("index_select(): Index is supposed to be a vector", got=str(shape_of(index)))
    if not input.shape:
        return reshape(_along(reshape(input, 1), 0, index).read(), ())
    return _along(as_value(input), d, index).read()


def _along(x: Value, dim: int, index: Value) -> _Rows:
    """Rows that torch's index_... functions name: by no negative numbers."""
    return _Rows(x, [(dim, reshape(index, -1))], wraps=False)


@remembered
def gather(input: Value, dim: int, index: Value) -> Value:
    """out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, and so on. 0-d counts as one element of one dim."""
    x, idx = as_value(input), as_value(index)
    d = normalize_dim(dim, len(x.shape))
    if 0 not in shape_of(idx):
        need_index("gather", idx)
    idx = cast(idx, dt.int64)
    if 0 not in shape_of(idx) and (len(x.shape) or 1) != (len(idx.shape) or 1):
        raise ShapeError(
            "gather(): index and input have other numbers of dims", expected=str(shape_of(x)), got=str(shape_of(idx))
        )
    if not x.shape or not idx.shape:
        shape = shape_of(idx)
        return reshape(prims.gather(reshape(x, -1), reshape(idx, -1), 0), shape)
    if 0 in idx.shape:
        return as_new(reshape(getitem(reshape(x, -1), slice(0, 0)), shape_of(idx)))  # nothing, with a history
    return prims.gather(x, idx, d)


@remembered
def take_along_dim(input: Value, indices: Value, dim: int | None = None) -> Value:
    """gather, with input and indices broadcast in the other dims; without dim, of the flattened input."""
    if dim is None:
        flat = reshape(input, -1)
        return prims.take(flat, wrap_negative(reshape(indices, -1), flat.shape[0]))
    d = normalize_dim(dim, len(input.shape))
    a, b = list(shape_of(input)), list(shape_of(indices))
    common = list(broadcast_shapes((*a[:d], 1, *a[d + 1 :]), (*b[:d], 1, *b[d + 1 :])))
    x = broadcast_to(as_value(input), (*common[:d], a[d], *common[d + 1 :]))
    places = wrap_negative(as_value(indices), a[d])
    return gather(x, d, broadcast_to(places, (*common[:d], b[d], *common[d + 1 :])))


@remembered
def scatter_add(input: Value, dim: int, index: Value, src: Value) -> Value:
    """input with src[i][j] added at [index[i][j]][j] for dim 0, and so on."""
    return _scatter(prims.scatter_add, input, dim, index, src)


@remembered
def scatter(
    input: Value,
    dim: int,
    index: Value,
    src: Value | Scalar | None = None,
    *,
    value: Scalar | None = None,
    reduce: str | None = None,
) -> Value:
    """input with src[i][j] put at [index[i][j]][j] for dim 0, and so on; or one `value` at all of them.

    reduce: "add" or "multiply", with what stands there.
    """
    if (src is None) == (value is None):
        raise DTypeError("scatter takes one of src and value")
    source = value if src is None else src
    if reduce is None or reduce == "add":
        return _scatter(prims.scatter if reduce is None else prims.scatter_add, input, dim, index, source)
    if reduce != "multiply":
        raise ShapeError("scatter: unknown reduce", expected="add or multiply", got=repr(reduce))
    from compiler_core.ops.indexing.placing import scatter_reduce  # which is above this file

    factors = prims.full(shape_of(index), source, dtype_of(as_value(input))) if is_scalar(source) else source
    return scatter_reduce(input, dim, index, factors, "prod")


def _scatter(
    primitive: Callable[[Value, Value, Value, int], Value], input: Value, dim: int, index: Value, src: Any
) -> Value:
    x, idx = as_value(input), as_value(index)
    d = normalize_dim(dim, len(x.shape))
    if 0 in shape_of(idx):
        return depending(as_new(x), src)
    need_index("scatter", idx)
    if not is_scalar(src):
        need_one_dtype("scatter", x, src)
    idx = cast(idx, dt.int64)
    if primitive is prims.scatter_add and dtype_of(x) is dt.bool_:
        return _truths(lambda whole: _scatter(primitive, whole, dim, index, _counted(src)), x)
    if not x.shape or not idx.shape:
        src = src if is_scalar(src) else reshape(src, -1)
        return reshape(_scatter(primitive, reshape(x, -1), 0, reshape(idx, -1), src), shape_of(x))
    shape = shape_of(idx)
    if is_scalar(src):
        check_fits(dtype_of(x), src)
        src = prims.full(shape, src, dtype_of(x))
    elif tuple(src.shape) != shape:  # torch reads only as much of src as there are indices
        src = getitem(src, tuple(slice(n) for n in shape))
    return primitive(x, idx, src, d)


@remembered
def index_add(input: Value, dim: int, index: Value, source: Value, *, alpha: Scalar = 1) -> Value:
    """input with alpha * source's slices added at places `index` along `dim`."""
    d = normalize_dim(dim, len(input.shape))
    need_index("index_add", index)
    need_one_dtype("index_add", input, source)
    kept = [tuple(n for k, n in enumerate(x.shape) if k != d) for x in (input, source)] if input.shape else []
    if kept and kept[0] != kept[1]:
        raise ShapeError(
            "index_add: source tensor shape must match self tensor shape, excluding the specified dimension",
            expected=str(tuple(input.shape)),
            got=str(tuple(source.shape)),
        )
    scaled = source if alpha == 1 else mul(source, prims.full_like(source, alpha))
    if not input.shape:
        return reshape(index_add(reshape(input, 1), 0, index, reshape(scaled, -1)), ())
    if dtype_of(input) is dt.bool_:
        return _truths(lambda counted: index_add(counted, dim, index, _counted(scaled)), input)
    return _along(as_value(input), d, index).write(scaled, True)


@in_widest
def index_copy(input: Value, dim: int, index: Value, source: Value) -> Value:
    """input with source's slices put at places `index` along `dim`."""
    need_one_dtype("index_copy", input, source)
    d = normalize_dim(dim, len(input.shape))
    if not input.shape:
        return reshape(index_copy(reshape(input, 1), 0, index, reshape(source, -1)), ())
    return _along(as_value(input), d, index).write(source, False)


def index_put(input: Value, indices: tuple[Value, ...], values: Value | Scalar, accumulate: bool = False) -> Value:
    """input with values put (or added) at input[indices]."""
    return setitem(input, tuple(indices), values, accumulate=accumulate)


def masked_select(input: Value, mask: Value) -> Value:
    """The elements where mask holds, flat. Needs the mask's data."""
    shape = broadcast_shapes(shape_of(input), shape_of(mask))
    return getitem(broadcast_to(as_value(input), shape), broadcast_to(mask, shape))


@remembered
def embedding(input: Value, weight: Value, padding_idx: int | None = None) -> Value:
    """weight[input]: rows of weight: T[V, D] at input: i64[*] -> T[*, D]. padding_idx: a row that gets no gradient."""
    index = as_value(input)
    if dtype_of(index) not in (dt.int64, dt.int32):
        raise DTypeError("embedding indices must be int64 or int32", got=dtype_of(index).name)
    if len(weight.shape) != 2:
        raise ShapeError("'weight' must be 2-D", got=str(tuple(weight.shape)))
    return _embedding(weight, index, padding_idx=None if padding_idx is None else padding_idx % weight.shape[0])


@whole
def _embedding(weight: Value, index: Value, *, padding_idx: int | None) -> Value:
    rows = prims.take(weight, index)
    if padding_idx is None:
        return rows
    padding = prims.eq(index, prims.full_like(index, padding_idx))
    padding = broadcast_to(reshape(padding, (*index.shape, 1)), shape_of(rows))
    return prims.where(padding, prims.detach(rows), rows)


@remembered
def diag(input: Value, diagonal: int = 0) -> Value:
    """The matrix with this vector on a diagonal, or a diagonal of this matrix. diagonal > 0: above the main one."""
    x = as_value(input)
    right, down = max(diagonal, 0), max(-diagonal, 0)
    if len(x.shape) not in (1, 2):
        raise ShapeError("diag takes a vector or a matrix", got=str(shape_of(x)))
    if len(x.shape) == 1:
        n = x.shape[0] + right + down
        rows = broadcast_to(prims.pad(x, (right,), (down,), 0), (n, n))
        row, column = prims.iota((n, n), 0, dt.int64), prims.iota((n, n), 1, dt.int64)
        on = prims.eq(column, prims.add(row, prims.full_like(row, diagonal)))
        return prims.where(on, rows, prims.full_like(rows, 0))
    count = np.arange(max(min(x.shape[0] - down, x.shape[1] - right), 0))
    return getitem(x, (count + down, count + right))
