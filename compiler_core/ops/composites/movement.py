"""Shape functions over any Value, with torch's names and arguments: views, joining, splitting, triangles.

In: values; sizes as ints or one sequence (`view(x, 2, 3)` or `view(x, (2, 3))`), -1 for "what is left".
Out: values. A call that changes nothing adds no node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as plain_index
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ArgumentTypeError, DTypeError, IndexError_, ShapeError
from compiler_core.meta import INTEGERS, Shape, same_shape
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_new,
    as_value,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    normalize_dim,
    shape_of,
)
from compiler_core.ops.casting import in_widest
from compiler_core.ops.lying import as_told, lies
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.registry import Value, current_trace
from compiler_core.ops.remembered import remembered
from compiler_core.ops.whole import whole

Sizes = int | Sequence[int]


def sizes(arguments: Sequence[Sizes]) -> tuple[int, ...]:
    """(2, 3) from `2, 3` or `(2, 3)`. Raises ArgumentTypeError for what is no shape."""
    if len(arguments) == 1 and not isinstance(arguments[0], INTEGERS):
        given: Any = arguments[0]
        if isinstance(given, str) or not hasattr(given, "__iter__"):
            raise ArgumentTypeError("a shape is one or more ints", got=repr(given))
        return tuple(given)
    return tuple(arguments)  # type: ignore[arg-type]


def infer_size(shape: Sequence[int], numel: int) -> Shape:
    """`shape` with its -1, if any, replaced by what makes `numel` elements. Raises ShapeError."""
    holes = shape.count(-1)
    known = math.prod([n for n in shape if n != -1] if holes else shape)
    if holes == 1 and known and numel % known == 0:
        return tuple([numel // known if n == -1 else n for n in shape])
    if holes or known != numel:
        raise ShapeError(
            f"{numel} elements do not fit a shape", expected=f"a shape of {numel} elements", got=str(shape)
        )
    return tuple(shape)


def reshape(input: Value, *shape: Sizes) -> Value:
    """input in another shape, row-major order kept; one size may be -1."""
    x = as_value(input)
    own = tuple(x.shape)
    target = infer_size(sizes(shape), math.prod(own))
    return x if same_shape(target, own) else prims.reshape(x, target)


def view(input: Value, *shape: Sizes) -> Value:
    """reshape: here every reshape is a view, or a copy when it must."""
    return reshape(input, *shape)


def view_as(input: Value, other: Value) -> Value:
    """input in other's shape."""
    return reshape(input, tuple(other.shape))


def flatten(input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Dims start_dim..end_dim merged into one."""
    shape = shape_of(input)
    if not shape:
        return reshape(input, 1)
    first, last = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if first > last:
        raise ShapeError("flatten: start_dim is after end_dim", got=f"{start_dim}, {end_dim}")
    return reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def ravel(input: Value) -> Value:
    """input as one dim, without gaps."""
    made = flatten(input)
    copy = getattr(made, "contiguous", None)  # of a Tensor
    return made if copy is None else copy()


def unflatten(input: Value, dim: int, sizes: Sequence[int]) -> Value:
    """Dim `dim` split into `sizes`, one of which may be -1."""
    shape = shape_of(input)
    d = normalize_dim(dim, len(shape))
    return reshape(input, (*shape[:d], *infer_size(tuple(sizes), shape[d]), *shape[d + 1 :]))


@numpy_names
def squeeze(input: Value, dim: int | Sequence[int] | None = None) -> Value:
    """input without its dims of size 1 (those among `dim`, if given)."""
    shape = shape_of(input)
    if not shape:
        return input
    chosen = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    drop = {normalize_dim(d, len(shape)) for d in chosen}
    return reshape(input, tuple(n for d, n in enumerate(shape) if d not in drop or n != 1))


@numpy_names
def unsqueeze(input: Value, dim: int) -> Value:
    """input with a new dim of size 1 at `dim`."""
    shape = shape_of(input)
    d = normalize_dim(dim, len(shape) + 1)
    return reshape(input, (*shape[:d], 1, *shape[d:]))


def permute(input: Value, *dims: Sizes) -> Value:
    """Dim d of the result is dim dims[d] of input."""
    x = as_value(input)
    ndim = len(x.shape)
    order = tuple([normalize_dim(d, ndim) for d in sizes(dims)])
    return x if order == tuple(range(ndim)) else prims.permute(x, order)


def transpose(input: Value, dim0: int, dim1: int) -> Value:
    """Dims dim0 and dim1 exchanged."""
    ndim = len(input.shape)
    order = list(range(ndim))
    a, b = normalize_dim(dim0, ndim), normalize_dim(dim1, ndim)
    if ndim:
        order[a], order[b] = b, a
    x = as_value(input)
    return x if a == b else prims.permute(x, tuple(order))


def t(input: Value) -> Value:
    """The transpose of a matrix; vectors and scalars stay."""
    if len(input.shape) > 2:
        raise ShapeError("t takes at most two dims", remedy="use transpose or mT", got=str(tuple(input.shape)))
    return transpose(input, 0, 1) if len(input.shape) == 2 else input


def movedim(input: Value, source: Sizes, destination: Sizes) -> Value:
    """Dims `source` moved to places `destination`; the others keep their order."""
    ndim = len(input.shape)
    src = [normalize_dim(d, ndim) for d in sizes((source,))]
    dst = [normalize_dim(d, ndim) for d in sizes((destination,))]
    if len(src) != len(dst):
        what = "movedim: source and destination differ in their number of dims"
        raise ShapeError(what, got=f"{source}, {destination}")
    for name, places in (("source", src), ("destination", dst)):
        if len({*places}) != len(places):
            raise ShapeError(f"movedim: repeated dim in `{name}`", got=str(source if name == "source" else destination))
    order = [d for d in range(ndim) if d not in src]
    for place, d in sorted(zip(dst, src)):
        order.insert(place, d)
    return permute(input, order)


def expand(input: Value, *shape: Sizes) -> Value:
    """Dims of size 1 repeated, and new ones added in front; -1 keeps a size."""
    x = as_value(input)
    target = sizes(shape)
    lead = len(target) - len(x.shape)
    kept = tuple(x.shape[d - lead] if n == -1 and d >= lead else n for d, n in enumerate(target))
    return broadcast_to(x, kept)


def expand_as(input: Value, other: Value) -> Value:
    """input expanded to other's shape."""
    return expand(input, tuple(other.shape))


def broadcast_tensors(*tensors: Value) -> tuple[Value, ...]:
    """All tensors in their common shape."""
    shape = broadcast_shapes(*map(shape_of, tensors))
    return tuple(broadcast_to(x, shape) for x in tensors)


@lies("new")
def repeat(input: Value, *repeats: Sizes) -> Value:
    """input tiled repeats[d] times along dim d; more repeats than dims add dims in front."""
    if not repeats:
        raise ArgumentTypeError("repeat() missing 1 required positional argument: 'repeats'")
    times = sizes(repeats)
    shape = shape_of(input)
    if len(times) < len(shape):
        raise ShapeError("repeat: fewer repeats than dims", expected=f"at least {len(shape)}", got=str(times))
    if any(r < 0 for r in times):
        raise ShapeError("repeat: Trying to create tensor with negative dimension", got=str(times))
    shape = (1,) * (len(times) - len(shape)) + shape
    split = tuple(n for size in shape for n in (1, size))
    tiled = tuple(n for r, size in zip(times, shape) for n in (r, size))
    x = broadcast_to(reshape(input, split), tiled)
    result = reshape(x, tuple(r * n for r, n in zip(times, shape)))
    moves = any(r > 1 and n > 1 for r, n in zip(times, shape))  # else the result has the memory of input
    return result if moves else as_new(result)


@lies("new")
def tile(input: Value, *dims: Sizes) -> Value:
    """repeat, with missing leading repeats taken as 1."""
    times = sizes(dims)
    return repeat(input, (1,) * (len(input.shape) - len(times)) + times)


@lies("new")
def repeat_interleave(
    input: Value, repeats: int | Value, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    """Each element (each slice along `dim`) repeated in place; without dim, of the flattened input.

    repeats: one number, or an integer tensor with one for each, whose data is needed. output_size: the sum, if given.
    """
    x = flatten(input) if dim is None else as_value(input)
    d = 0 if dim is None else normalize_dim(dim, len(x.shape))
    shape = shape_of(x)
    if not isinstance(repeats, int):
        counts = np.asarray(repeats.tolist(), np.int64).reshape(-1)
        places = np.repeat(np.arange(shape[d]), counts)
        order = (d, *(k for k in range(len(shape)) if k != d))
        return movedim(prims.take(permute(x, order), places), 0, d)
    x = broadcast_to(unsqueeze(x, d + 1), (*shape[: d + 1], repeats, *shape[d + 1 :]))
    result = reshape(x, (*shape[:d], shape[d] * repeats, *shape[d + 1 :]))
    return result if repeats > 1 and shape[d] > 1 else as_new(result)


def contiguous(input: Value) -> Value:
    """input: values have no layout of their own."""
    return input


# ---- joining and splitting


@remembered
@numpy_names
@in_widest
def cat(tensors: Sequence[Value] | Any, dim: int = 0) -> Value:
    """Tensors joined along `dim`; they are promoted, and must agree in the other sizes."""
    if not isinstance(tensors, Sequence):
        kind = type(tensors).__name__
        raise ArgumentTypeError(f"cat(): argument 'tensors' (position 1) must be tuple of Tensors, not {kind}")
    xs = [as_value(x) for x in tensors]
    if not xs:
        raise ShapeError("cat of nothing", expected="at least one tensor")
    dtype = dt.promote(*xs)
    kept = [x for x in xs if tuple(x.shape) != (0,)] or xs[:1]  # torch's legacy: a bare empty tensor fits anything
    left = [x for x in xs if tuple(x.shape) == (0,)] if len(kept) < len(xs) else []
    xs = kept
    if not xs[0].shape:
        raise ShapeError("cat of a 0-d tensor", expected="at least one dim", got="()", remedy="use stack")
    d = normalize_dim(dim, len(xs[0].shape))
    joined = prims.cast(xs[0], dtype) if len(xs) == 1 else prims.cat([cast(x, dtype) for x in xs], d)
    told: Value = as_told("joined", joined, tuple(xs))
    return depending(told, *left) if left else told


def depending(x: Value, *others: Value) -> Value:
    """x, as a function of those of `others` too that require a gradient, which is 0."""
    for other in others if dtype_of(x).is_inexact else ():
        if getattr(other, "requires_grad", False):
            nothing = cast(prims.sum(prims.slice(reshape(other, -1), (0,), (0,), (1,)), (0,)), dtype_of(x))
            x = prims.where(prims.full(shape_of(x), True, dt.bool_), x, broadcast_to(nothing, shape_of(x)))
    return x


@remembered
@numpy_names
@in_widest
def stack(tensors: Sequence[Value], dim: int = 0) -> Value:
    """Tensors of one shape joined along a new dim."""
    if not len(tensors):
        raise ShapeError("stack expects a non-empty list of tensors")
    return _stack(*tensors, dim=normalize_dim(dim, len(tensors[0].shape) + 1))


@whole(lies="rows")
def _stack(*tensors: Value, dim: int) -> Value:
    return cat([unsqueeze(x, dim) for x in tensors], dim)


def narrow(input: Value, dim: int, start: int, length: int) -> Value:
    """Elements start .. start+length-1 along `dim`."""
    x = as_value(input)
    shape = shape_of(x)
    if not shape:
        raise ShapeError("narrow() cannot be applied to a 0-dim tensor")
    d = normalize_dim(dim, len(shape))
    if hasattr(start, "dtype") and (shape_of(start) or dtype_of(start).kind not in "iu"):
        raise ShapeError("start must be an 0-dim integral Tensor.", got=f"{dtype_of(start).name}{shape_of(start)}")
    if hasattr(start, "dtype") and current_trace() is None:
        start = int(start)
    if isinstance(start, INTEGERS) and not -shape[d] <= start <= shape[d]:
        raise IndexError_("start out of range", expected=f"-{shape[d]} to {shape[d]}", got=str(start))
    start = start + shape[d] if start < 0 else start
    if length < 0 or not 0 <= start <= shape[d] - length:
        raise ShapeError("narrow leaves the dimension", expected=f"within 0..{shape[d]}", got=f"{start}+{length}")
    if same_shape((length,), (shape[d],)):
        return x
    starts = tuple(start if k == d else 0 for k in range(len(shape)))
    stops = tuple(start + length if k == d else n for k, n in enumerate(shape))
    return prims.slice(x, starts, stops, (1,) * len(shape))


def split(tensor: Value, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Value, ...]:
    """Pieces along `dim`: of one size (the last may be smaller), or of the given sizes."""
    d = normalize_dim(dim, len(tensor.shape))
    extent = tensor.shape[d]
    if isinstance(split_size_or_sections, INTEGERS):
        size = split_size_or_sections
        if size < 0 or (size == 0 and extent):
            raise ShapeError("split: the size is 0 only of a dim of size 0", expected="a positive size", got=str(size))
        count = plain_index(-(-extent // size)) if extent else 1
        lengths = [size] * (count - 1) + [extent - size * (count - 1)]
    else:
        lengths = list(split_size_or_sections)
        if sum(lengths) != extent:
            raise ShapeError("split: sections do not add up", expected=f"a sum of {extent}", got=str(lengths))
    pieces, start = [], 0
    for length in lengths:
        pieces.append(narrow(tensor, d, start, length))
        start += length
    return tuple(pieces)


def chunk(input: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """At most `chunks` pieces of equal size along `dim`, the last perhaps smaller."""
    extent = input.shape[normalize_dim(dim, len(input.shape))]
    if chunks < 1:
        raise ShapeError("chunk expects chunks to be greater than 0", got=str(chunks))
    if not extent:
        return tuple(narrow(input, dim, 0, 0) for _ in range(chunks))
    return split(input, -(-extent // chunks), dim)


def unbind(input: Value, dim: int = 0) -> tuple[Value, ...]:
    """The slices along `dim`, without it."""
    x = as_value(input)
    shape = shape_of(x)
    d = normalize_dim(dim, len(shape))
    at_once: Any = getattr(type(x), "__pieces__", None)
    found: tuple[Value, ...] | None = None if at_once is None else at_once(x, d)
    return tuple([_piece(x, shape, d, k) for k in range(shape[d])]) if found is None else found


def _piece(x: Value, shape: Shape, d: int, place: int) -> Value:
    """Of a value of this shape the slice at `place` along dim d, without that dim."""
    before, behind = shape[:d], shape[d + 1 :]
    if not same_shape((1,), (shape[d],)):
        none = (0,) * len(shape)
        x = prims.slice(x, (*none[:d], place, *none[d + 1 :]), (*before, place + 1, *behind), (1,) * len(shape))
    return prims.reshape(x, (*before, *behind))


def select(input: Value, dim: int, index: int) -> Value:
    """The slice at `index` along `dim`, without that dim."""
    shape = shape_of(input)
    d = normalize_dim(dim, len(shape))
    place = normalize_dim(index, shape[d])
    return reshape(narrow(input, d, place, 1), (*shape[:d], *shape[d + 1 :]))


def flip(input: Value, *dims: Sizes) -> Value:
    """The order along `dims` reversed."""
    x = as_value(input)
    named = [normalize_dim(d, len(x.shape)) for d in sizes(dims)]
    chosen = sorted(set(named))
    if len(chosen) < len(named):
        raise ShapeError("flip: a dim appears multiple times in the list of dims", got=str(tuple(sizes(dims))))
    return prims.flip(x, chosen) if chosen and x.shape else as_new(x)


@remembered
def roll(input: Value, shifts: Sizes, dims: Sizes | None = None) -> Value:
    """Elements moved `shifts` places along `dims`, those that fall off entering at the front."""
    if not sizes((shifts,)):
        raise ShapeError("roll: `shifts` required")
    if dims is None or not sizes((dims,)):
        if len(sizes((shifts,))) != 1:
            raise ShapeError("roll: shifts and dimensions must align", got=f"shifts {shifts}, no dims")
        return reshape(roll(flatten(input), shifts, 0), shape_of(input))
    if len(sizes((shifts,))) != len(sizes((dims,))):
        raise ShapeError("roll: shifts and dimensions must align", got=f"shifts {shifts}, dims {dims}")
    x = as_value(input)
    cuts: list[int] = [0] * len(x.shape)
    for shift, dim in zip(sizes((shifts,)), sizes((dims,))):
        d = normalize_dim(dim, len(x.shape))
        n = x.shape[d]
        cuts[d] = _wrapped(cuts[d] - shift, n) if n else 0
    made = _roll(x, cuts=tuple(cuts)) if any(cuts) else as_new(x)
    return as_told("images", made, (input,))


@whole
def _roll(x: Value, *, cuts: tuple[int, ...]) -> Value:
    for d, cut in enumerate(cuts):
        if cut:
            x = prims.cat([narrow(x, d, cut, x.shape[d] - cut), narrow(x, d, 0, cut)], d)
    return x


def _wrapped(place: int, n: int) -> int:
    """place % n; of a symbol, what that is for a place that is at most one turn away."""
    return place if 0 <= place < n else place + n if -n <= place < 0 else place % n


# ---- triangles


def diagonal_mask(n: int, m: int) -> Value:
    """bool[n, m]: row == column."""
    return prims.eq(prims.iota((n, m), 0, dt.int32), prims.iota((n, m), 1, dt.int32))


def below_diagonal(shape: Shape, diagonal: int) -> Value:
    """bool[shape]: column <= row + diagonal, over the last two dims."""
    row = prims.iota(shape, len(shape) - 2, dt.int32)
    column = prims.iota(shape, len(shape) - 1, dt.int32)
    if diagonal:
        row = prims.add(row, prims.full(shape, diagonal, dt.int32))
    return prims.ge(row, column)


def _triangle(x: Value, diagonal: int, *, lower: bool) -> Value:
    if len(x.shape) < 2:
        raise ShapeError("triangles need at least two dims", got=str(tuple(x.shape)))
    zero = prims.full_like(x, 0)
    if lower:
        return prims.where(below_diagonal(shape_of(x), diagonal), x, zero)
    return prims.where(below_diagonal(shape_of(x), diagonal - 1), zero, x)


@remembered
def tril(input: Value, diagonal: int = 0) -> Value:
    """input with zeros above the given diagonal."""
    return _triangle(as_value(input), diagonal, lower=True)


@remembered
def triu(input: Value, diagonal: int = 0) -> Value:
    """input with zeros below the given diagonal."""
    return _triangle(as_value(input), diagonal, lower=False)


@remembered
def one_hot(tensor: Value, num_classes: int) -> Value:
    """i64[*tensor.shape, num_classes]: 1 at the class. num_classes must be given: data would decide it otherwise."""
    idx = as_value(tensor)
    if dtype_of(idx) is not dt.int64:
        what = "one_hot is only applicable to index tensor of type LongTensor"
        raise DTypeError(what, expected="int64", got=dtype_of(idx).name, remedy="use long()")
    shape = (*idx.shape, num_classes)
    outside = prims.bitwise_or(prims.lt(idx, prims.full_like(idx, 0)), prims.ge(idx, prims.full_like(idx, num_classes)))
    checked = prims.require(idx, outside, "value", f"one_hot: class values must be in [0, {num_classes})")
    classes = prims.iota(shape, len(shape) - 1, dt.int64)
    return prims.cast(prims.eq(broadcast_to(unsqueeze(checked, -1), shape), classes), dt.int64)
