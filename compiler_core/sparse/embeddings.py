"""Rows of a table whose gradient is sparse: what `embedding(sparse=True)` records.

In: i[...] of row numbers, a table f[num, dim]. Out: its rows, f[..., dim]. The gradient of the table is a COO tensor
with one element f[dim] for each row that was looked up, as often as it was, and none for `padding_idx`.
"""

from __future__ import annotations

from compiler_core.dtype import int64
from compiler_core.ops import functional as F
from compiler_core.ops.registry import current_trace
from compiler_core.sparse.nodes import is_recorded, record
from compiler_core.sparse.parts import index_of, with_values
from compiler_core.sparse.places import array_of, coo_pattern
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.sparse.value import refuse_trace
from compiler_core.tensor.tensor import Tensor


def looked_up(input: Tensor, weight: Tensor, padding_idx: int | None) -> Tensor:
    """weight[input], recorded with a sparse gradient. While a graph is recorded that breaks it."""
    if not is_recorded(weight):
        return F.embedding(input, weight, padding_idx)  # type: ignore[no-any-return]
    if current_trace() is not None:
        refuse_trace("embedding with sparse=True, whose gradient is sparse")
    rows = F.embedding(input, weight.detach(), padding_idx)
    shape, numbers = tuple(weight.shape), array_of(input.detach().to(int64).reshape((-1,)))

    def pull(g: Tensor) -> SparseTensor:
        values, where = g.reshape((len(numbers), *shape[1:])), numbers
        if padding_idx is not None:
            xp = g.device.xp
            kept = xp.flatnonzero(numbers != padding_idx)
            values, where = F.index_select(values, 0, index_of(kept)), numbers[kept]
        return with_values(coo_pattern(where[None], shape, coalesced=False), values)

    return record("Embedding", rows, (weight,), (pull,), (input,))  # type: ignore[no-any-return]
