"""Movement of elements within one array: diagonal, reshape, permute, expand, slice, flip.

In: one array. Out: the same elements elsewhere, as a view where NumPy can give one.
Each `source` rule maps an output index to the operand's. That of reshape goes dimension group by dimension group, so
indices stay short: splitting the last dim of (B, T, C) leaves the index of B and T alone.
`slice` takes start, stop, step per dim, already clipped: with a negative step, stop may be -1 (one before the first).
The adjoints: reshape by reshape, permute by its inverse, expand by sum, slice by pad (by slice_scatter if it steps).
"""

from __future__ import annotations

import math
from operator import mul
from typing import Any

from compiler_core.dtype import int64, of
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias, Strides, reshaped_strides
from compiler_core.ops.batching.rules import expanded
from compiler_core.ops.checks import EVERY, check_dims
from compiler_core.ops.primitives.decomposed import contiguous_strides
from compiler_core.ops.registry import Op, Sample, Value, register
from compiler_core.ops.rules import ALIKE, CORE, OVER_DIMS, Decomposed, Front, Movement

Index = tuple[Any, ...]
Dims = tuple[int, ...]


# ---- diagonal, of the last two dims


def diagonal_length(shape: Shape, offset: int) -> int:
    """How many elements the diagonal has; offset > 0: above the main one, of column - row = offset."""
    rows, columns = shape[-2:]
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


def _infer_diagonal(x: TensorMeta, offset: int) -> TensorMeta:
    if x.ndim < 2:
        raise ShapeError("diagonal of fewer than two dims", expected="at least 2 dims", got=str(x))
    return x.with_shape((*x.shape[:-2], diagonal_length(x.shape, offset)))


def _source_diagonal(index: Index, in_shape: Shape, offset: int) -> Index:
    *lead, place = index
    return (*lead, place - min(offset, 0), place + max(offset, 0))


def put_on_diagonal(base: Value, new: Value, offset: int) -> Value:
    """base with its diagonal (of the last two dims) replaced. new: T[..., K]."""
    shape = tuple(base.shape)
    count = diagonal_length(shape, offset)
    above = -offset if offset < 0 and count else 0
    lead = (0,) * (len(shape) - 2)
    column = prims.pad(new, (*lead, above), (*lead, shape[-2] - above - count), 0)  # (..., rows)
    spread = prims.expand(prims.reshape(column, (*shape[:-1], 1)), shape)
    row, place = (prims.iota(shape, d, int64) for d in (len(shape) - 2, len(shape) - 1))
    return prims.where(prims.eq(prims.sub(place, row), prims.full(shape, offset, int64)), spread, base)


def _strides_diagonal(in_shape: Shape, in_strides: Strides, offset: int) -> Strides:
    return (*in_strides[:-2], in_strides[-2] + in_strides[-1])


def _offset_diagonal(in_strides: Strides, offset: int) -> int:
    return max(offset, 0) * in_strides[-1] - min(offset, 0) * in_strides[-2]


def _by_places(x: Value, offset: int) -> Value:
    from compiler_core.ops.primitives.strided import flat_by_places

    strides, size = contiguous_strides(tuple(x.shape)), (*x.shape[:-2], diagonal_length(tuple(x.shape), offset))
    first = _offset_diagonal(strides, offset) if size[-1] else 0
    return flat_by_places(x, size, _strides_diagonal(tuple(x.shape), strides, offset), first)


DIAGONAL = register(
    Op(
        "diagonal",
        infer=_infer_diagonal,
        eager=lambda xp, x, offset: xp.diagonal(x, offset, -2, -1),
        vjp=lambda g, out, x, offset: (put_on_diagonal(prims.full_like(x, 0), g, offset),),
        vmap=ALIKE,
        lower=Movement(_source_diagonal),
        samples=(
            Sample(((3, 4),), {"offset": 0}),
            Sample(((2, 4, 3),), {"offset": 1}),
            Sample(((4, 4),), {"offset": -2}),
            Sample(((1, 5),), {"offset": 3}),
            Sample(((0, 3),), {"offset": 0}),
        ),
        dtypes=EVERY,
        alias=Alias(put_on_diagonal, _strides_diagonal, _offset_diagonal, reorders=True),
        engines=Decomposed(_by_places),
    )
)


# ---- reshape


def _infer_reshape(x: TensorMeta, shape: Shape) -> TensorMeta:
    if math.prod(shape) != x.numel or any(n < 0 for n in shape):
        raise ShapeError("reshape changes the number of elements", expected=f"{x.numel} elements", got=str(shape))
    return x.with_shape(shape)


def dim_groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """The finest split of both shapes into runs of dims with equal products: [(dims of old, dims of new)]."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        a, i = (old[i], i + 1) if i < len(old) else (1, i)
        b, j = (new[j], j + 1) if j < len(new) else (1, j)
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        groups.append((range(i0, i), range(j0, j)))
    return groups


def _source_reshape(index: Index, in_shape: Shape, shape: Shape) -> Index:
    if 0 in shape:
        return (0,) * len(in_shape)  # never evaluated
    result: list[Any] = []
    for old_dims, new_dims in dim_groups(in_shape, shape):
        flat: Any = 0
        for d in new_dims:
            flat = flat * shape[d] + index[d] if shape[d] != 1 else flat
        result.extend(_unravel(flat, [in_shape[d] for d in old_dims]))
    return tuple(result)


def _unravel(flat: Any, sizes: list[int]) -> list[Any]:
    """The index whose row-major offset within `sizes` is `flat`."""
    places: list[Any] = []
    stride = math.prod(sizes)
    extent = stride  # flat < extent
    for size in sizes:
        stride //= size
        place = flat // stride if stride != 1 else flat
        places.append(0 if size == 1 else place if size * stride == extent else place % size)
    return places


def _scatter_reshape(base: Value, new: Value, shape: Shape) -> Value:
    return prims.reshape(new, tuple(base.shape))


def _strides_reshape(in_shape: Shape, in_strides: Strides, shape: Shape) -> Strides | None:
    return reshaped_strides(in_shape, in_strides, shape)


RESHAPE = register(
    Op(
        "reshape",
        infer=_infer_reshape,
        eager=lambda xp, x, shape: x.reshape(shape),
        vjp=lambda g, out, x, shape: (prims.reshape(g, x.shape),),
        vmap=Front(sizes=("shape",)),
        lower=Movement(_source_reshape),
        samples=(
            Sample(((2, 6),), {"shape": (3, 4)}),
            Sample(((2, 3, 8),), {"shape": (2, 3, 2, 4)}),
            Sample(((2, 1, 6),), {"shape": (2, 3, 1, 2)}),
            Sample(((),), {"shape": (1, 1)}),
            Sample(((0, 3),), {"shape": (3, 0)}),
        ),
        dtypes=EVERY,
        alias=Alias(_scatter_reshape, _strides_reshape, keeps_order=True, may_copy=True),
        engines=CORE,
    )
)


# ---- permute


def _infer_permute(x: TensorMeta, dims: Dims) -> TensorMeta:
    if sorted(dims) != list(range(x.ndim)):
        raise ShapeError(f"permute: {dims} is no permutation of the dims", expected=f"0..{x.ndim - 1}", got=str(dims))
    return x.with_shape(tuple(x.shape[d] for d in dims))


def inverse_permutation(dims: Dims) -> Dims:
    """The permutation that undoes `dims`."""
    return tuple(sorted(range(len(dims)), key=dims.__getitem__))


PERMUTE = register(
    Op(
        "permute",
        infer=_infer_permute,
        eager=lambda xp, x, dims: x.transpose(dims),
        vjp=lambda g, out, x, dims: (prims.permute(g, inverse_permutation(dims)),),
        vmap=Front(order=("dims",)),
        lower=Movement(lambda index, in_shape, dims: tuple(index[d] for d in inverse_permutation(dims))),
        samples=(
            Sample(((2, 3),), {"dims": (1, 0)}),
            Sample(((2, 3, 4),), {"dims": (2, 0, 1)}),
            Sample(((2, 0, 4, 1),), {"dims": (0, 2, 1, 3)}),
        ),
        dtypes=EVERY,
        alias=Alias(
            lambda base, new, dims: prims.permute(new, inverse_permutation(dims)),
            lambda in_shape, in_strides, dims: tuple(map(in_strides.__getitem__, dims)),
            reorders=True,
        ),
        engines=CORE,
    )
)


# ---- expand


def _infer_expand(x: TensorMeta, shape: Shape) -> TensorMeta:
    lead = len(shape) - x.ndim
    if lead < 0 or any(not _repeats(old, new) for old, new in zip(x.shape, shape[lead:])):
        raise ShapeError(
            "expand: shape does not fit", expected=f"sizes of {x.shape} or in place of its 1s", got=str(shape)
        )
    return x.with_shape(shape)


def _repeats(old: int, new: int) -> bool:
    """Whether a dim of size `old` can be shown as one of size `new`; of symbols the likely question comes first."""
    return old is new or (type(old) is int and old == 1) or old == new or old == 1


def _vjp_expand(g: Value, out: Value, x: Value, shape: Shape) -> tuple[Value]:
    lead, old = len(shape) - len(x.shape), tuple(x.shape)
    dims = tuple(d for d in range(len(shape)) if d < lead or old[d - lead] != shape[d])
    total = prims.sum(g, dims) if dims else g
    return (total if tuple(total.shape) == old else prims.reshape(total, old),)


def _source_expand(index: Index, in_shape: Shape, shape: Shape) -> Index:
    lead = len(shape) - len(in_shape)
    return tuple(0 if n == 1 else index[lead + d] for d, n in enumerate(in_shape))


def _scatter_expand(base: Value, new: Value, shape: Shape) -> Value:
    wanted = tuple(base.shape)
    if 0 in shape:
        return base
    if math.prod(shape) != math.prod(wanted):
        raise ShapeError(
            "cannot write in place to an expanded tensor: several of its elements are one memory location",
            expected=f"a tensor of the unexpanded shape {wanted}",
            got=f"a view expanded to {shape}",
            remedy="clone() it first",
        )
    return prims.reshape(new, wanted)


def _strides_expand(in_shape: Shape, in_strides: Strides, shape: Shape) -> Strides:
    lead = len(shape) - len(in_shape)
    return (0,) * lead + tuple(0 if n == 1 != m else s for n, m, s in zip(in_shape, shape[lead:], in_strides))


EXPAND = register(
    Op(
        "expand",
        infer=_infer_expand,
        eager=lambda xp, x, shape: xp.broadcast_to(x, shape),
        vjp=_vjp_expand,
        vmap=expanded,
        lower=Movement(_source_expand),
        samples=(
            Sample(((3,),), {"shape": (2, 3)}),
            Sample(((2, 1),), {"shape": (2, 3)}),
            Sample(((),), {"shape": (2, 2)}),
            Sample(((1, 3),), {"shape": (4, 2, 3)}),
            Sample(((1,),), {"shape": (0,)}),
        ),
        dtypes=EVERY,
        alias=Alias(_scatter_expand, _strides_expand),
        engines=CORE,
    )
)


# ---- slice


def slice_size(start: int, stop: int, step: int) -> int:
    """How many elements start, start+step, ... lie before stop."""
    span = stop - start if step > 0 else start - stop
    return 0 if span < 0 else (span + abs(step) - 1) // abs(step)


def _infer_slice(x: TensorMeta, starts: Dims, stops: Dims, steps: Dims) -> TensorMeta:
    if not len(starts) == len(stops) == len(steps) == x.ndim:
        raise ShapeError(
            "slice: one start, stop and step per dim", expected=f"{x.ndim} each", got=f"{starts}{stops}{steps}"
        )
    for n, start, stop, step in zip(x.shape, starts, stops, steps):
        if step == 0 or not _is_inside(n, start, stop, step):
            raise ShapeError(f"slice {start}:{stop}:{step} leaves the dimension", expected=f"within 0..{n}", got=str(x))
    return x.with_shape(tuple(map(slice_size, starts, stops, steps)))


def _is_inside(n: int, start: int, stop: int, step: int) -> bool:
    """Whether the first and the last element are in 0..n-1. What bounds the last is asked first: it is simpler."""
    if step > 0 and 0 <= start <= stop <= n:
        return True
    if (stop <= start) if step > 0 else (start <= stop):
        return True
    if not 0 <= start < n:
        return False
    return (stop <= n if step > 0 else stop >= -1) or 0 <= start + (slice_size(start, stop, step) - 1) * step < n


def python_slices(starts: Dims, stops: Dims, steps: Dims) -> tuple[Any, ...]:
    """The same as an index of Python slices, where a stop before the first element is spelt None."""
    return (*[slice(a, None if b < 0 else b, s) for a, b, s in zip(starts, stops, steps)], ...)


def _vjp_slice(g: Value, out: Value, x: Value, starts: Dims, stops: Dims, steps: Dims) -> tuple[Value]:
    if any(step != 1 for step in steps) or 0 in out.shape:
        return (prims.slice_scatter(prims.full(x.shape, 0.0, of(g.dtype)), g, starts, stops, steps),)
    return (prims.pad(g, starts, tuple(n - stop for n, stop in zip(x.shape, stops))),)


def _source_slice(index: Index, in_shape: Shape, starts: Dims, stops: Dims, steps: Dims) -> Index:
    return tuple(i * step + start for i, start, step in zip(index, starts, steps))


def _strides_slice(in_shape: Shape, in_strides: Strides, starts: Dims, stops: Dims, steps: Dims) -> Strides:
    return tuple(map(mul, in_strides, steps))


def _offset_slice(in_strides: Strides, starts: Dims, stops: Dims, steps: Dims) -> int:
    return sum(start * s for start, s in zip(starts, in_strides))


SLICE = register(
    Op(
        "slice",
        infer=_infer_slice,
        eager=lambda xp, x, starts, stops, steps: x[python_slices(starts, stops, steps)],
        vjp=_vjp_slice,
        vmap=Front(zeros=("starts",), sizes=("stops",), ones=("steps",)),
        lower=Movement(_source_slice),
        samples=(
            Sample(((4, 5),), {"starts": (1, 0), "stops": (3, 5), "steps": (1, 1)}),
            Sample(((4, 5),), {"starts": (0, 1), "stops": (4, 5), "steps": (2, 3)}),
            Sample(((4, 5),), {"starts": (3, 4), "stops": (-1, 0), "steps": (-1, -2)}),
            Sample(((4,),), {"starts": (2,), "stops": (2,), "steps": (1,)}),
        ),
        dtypes=EVERY,
        alias=Alias(prims.slice_scatter, _strides_slice, _offset_slice),
        engines=CORE,
    )
)


# ---- flip


def _infer_flip(x: TensorMeta, dims: Dims) -> TensorMeta:
    check_dims("flip", dims, x.ndim)
    return x


def _source_flip(index: Index, in_shape: Shape, dims: Dims) -> Index:
    return tuple(n - 1 - i if d in dims else i for d, (i, n) in enumerate(zip(index, in_shape)))


FLIP = register(
    Op(
        "flip",
        infer=_infer_flip,
        eager=lambda xp, x, dims: xp.flip(x, dims),
        vjp=lambda g, out, x, dims: (prims.flip(g, dims),),
        vmap=OVER_DIMS,
        lower=Movement(_source_flip),
        samples=(Sample(((3, 4),), {"dims": (0,)}), Sample(((3, 4),), {"dims": (0, 1)})),
        dtypes=EVERY,
        shares=True,
        follows=True,
        engines=CORE,
    )
)
