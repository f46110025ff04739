"""From layout to layout: to_dense, to_sparse and its kin, sparse_mask.

In: Tensors of any layout. Out: of another. The gradient of a conversion is converted back: that of what was sparse has
the places that it had.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.device import array_module
from compiler_core.dtype import DType
from compiler_core.errors import LayoutError, ShapeError, SparseError
from compiler_core.memory_format import layout, sparse_coo, sparse_csc, sparse_csr, strided
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array
from compiler_core.sparse.kernels import summed
from compiler_core.sparse.nodes import record
from compiler_core.sparse.parts import (
    at_places,
    coalesced,
    grouped,
    index_of,
    layout_name,
    same_memory,
    uncompressed,
    with_values,
)
from compiler_core.sparse.places import (
    array_of,
    compressed_pattern,
    coo_pattern,
    coordinates,
    is_host,
    keys_of,
    module_of,
    parted,
)
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.tensor import Tensor

# ---- to dense


@rule("to_dense")
def to_dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
    """All elements. masked_grad: the gradient has the places of this tensor (the default), or all."""
    if not isinstance(self, SparseTensor):
        return self if dtype is None else self.to(dtype)
    pattern, values = self.pattern, self.sparse.values
    flat = summed(array_of(values), keys_of(pattern), math.prod(pattern.sparse_shape))
    dense = Tensor._wrap(flat.reshape(pattern.shape))

    def pull(g: Tensor) -> Tensor:
        if masked_grad is not False:
            return like(g, self)
        return to_sparse(to_dense(g), pattern.sparse_dim) if pattern.is_coo else to_layout(g, pattern.layout)

    made = record("ToDense", dense, (self,), (pull,))
    return made if dtype is None else made.to(dtype)


def like(gradient: Tensor, tensor: SparseTensor) -> SparseTensor:
    """A gradient at the places that `tensor` has, each once."""
    pattern = tensor.pattern if tensor.pattern.coalesced else coalesced(tensor.detach()).pattern
    return with_values(pattern, at_places(gradient, pattern))


# ---- to sparse


@rule("to_sparse", "_to_sparse")
def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
) -> Tensor:
    """The elements that are not zero. sparse_dim: how many dims the places have, all if not given; or a layout."""
    if hasattr(sparse_dim, "name"):
        layout, sparse_dim = sparse_dim, None
    if blocksize is not None:
        raise _no_blocks("to_sparse(blocksize=...)")
    if layout is not None and layout is not sparse_coo:
        return to_layout(self, layout, dense_dim)
    if not isinstance(self, SparseTensor):
        return _coo_of_dense(self, self.ndim if sparse_dim is None else sparse_dim)
    if sparse_dim not in (None, self.pattern.sparse_dim):
        raise SparseError(
            f"to_sparse: conversion from {layout_name(self)} to Sparse with sparse_dim argument !=self.sparse_dim() "
            "is not supported"
        )
    return self if self.pattern.is_coo else _relaid(self, uncompressed(self.pattern), self.sparse.values, "ToSparse")


@rule("to_sparse_coo")
def to_sparse_coo(self: Tensor) -> Tensor:
    """As a list of places."""
    return to_sparse(self)


@rule("to_sparse_csr", "_to_sparse_csr")
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """Row by row."""
    return to_layout(self, sparse_csr, dense_dim)


@rule("to_sparse_csc", "_to_sparse_csc")
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """Column by column."""
    return to_layout(self, sparse_csc, dense_dim)


@rule("to_sparse_bsr", "to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_bsc")
def to_sparse_blocks(self: Tensor, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """Raises LayoutError."""
    raise _no_blocks("to_sparse_bsr(), to_sparse_bsc()")


def _no_blocks(what: str) -> LayoutError:
    return LayoutError(f"{what}: there are no sparse tensors of blocks", expected="sparse_coo, sparse_csr, sparse_csc",
                       remedy="to_sparse_csr()")  # fmt: skip


def to_layout(self: Tensor, kind: layout, dense_dim: int | None = None) -> Tensor:
    """This tensor in a compressed layout, or strided. Raises SparseError for what is no matrix."""
    if kind is strided:
        return to_dense(self)
    if kind not in (sparse_csr, sparse_csc):
        raise _no_blocks(f"a tensor of layout {kind}")
    if self.layout is kind:
        return self
    name = {sparse_csr: "Csr", sparse_csc: "Csc"}[kind]
    if not isinstance(self, SparseTensor):
        dims = self.ndim - (dense_dim or 0)
        if dims != 2:
            raise LayoutError(f"to_sparse_{name.lower()} of a tensor with {dims} dims beside the dense ones",
                              expected="2: there are no batches of compressed tensors here")  # fmt: skip
        found = _coo_of_dense(self.detach(), 2)
        pattern, values = _compressed(found, kind)
        return record(f"ToSparse{name}", wrap(pattern, values), (self,), (to_dense,))
    if self.pattern.sparse_dim != 2:
        what = f"conversion from {layout_name(self)} to Sparse{name} for input tensors with sparse_dim()!=2"
        raise SparseError(f"coo_to_sparse_{name.lower()}: {what} is not supported")
    pattern, values = _compressed(coalesced(self.detach()), kind)
    return _relaid(self, pattern, values, f"ToSparse{name}")


def _relaid(self: SparseTensor, pattern: Pattern, values: Tensor, name: str) -> SparseTensor:
    return record(name, wrap(pattern, same_memory(values)), (self,), (lambda g: as_layout_of(g, self),))


def as_layout_of(gradient: Tensor, tensor: SparseTensor) -> Tensor:
    """A gradient in the layout of `tensor`; a dense one as it is."""
    if not isinstance(gradient, SparseTensor) or gradient.layout is tensor.layout:
        return gradient
    return to_sparse(gradient, layout=tensor.layout)


def _compressed(self: SparseTensor, kind: layout) -> tuple[Pattern, Tensor]:
    """Pattern and values in the order of a compressed layout, of a tensor whose elements are listed once."""
    xp, pattern = module_of(self.pattern), self.pattern
    rows, columns = coordinates(pattern)
    major, minor = (rows, columns) if kind is sparse_csr else (columns, rows)
    if kind is sparse_csr and pattern.is_coo:
        return compressed_pattern(kind, pattern.shape, major, minor, xp), self.sparse.values
    order = xp.lexsort(xp.stack((minor, major)))
    made = compressed_pattern(kind, pattern.shape, major[order], minor[order], xp)
    return made, F.index_select(self.sparse.values, 0, index_of(order))


def _coo_of_dense(self: Tensor, sparse_dim: int) -> SparseTensor:
    if sparse_dim == 0 and self.ndim:
        raise SparseError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    if not 0 <= sparse_dim <= self.ndim:
        raise SparseError(
            f"dense_to_sparse: sparse_dim argument must be in [0,{self.ndim}] range, but {sparse_dim} is given"
        )
    shape = tuple(self.shape)
    rows = self.reshape((math.prod(shape[:sparse_dim]), math.prod(shape[sparse_dim:])))
    array = array_of(rows.detach())
    xp = array_module(array)
    keys = xp.flatnonzero((array != 0).any(1))
    pattern = coo_pattern(parted(keys, shape[:sparse_dim], xp), shape, coalesced=True)
    found = F.index_select(rows.detach(), 0, index_of(keys)).reshape((len(keys), *shape[sparse_dim:]))
    return record("ToSparse", wrap(pattern, found), (self,), (to_dense,))


# ---- masks


@rule("sparse_mask")
def sparse_mask(self: Tensor, mask: Tensor) -> SparseTensor:
    """The elements of this tensor at the places of `mask`, zeros too. The gradient is zero elsewhere."""
    if not isinstance(mask, SparseTensor):
        raise SparseError(f"sparse_mask: expected a sparse mask, but got one of layout {layout_name(mask)}")
    if tuple(self.shape) != tuple(mask.shape):
        raise ShapeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    pattern = mask.pattern
    made = wrap(pattern, at_places(self.detach(), pattern))
    places = mask.detach()

    def pull(g: Tensor) -> Tensor:
        masked = like(g, places)
        return as_layout_of(masked, self) if isinstance(self, SparseTensor) else to_dense(masked)

    return record("SparseMask", made, (self,), (pull,))


@rule("_sparse_mask_projection")
def mask_projection(self: Tensor, mask: Tensor, accumulate_matches: bool = False) -> SparseTensor:
    """`sparse_mask`."""
    return sparse_mask(self, mask)


# ---- from values at keys


def from_keys(source: Tensor, keys: Array, shape: Any) -> SparseTensor:
    """The COO tensor of elements source f[n, ...] at keys i64[n] of sparse sizes `shape`."""
    return grouped(source, keys, shape, np if is_host(keys) else array_module(keys))
