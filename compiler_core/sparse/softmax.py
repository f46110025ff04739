"""Softmax over the elements that a sparse tensor has: those that it has not count as minus infinity.

In: a COO tensor, a dim. Out: a sparse tensor with the same places, coalesced.
"""

from __future__ import annotations

from typing import Any

from compiler_core.dtype import DType
from compiler_core.errors import SparseError
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array
from compiler_core.sparse import kernels
from compiler_core.sparse.movement import dim_of
from compiler_core.sparse.parts import coalesced, index_of, sums_at, values, with_values
from compiler_core.sparse.places import array_of, joined, module_of, runs_of
from compiler_core.sparse.rules import not_there, rule
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.tensor.tensor import Tensor


@rule("sparse.softmax", "_sparse_softmax")
def softmax(input: SparseTensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """exp(x) / the sum of exp(x) along `dim`."""
    return _softmax(input, dim, dtype, "SparseSoftmax")


@rule("sparse.log_softmax", "_sparse_log_softmax")
def log_softmax(input: SparseTensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """The logarithm of `softmax`."""
    return _softmax(input, dim, dtype, "SparseLogSoftmax")


def _softmax(input: Any, dim: int, dtype: DType | None, name: str) -> Tensor:
    if not isinstance(input, SparseTensor) or not input.pattern.is_coo:
        raise not_there(f"torch.sparse.{'log_' if 'Log' in name else ''}softmax of other than a COO tensor")
    self = coalesced(input if dtype is None else input.to(dtype))
    if not self.dtype.is_inexact:
        raise SparseError(f"softmax of {self.dtype.name}", remedy="dtype=torch.float32")
    d, pattern, held = dim_of(self, dim), self.pattern, values(self)
    if d >= pattern.sparse_dim:
        function = F.log_softmax if "Log" in name else F.softmax
        return with_values(pattern, function(held, d - pattern.sparse_dim + 1), name)
    lines, count = _lines(self, d)
    most = _highest(held.detach(), lines, count)
    shifted = held - F.index_select(most, 0, index_of(lines))
    powers = F.exp(shifted)
    totals = F.index_select(sums_at(powers, lines, count), 0, index_of(lines))
    return with_values(pattern, shifted - F.log(totals) if "Log" in name else powers / totals, name)


def _lines(self: SparseTensor, dim: int) -> tuple[Array, int]:
    """For each element the number of the line along `dim` that it is in, and how many lines have elements."""
    pattern, xp = self.pattern, module_of(self.pattern)
    indices = array_of(pattern.indices[0])
    rest = [d for d in range(pattern.sparse_dim) if d != dim]
    keys = joined([indices[d] for d in rest], tuple(pattern.shape[d] for d in rest), xp, pattern.nnz)
    order = xp.argsort(keys, kind="stable")
    _, kinds = runs_of(keys[order], xp)
    lines = xp.empty(pattern.nnz, xp.int64)
    lines[order] = kinds
    return lines, int(kinds[-1]) + 1 if pattern.nnz else 0


def _highest(held: Tensor, lines: Array, count: int) -> Tensor:
    """f[count, ...]: the greatest value of each line."""
    xp, array = held.device.xp, array_of(held)
    order = xp.argsort(lines, kind="stable")
    begins = xp.searchsorted(lines[order], xp.arange(count))
    return Tensor._wrap(kernels.reduced(array[order], begins, "amax", xp) if count else array[:0])
