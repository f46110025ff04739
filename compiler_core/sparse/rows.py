"""Some rows of a dense tensor changed in place: what a sparse gradient touches, at the cost of what it touches.

In: a dense Tensor, places that are listed once, values there. Out: nothing; the tensor's memory, of which all but those
places stays as it is. It is copied first only where others would see the change (`tensor/memory/ownership.py`).
"""

from __future__ import annotations

import math

from compiler_core.ops.registry import Array
from compiler_core.sparse.parts import coalesced
from compiler_core.sparse.places import array_of, keys_of
from compiler_core.sparse.tensor import SparseTensor
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.memory.ownership import destination
from compiler_core.tensor.tensor import Tensor


def rows_at(dense: Tensor, pattern: Pattern) -> Array:
    """f[nnz, ...]: the elements of a dense tensor at the places of a pattern."""
    return _flat(dense._cell.current(), pattern)[keys_of(pattern)]


def put_rows(dense: Tensor, pattern: Pattern, rows: Array) -> None:
    """Have `dense` hold `rows` f[nnz, ...] at the places of a coalesced pattern. Nothing is recorded."""
    keys, cell = keys_of(pattern), dense._cell
    with dense.device.working():
        array = destination(cell)
        if array is not cell.value:
            array[...] = cell.current()
        _flat(array, pattern)[keys] = rows
        cell.write(array)


def add_rows(dense: Tensor, sparse: SparseTensor, alpha: float) -> None:
    """dense += alpha * sparse, in place. Nothing is recorded."""
    once = coalesced(sparse)
    values = array_of(once.sparse.values)
    scaled = values if alpha == 1 else values * values.dtype.type(alpha)
    put_rows(dense, once.pattern, rows_at(dense, once.pattern) + scaled)


def _flat(array: Array, pattern: Pattern) -> Array:
    return array.reshape(math.prod(pattern.sparse_shape), *pattern.dense_shape)
