"""Joining and splitting by torch's older names: hstack, atleast_1d, meshgrid, block_diag, cartesian_prod, hsplit, ...

In: values; tensors one by one or as one sequence, as torch takes them. Out: values, or tuples of them.
All are views, `cat` and `stack`, so they trace, differentiate and compile as those do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_new, as_value, broadcast_shapes, dtype_of, normalize_dim, shape_of
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.registry import Value

Tensors = Value | Sequence[Value]


def sequence(tensors: tuple[Any, ...]) -> list[Value]:
    """The tensors meant by `f(a, b)` or `f([a, b])`."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return list(tensors[0])
    return list(tensors)


# ---- at least so many dims


def _at_least(widen: Callable[[Value], Value], tensors: tuple[Any, ...]) -> Any:
    if len(tensors) == 1 and not isinstance(tensors[0], (list, tuple)):
        return widen(tensors[0])
    return tuple(map(widen, sequence(tensors)))


def _as_1d(x: Value) -> Value:
    return x if x.shape else F.reshape(x, 1)


def _as_2d(x: Value) -> Value:
    return F.reshape(x, (1, 1)) if not x.shape else F.unsqueeze(x, 0) if len(x.shape) == 1 else x


def _as_3d(x: Value) -> Value:
    x = _as_2d(x)
    return F.unsqueeze(x, -1) if len(x.shape) == 2 else x


def atleast_1d(*tensors: Tensors) -> Any:
    """Scalars as vectors of one element; a tuple for several tensors."""
    return _at_least(_as_1d, tensors)


def atleast_2d(*tensors: Tensors) -> Any:
    """With dims of size 1 in front, so that there are two."""
    return _at_least(_as_2d, tensors)


def atleast_3d(*tensors: Tensors) -> Any:
    """T[N] as T[1, N, 1], T[N, M] as T[N, M, 1]."""
    return _at_least(_as_3d, tensors)


# ---- stacks


def hstack(tensors: Sequence[Value]) -> Value:
    """Joined along the columns: dim 1, of vectors dim 0."""
    xs = [_as_1d(x) for x in tensors]
    if not xs:
        raise ShapeError("hstack expects a non-empty TensorList")
    return F.cat(xs, 0 if len(xs[0].shape) == 1 else 1)


def vstack(tensors: Sequence[Value]) -> Value:
    """Joined along the rows, vectors as rows."""
    return F.cat([_as_2d(x) for x in tensors], 0)


def dstack(tensors: Sequence[Value]) -> Value:
    """Joined along dim 2."""
    return F.cat([_as_3d(x) for x in tensors], 2)


def column_stack(tensors: Sequence[Value]) -> Value:
    """Joined along dim 1, vectors (and scalars) as columns."""
    return F.cat([x if len(x.shape) > 1 else F.reshape(x, (-1, 1)) for x in tensors], 1)


def block_diag(*tensors: Tensors) -> Value:
    """The matrices along the diagonal of one that is 0 elsewhere; vectors count as rows, scalars as 1x1."""
    xs = sequence(tensors)
    if any(len(x.shape) > 2 for x in xs):
        raise ShapeError("block_diag takes matrices", got=str([tuple(x.shape) for x in xs]))
    if not xs:
        return F.zeros((1, 0))
    blocks = [_as_2d(x) for x in xs]
    dtype = dt.promote(*blocks)
    width = sum(b.shape[1] for b in blocks)
    rows, left = [], 0
    for block in blocks:
        wide = block if dtype_of(block) is dtype else F.mul(block, F.ones((), dtype=dtype))
        rows.append(F.pad(wide, (left, width - left - block.shape[1])))
        left += block.shape[1]
    return F.cat(rows, 0)


# ---- grids


def meshgrid(*tensors: Tensors, indexing: str | None = None) -> tuple[Value, ...]:
    """Each vector along a dim of its own, expanded to all. indexing: "ij" (default), or "xy": two dims swapped."""
    if indexing not in (None, "ij", "xy"):
        raise ShapeError("meshgrid: unknown indexing", expected="'ij' or 'xy'", got=repr(indexing))
    vectors = [_as_1d(x) for x in sequence(tensors)]
    if any(len(x.shape) > 1 for x in vectors):
        raise ShapeError("meshgrid takes vectors", got=str([tuple(x.shape) for x in vectors]))
    swap = indexing == "xy" and len(vectors) > 1
    if swap:
        vectors[:2] = vectors[1::-1]
    shape = tuple(x.shape[0] for x in vectors)
    grids = [
        F.expand(F.reshape(x, tuple(n if d == k else 1 for d in range(len(shape)))), shape)
        for k, (x, n) in enumerate(zip(vectors, shape))
    ]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def cartesian_prod(*tensors: Tensors) -> Value:
    """All tuples of one element of each vector, in order: T[prod(sizes), len(tensors)]; of one vector, that vector."""
    vectors = sequence(tensors)
    if len(vectors) == 1:
        return vectors[0]
    return F.stack([F.reshape(grid, -1) for grid in meshgrid(*vectors)], 1)


def combinations(input: Value, r: int = 2, with_replacement: bool = False) -> Value:
    """All r-tuples of a vector's elements, in order: T[count, r]."""
    if len(input.shape) != 1:
        raise ShapeError("combinations takes a vector", got=str(tuple(input.shape)))
    make = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = np.array(list(make(range(input.shape[0]), r)), np.int64).reshape(-1, r)
    if r == 0:
        return F.zeros((0,), dtype=dtype_of(input))
    return F.getitem(input, places)


def broadcast_shapes_of(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The common shape of `shapes`, by NumPy's rule."""
    return broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes))


# ---- splits


@numpy_names
def tensor_split(input: Value, indices_or_sections: Any, dim: int = 0) -> tuple[Value, ...]:
    """Pieces along `dim`, split before the given places, or into so many of nearly equal size."""
    d = normalize_dim(dim, len(input.shape))
    size = input.shape[d]
    places = indices_or_sections
    if hasattr(places, "shape"):  # a CPU tensor of places, or of their number
        places = places.tolist()
    if isinstance(places, int):
        if places <= 0:
            raise ShapeError("tensor_split: the number of sections must be positive", got=str(places))
        short, longer = divmod(size, places)
        return F.split(input, [short + (k < longer) for k in range(places)], d)
    edges = [0, *(min(max(i if i >= 0 else i + size, 0), size) for i in places), size]
    return tuple(F.narrow(input, d, a, max(b - a, 0)) for a, b in pairwise(edges))


def _evenly(name: str, input: Value, sections: Any, dim: int, least: int) -> tuple[Value, ...]:
    if len(input.shape) < least:
        raise ShapeError(f"{name}: too few dims", expected=f"at least {least}", got=str(tuple(input.shape)))
    if isinstance(sections, int) and (sections == 0 or input.shape[dim] % sections):
        raise ShapeError(f"{name}: dim {dim} does not divide", expected=f"{sections} parts", got=str(input.shape[dim]))
    return tensor_split(input, sections, dim)


def hsplit(input: Value, indices_or_sections: Any) -> tuple[Value, ...]:
    """tensor_split along the columns (of a vector: dim 0), into equal parts."""
    return _evenly("hsplit", input, indices_or_sections, 0 if len(input.shape) == 1 else 1, 1)


def vsplit(input: Value, indices_or_sections: Any) -> tuple[Value, ...]:
    """tensor_split along the rows, into equal parts."""
    return _evenly("vsplit", input, indices_or_sections, 0, 2)


def dsplit(input: Value, indices_or_sections: Any) -> tuple[Value, ...]:
    """tensor_split along dim 2, into equal parts."""
    return _evenly("dsplit", input, indices_or_sections, 2, 3)


def split_with_sizes(input: Value, split_sizes: Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    """Pieces of the given sizes along `dim`."""
    return F.split(input, tuple(split_sizes), dim)


def unsafe_split(tensor: Value, split_size: int, dim: int = 0) -> tuple[Value, ...]:
    """`split`: here views are safe."""
    return F.split(tensor, split_size, dim)


def unsafe_chunk(input: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """`chunk`: here views are safe."""
    return F.chunk(input, chunks, dim)


# ---- turned around


def fliplr(input: Value) -> Value:
    """The order of the columns reversed."""
    if len(input.shape) < 2:
        raise ShapeError("fliplr needs at least two dims", got=str(tuple(input.shape)))
    return F.flip(input, (1,))


def flipud(input: Value) -> Value:
    """The order of the rows reversed."""
    if not input.shape:
        raise ShapeError("flipud needs at least one dim", got="()")
    return F.flip(input, (0,))


def rot90(input: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """Rotated by k quarters in the plane of two dims, from the first towards the second."""
    if len(dims) != 2:
        raise ShapeError("rot90: expected total rotation dims == 2", got=str(len(dims)))
    a, b = (normalize_dim(d, len(input.shape)) for d in dims)
    if a == b:
        raise ShapeError("rot90 needs two different dims", got=str(tuple(dims)))
    if k % 4 == 0:
        return as_new(as_value(input))
    if k % 4 == 2:
        return F.flip(input, (a, b))
    return F.transpose(F.flip(input, (b if k % 4 == 1 else a,)), a, b)


# ---- diagonals


def diag_embed(input: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Matrices over dims dim1 and dim2 with the last dim of input on a diagonal, 0 elsewhere."""
    x = as_value(input)
    n = x.shape[-1]
    size = n + abs(offset)
    first, second = normalize_dim(dim1, len(x.shape) + 1), normalize_dim(dim2, len(x.shape) + 1)
    if first == second:
        raise ShapeError("diag_embed needs two different dims", got=f"{dim1}, {dim2}")
    column = F.pad(x, (max(offset, 0), max(-offset, 0)))  # element j of a row at column j
    full = F.expand(F.unsqueeze(column, -2), (*shape_of(x)[:-1], size, size))
    row, col = prims.iota((size, size), 0, dt.int64), prims.iota((size, size), 1, dt.int64)
    placed = F.where(F.eq(col, F.add(row, offset)), full, F.zeros((), dtype=dtype_of(x)))
    return F.movedim(placed, (-2, -1), (first, second))


def diagflat(input: Value, offset: int = 0) -> Value:
    """A matrix with the flattened input on a diagonal."""
    return diag_embed(F.reshape(input, -1), offset)
