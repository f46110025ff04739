"""Sums and norms of sparse tensors.

In: a sparse tensor. Out: a number without dims where all sparse dims are reduced and nothing is left, a dense tensor
where only dense dims are, else a sparse one, coalesced.
"""

from __future__ import annotations

from typing import Any

from compiler_core.dtype import DType, int64
from compiler_core.errors import SparseError
from compiler_core.ops import functional as F
from compiler_core.sparse.convert import from_keys, to_layout
from compiler_core.sparse.movement import coo_of, dim_of
from compiler_core.sparse.nodes import record
from compiler_core.sparse.parts import coalesced, values, with_values
from compiler_core.sparse.places import array_of, joined, module_of, reshaped
from compiler_core.sparse.rules import not_there, rule
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.tensor import Tensor

Dims = Any  # an int, a sequence of ints, or None: all


def _dims(self: SparseTensor, dim: Dims) -> list[int]:
    given = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    found = [dim_of(self, d) for d in given]
    if len(set(found)) != len(found):
        raise SparseError(f"dim {found[-1]} appears multiple times in the list of dims")
    return found or list(range(self.ndim))


def _summable(self: SparseTensor, dtype: DType | None) -> SparseTensor:
    wanted = dtype or (int64 if self.dtype.kind in "biu" else self.dtype)
    return self if wanted is self.dtype else self.to(wanted)


@rule("sum")
def sum(input: SparseTensor, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum of all elements, whose gradient is dense; or along dims."""
    if dim is None or (not isinstance(dim, int) and not list(dim)):
        self = _summable(input, dtype)
        held = self.sparse.values
        whole = F.sum(held)
        shape = tuple(input.shape)
        total = record("Sum", whole, (self,), (lambda g: g.expand(shape),))
        return total.reshape((1,) * input.ndim) if keepdim else total  # type: ignore[no-any-return]
    if not input.pattern.is_coo:
        return _sum_of_compressed(input, _dims(input, dim), keepdim, dtype)
    found = sum_along(_summable(input, dtype), _dims(input, dim))
    if not keepdim:
        return found
    kept: Tensor = found
    for d in sorted(_dims(input, dim)):
        kept = kept.unsqueeze(d)
    return kept


def _sum_of_compressed(self: SparseTensor, dims: list[int], keepdim: bool, dtype: DType | None) -> Tensor:
    if not keepdim:
        raise SparseError("reduction operations on CSR tensors with keepdim=False is unsupported")
    found = sum(coo_of(self), dims, True, dtype=dtype)
    return to_layout(found, self.pattern.layout)


@rule("sparse.sum")
def sparse_sum(input: Tensor, dim: Dims = None, dtype: DType | None = None) -> Tensor:
    """`sum`; the gradient of the sparse operand has its places."""
    if not isinstance(input, SparseTensor) or not input.pattern.is_coo:
        raise not_there("torch.sparse.sum of other than a COO tensor")
    self = input if dtype is None else input.to(dtype)
    if dim is None:
        return F.sum(values(coalesced(self)))  # type: ignore[no-any-return]
    return sum_along(_summable(self, None), _dims(input, dim))


def sum_along(self: SparseTensor, dims: list[int]) -> Tensor:
    """The sum along some dims."""
    once = coalesced(self)
    pattern, held, sparse = once.pattern, values(once), once.pattern.sparse_dim
    inner = [d - sparse + 1 for d in dims if d >= sparse]
    if inner:
        held = F.sum(held, inner)
    rest = [d for d in range(sparse) if d not in dims]
    shape = tuple(pattern.shape[d] for d in rest)
    if len(rest) == sparse:
        return with_values(reshaped(pattern, (*shape, *held.shape[1:])), held)
    if not rest:
        return F.sum(held, 0)  # type: ignore[no-any-return]
    xp = module_of(pattern)
    indices = array_of(pattern.indices[0])
    return from_keys(held, joined([indices[d] for d in rest], shape, xp, pattern.nnz), shape)


@rule("norm")
def norm(input: SparseTensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The norm of all elements taken as a vector. Raises SparseError for a norm along dims."""
    if dim is not None and sorted(_dims(input, dim)) != list(range(input.ndim)):
        raise SparseError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all "
            "dimensions of the input"
        )
    if not input.pattern.is_coo:
        raise not_there("torch.norm of a compressed tensor")
    self = input if dtype is None else input.to(dtype)
    held = values(coalesced(self)).reshape((-1,))
    order = 2.0 if p in ("fro", None) else float(p)
    found: Tensor = F.norm(held, order) if held.shape[0] else Tensor._wrap(held.device.zeros((), held.dtype.real.numpy))
    return found.reshape((1,) * input.ndim) if keepdim else found


@rule("any")
def any(input: SparseTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Whether any element is not zero. Raises LayoutError for a question along dims."""
    if args or kwargs:
        raise not_there("torch.any along a dim")
    return F.any(coalesced(input.detach()).sparse.values)  # type: ignore[no-any-return]
