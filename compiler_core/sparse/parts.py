"""The parts of a sparse tensor: its indices and values, how many there are, and elements that are listed once.

In: sparse tensors. Out: dense Tensors on the same memory, numbers. `values` and `with_values` are each other's inverse
and each other's gradient; a function that computes on values alone (sin, softmax, sums) is what stands between them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from compiler_core.errors import LayoutError, SparseError
from compiler_core.memory_format import sparse_coo, sparse_csc, sparse_csr
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array
from compiler_core.sparse.kernels import summed
from compiler_core.sparse.nodes import record
from compiler_core.sparse.places import (
    array_of,
    coo_pattern,
    coordinates,
    found_in,
    is_in_order,
    keys_of,
    module_of,
    parted,
    runs_of,
)
from compiler_core.sparse.rules import rule
from compiler_core.sparse.tensor import SparseTensor, wrap
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.tensor import Tensor

_NAMES = {sparse_coo: "Sparse", sparse_csr: "SparseCsr", sparse_csc: "SparseCsc"}  # torch's, in its errors


def layout_name(tensor: Tensor) -> str:
    """What torch's errors call the layout of a tensor."""
    return _NAMES.get(tensor.layout, "Strided")


def need_coo(tensor: Any, name: str) -> SparseTensor:
    """The tensor, which is COO. Raises SparseError."""
    if tensor.layout is sparse_coo:
        return tensor  # type: ignore[no-any-return]
    raise SparseError(f"{name} expected sparse coordinate tensor layout but got {layout_name(tensor)}")


def _need_compressed(tensor: Any, name: str, kind: Any, what: str) -> SparseTensor:
    if tensor.layout is kind:
        return tensor  # type: ignore[no-any-return]
    raise SparseError(f"{name} expected sparse {what} compressed tensor layout but got {layout_name(tensor)}")


def same_memory(tensor: Tensor) -> Tensor:
    """A fresh handle on a part's memory."""
    return Tensor._from_cell(tensor._cell)


# ---- what is asked


@rule("layout.__get__")
def layout_of(self: SparseTensor) -> Any:
    return self.pattern.layout


@rule("is_sparse.__get__")
def is_sparse(self: SparseTensor) -> bool:
    """Whether it is COO, as torch means it."""
    return self.pattern.is_coo


@rule("is_sparse_csr.__get__")
def is_sparse_csr(self: SparseTensor) -> bool:
    return self.pattern.layout is sparse_csr


@rule("sparse_dim")
def sparse_dim(self: Tensor) -> int:
    """How many dims are sparse; of a dense tensor none."""
    return self.pattern.sparse_dim if isinstance(self, SparseTensor) else 0


@rule("dense_dim")
def dense_dim(self: Tensor) -> int:
    """How many dims are dense."""
    return len(self.pattern.dense_shape) if isinstance(self, SparseTensor) else self.ndim


@rule("_nnz")
def nnz(self: Tensor) -> int:
    """How many elements are listed. Raises LayoutError for a dense tensor."""
    if not isinstance(self, SparseTensor):
        raise LayoutError("_nnz of a dense tensor", remedy="count_nonzero() counts its elements that are not zero")
    return self.pattern.nnz


@rule("is_coalesced")
def is_coalesced(self: Tensor) -> bool:
    """Whether it is known, or was said, that the elements are in order, and each listed once."""
    pattern = need_coo(self, "is_coalesced").pattern
    return pattern.coalesced or pattern.said


@rule("_coalesced_")
def set_coalesced(self: Tensor, coalesced: bool) -> SparseTensor:
    """Say that it is coalesced, or not. What is said and is not so is not built on."""
    coo = need_coo(self, "_coalesced_")
    coo.sparse.pattern = as_said(coo.pattern, coalesced)
    return coo


def as_said(pattern: Pattern, coalesced: bool) -> Pattern:
    """The pattern of which a program says that it is coalesced, or not."""
    known = coalesced and (pattern.coalesced or is_in_order(pattern))
    return replace(pattern, coalesced=known, said=coalesced)


@rule("stride")
def stride(self: SparseTensor, dim: int | None = None) -> Any:
    """Zeros for COO, as in torch. Raises SparseError for compressed layouts."""
    if not self.pattern.is_coo:
        raise SparseError(f"Sparse {layout_name(self)[-3:].upper()} tensors do not have strides")
    return (0,) * self.ndim if dim is None else 0


@rule("is_contiguous")
def is_contiguous(self: SparseTensor, memory_format: Any = None) -> bool:
    """Never. Raises SparseError for compressed layouts, as torch."""
    if not self.pattern.is_coo:
        raise SparseError(f"Tensors of type SparseCsrTensorImpl do not have is_contiguous ({layout_name(self)})")
    return False


@rule("storage_offset")
def storage_offset(self: SparseTensor) -> int:
    return 0


# ---- indices and values


@rule("_indices")
def raw_indices(self: Tensor) -> Tensor:
    """i64[sparse_dim, nnz], as they are."""
    return same_memory(need_coo(self, "_indices").pattern.indices[0])


@rule("_values")
def raw_values(self: Tensor) -> Tensor:
    """f[nnz, ...], as they are; without a history."""
    return same_memory(need_coo(self, "_values").sparse.values)


def _need_coalesced(self: Tensor, name: str) -> SparseTensor:
    coo = need_coo(self, name)
    if not (coo.pattern.coalesced or coo.pattern.said):
        raise SparseError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    return coo


@rule("indices")
def indices(self: Tensor) -> Tensor:
    """i64[sparse_dim, nnz] of a coalesced tensor."""
    return same_memory(_need_coalesced(self, "indices").pattern.indices[0])


@rule("crow_indices")
def crow_indices(self: Tensor) -> Tensor:
    """i[rows + 1]: where each row begins."""
    return same_memory(_need_compressed(self, "crow_indices", sparse_csr, "row").pattern.indices[0])


@rule("col_indices")
def col_indices(self: Tensor) -> Tensor:
    """i[nnz]: the column of each element."""
    return same_memory(_need_compressed(self, "col_indices", sparse_csr, "row").pattern.indices[1])


@rule("ccol_indices")
def ccol_indices(self: Tensor) -> Tensor:
    """i[columns + 1]: where each column begins."""
    return same_memory(_need_compressed(self, "ccol_indices", sparse_csc, "column").pattern.indices[0])


@rule("row_indices")
def row_indices(self: Tensor) -> Tensor:
    """i[nnz]: the row of each element."""
    return same_memory(_need_compressed(self, "row_indices", sparse_csc, "column").pattern.indices[1])


@rule("values")
def values(self: Tensor) -> Tensor:
    """f[nnz, ...] of a coalesced (or compressed) tensor, on the same memory. The gradient is sparse."""
    if not isinstance(self, SparseTensor):
        raise SparseError("values expected sparse tensor layout but got Strided")
    found = self if not self.pattern.is_coo else _need_coalesced(self, "values")
    pattern = found.pattern
    return record("Values", same_memory(found.sparse.values), (found,), (lambda g: with_values(pattern, g),))


def with_values(pattern: Pattern, values: Tensor, name: str = "SparseCooTensorWithDimsAndTensors") -> SparseTensor:
    """The sparse tensor of this pattern and these values, which get the gradient at their places.

    name: the node's.
    """
    return record(name, wrap(pattern, same_memory(values)), (values,), (lambda g: at_places(g, pattern),))


# ---- at places


def at_places(tensor: Tensor, pattern: Pattern) -> Tensor:
    """f[nnz, ...]: the elements of a tensor, dense or sparse, at the places of a pattern; zeros where it has none."""
    if not isinstance(tensor, SparseTensor):
        flat = tensor.reshape((math.prod(pattern.sparse_shape), *pattern.dense_shape))
        return F.index_select(flat, 0, index_of(keys_of(pattern)))  # type: ignore[no-any-return]
    if tensor.pattern is pattern and pattern.coalesced:
        return values(tensor)
    own = coalesced(tensor)
    sparse = own.pattern
    if sparse.sparse_dim != pattern.sparse_dim:
        from compiler_core.sparse.convert import to_dense

        return at_places(to_dense(own), pattern)
    xp = module_of(pattern)
    order = _order(sparse)
    keys = keys_of(sparse)
    place, there = found_in(keys_of(pattern), keys if order is None else keys[order], xp)
    if order is not None and len(order):
        place = order[place]
    return _taken(values(own), place, there)


def _order(pattern: Pattern) -> Array | None:
    """Places of the elements by their keys; None if they are in order."""
    if pattern.is_coo and pattern.coalesced:
        return None
    return module_of(pattern).argsort(keys_of(pattern), kind="stable")  # type: ignore[no-any-return]


def _taken(source: Tensor, place: Array, there: Array) -> Tensor:
    """source[place], and zeros where there is nothing."""
    if not source.shape[0]:
        return source.new_zeros((len(place), *source.shape[1:]))
    taken = F.index_select(source, 0, index_of(place))
    if bool(there.all()):
        return taken  # type: ignore[no-any-return]
    mask = Tensor._wrap(there).reshape((-1, *(1,) * (source.ndim - 1)))
    return F.where(mask, taken, taken.new_zeros(()))  # type: ignore[no-any-return]


def index_of(array: Array) -> Tensor:
    """An array of numbers as a dense Tensor."""
    return Tensor._wrap(array)


# ---- each place once


@rule("coalesce", "_coalesce")
def coalesce(self: Tensor) -> SparseTensor:
    """The same tensor with its elements in order, those of one place summed; itself if it is so, or was said to be."""
    coo = need_coo(self, "coalesce")
    return coo if coo.pattern.said else coalesced(coo)


def coalesced(self: SparseTensor) -> SparseTensor:
    """`coalesce`, of compressed tensors too, which are."""
    if self.pattern.coalesced:
        return self
    return record("Coalesce", wrap(*_sorted_once(self)), (self,), (lambda g: g,))


def _sorted_once(self: SparseTensor) -> tuple[Pattern, Tensor]:
    pattern, xp = self.pattern, module_of(self.pattern)
    shape = pattern.sparse_shape
    keys = keys_of(pattern)
    order = xp.argsort(keys, kind="stable")
    ordered = keys[order]
    first, kinds = runs_of(ordered, xp)
    ordered = ordered[first]
    made = coo_pattern(parted(ordered, shape, xp), pattern.shape, coalesced=True)
    stored = array_of(self.sparse.values)
    whole = stored[order] if len(ordered) == len(keys) else summed(stored, kinds, len(ordered), order)
    return made, Tensor._wrap(whole)


def sums_at(source: Tensor, kinds: Array, count: int) -> Tensor:
    """f[count, ...]: the sums of rows of source f[n, ...] of one kind i64[n]."""
    total = Tensor._wrap(summed(array_of(source), kinds, count))
    return record("IndexAdd", total, (source,), (lambda g: F.index_select(g, 0, index_of(kinds)),))


def grouped(source: Tensor, keys: Array, shape: Any, xp: Any) -> SparseTensor:
    """The COO tensor of elements source f[n, ...] at keys i64[n] in sparse sizes `shape`, those of one place summed."""
    order = xp.argsort(keys, kind="stable")
    ordered = keys[order]
    first, kinds = runs_of(ordered, xp)
    numbers = xp.empty(len(keys), xp.int64)
    numbers[order] = kinds
    ordered = ordered[first]
    pattern = coo_pattern(parted(ordered, shape, xp), (*shape, *source.shape[1:]), coalesced=True)
    return with_values(pattern, sums_at(source, numbers, len(ordered)))


def uncompressed(pattern: Pattern) -> Pattern:
    """The COO pattern of the same elements in the same order."""
    if pattern.is_coo:
        return pattern
    where = module_of(pattern).stack(coordinates(pattern))
    return coo_pattern(where, pattern.shape, coalesced=pattern.layout is sparse_csr and is_in_order(pattern))
