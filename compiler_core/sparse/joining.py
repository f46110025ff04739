"""Sparse tensors joined: cat, stack, and their kin.

In: sparse tensors of one layout and one number of sparse dims. Out: one with all their elements, not coalesced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.dtype import promote
from compiler_core.errors import LayoutError, ShapeError, SparseError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.sparse.convert import to_layout
from compiler_core.sparse.movement import coo_of, dim_of, taken_apart, unsqueeze
from compiler_core.sparse.parts import with_values
from compiler_core.sparse.places import array_of, coo_pattern, module_of
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.tensor import Tensor


@rule("cat", "concat", "concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Tensors one after the other along `dim`. Raises SparseError for sizes, dims or layouts that do not fit."""
    first = next(one for one in tensors if isinstance(one, SparseTensor))
    if any(one.layout is not first.layout for one in tensors):
        raise LayoutError("cat of tensors of several layouts", remedy="convert all to one: to_sparse(), to_dense()")
    d = dim_of(first, dim)
    _check_fit(first, tensors, d)
    if not first.pattern.is_coo:
        return to_layout(cat([coo_of(one) for one in tensors], dim), first.pattern.layout)
    dtype = promote(*(one.dtype for one in tensors))
    parts = [taken_apart(one) for one in tensors]
    columns, held, start = [], [], 0
    sparse, xp = first.pattern.sparse_dim, module_of(first.pattern)
    total = sum(one.shape[d] for one in tensors)
    for one, its in parts:
        where = xp.array(array_of(one.pattern.indices[0]))
        if d < sparse:
            where[d] += start
        else:
            its = _between_zeros(its, d - sparse + 1, start, total - start - one.shape[d])
        columns.append(where)
        held.append(its if its.dtype is dtype else prims.cast(its, dtype))
        start += one.shape[d]
    shape = (*first.shape[:d], total, *first.shape[d + 1 :])
    pattern = coo_pattern(xp.concatenate(columns, axis=1), shape, coalesced=False)
    return with_values(pattern, F.cat(held, 0), "Cat")


def _check_fit(first: SparseTensor, tensors: Sequence[Any], d: int) -> None:
    """Raises SparseError for other kinds of dims than first's, ShapeError for other sizes, but in dim d."""
    for number, one in enumerate(tensors):
        if one.pattern.sparse_dim != first.pattern.sparse_dim or one.ndim != first.ndim:
            raise SparseError(
                f"All tensors must have the same shape, up to the concatenating dimension; tensor at position {number} "
                f"has {one.pattern.sparse_dim} sparse and {len(one.pattern.dense_shape)} dense dims"
            )
        if any(a != b for k, (a, b) in enumerate(zip(one.shape, first.shape)) if k != d):
            raise ShapeError(
                "All tensors must have the same shape: "
                f"{list(first.shape)} (except in the concatenating dimension), but found shape: {list(one.shape)}",
                got=f"tensor {number}",
            )


def _between_zeros(values: Any, dim: int, before: int, after: int) -> Any:
    """values with so many zeros before and after them along `dim`."""
    zeros = (values.new_zeros((*values.shape[:dim], n, *values.shape[dim + 1 :])) for n in (before, after))
    return F.cat([next(zeros), values, next(zeros)], dim)


@rule("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    """Tensors of one size along a new dim."""
    shapes = {tuple(one.shape) for one in tensors}
    if len(shapes) > 1:
        raise ShapeError("stack expects each tensor to be equal size", got=", ".join(map(str, shapes)))
    if not all(isinstance(one, SparseTensor) for one in tensors):
        raise LayoutError("stack of tensors of several layouts", remedy="convert all to one: to_sparse(), to_dense()")
    return cat([unsqueeze(one, dim) for one in tensors], dim)


@rule("vstack", "row_stack")
def vstack(tensors: Sequence[Any]) -> Tensor:
    """Along the first dim; vectors become rows."""
    return cat([unsqueeze(one, 0) if one.ndim < 2 else one for one in tensors], 0)


@rule("hstack", "column_stack")
def hstack(tensors: Sequence[Any]) -> Tensor:
    """Along the second dim; vectors along their own."""
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)
