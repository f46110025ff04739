"""Arithmetic with places: patterns as arrays of numbers, on the device where they are.

In: patterns and arrays. Out: arrays i64, and patterns. A place is one number, its `key`: row-major in the sparse sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compiler_core.dtype import int64
from compiler_core.memory_format import layout, sparse_coo
from compiler_core.meta import Shape
from compiler_core.ops.registry import Array
from compiler_core.sparse.value import Pattern
from compiler_core.tensor.memory.cell import shown
from compiler_core.tensor.tensor import Tensor


def array_of(tensor: Tensor) -> Array:
    """The array that a dense Tensor shows; not to be kept."""
    return shown(tensor._cell)  # type: ignore[no-any-return]


def module_of(pattern: Pattern) -> Any:
    """The array module of the pattern's device."""
    return pattern.indices[-1].device.xp


def coordinates(pattern: Pattern) -> tuple[Array, ...]:
    """For each sparse dim the indices i64[nnz] of the elements, in the order of the values."""
    if pattern.is_coo:
        return tuple(array_of(pattern.indices[0]))
    begins, plain = (array_of(index) for index in pattern.indices)
    xp = module_of(pattern)
    major = xp.repeat(xp.arange(len(begins) - 1), xp.diff(begins).astype(xp.int64))
    pair = (major, plain.astype(xp.int64, copy=False))
    return pair[:: 1 if pattern.compressed_dim == 0 else -1]


def keys_of(pattern: Pattern) -> Array:
    """i64[nnz]: the key of each element."""
    return joined(coordinates(pattern), pattern.sparse_shape, module_of(pattern), pattern.nnz)


def is_in_order(pattern: Pattern) -> bool:
    """Whether the elements are sorted, and each place is listed once."""
    keys = keys_of(pattern)
    return bool((keys[1:] > keys[:-1]).all())


def joined(indices: Sequence[Array], shape: Shape, xp: Any, count: int) -> Array:
    """i64[count]: the keys of places in an array of this shape."""
    keys: Array = xp.zeros(count, xp.int64)
    for index, size in zip(indices, shape):
        keys = keys * size + index
    return keys


def parted(keys: Array, shape: Shape, xp: Any) -> Array:
    """i64[len(shape), n]: the indices of keys."""
    rows: Any = [None] * len(shape)
    for dim in range(len(shape) - 1, -1, -1):
        keys, rows[dim] = xp.divmod(keys, max(shape[dim], 1)) if dim else (keys, keys)
    return xp.stack(rows) if rows else xp.zeros((0, len(keys)), xp.int64)  # type: ignore[no-any-return]


def runs_of(ordered: Array, xp: Any) -> tuple[Array, Array]:
    """Of keys in order: (which are the first of their kind, i64[n]: the number of each one's kind)."""
    first = xp.ones(len(ordered), bool)
    xp.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first, xp.cumsum(first) - 1


def found_in(keys: Array, sorted_keys: Array, xp: Any) -> tuple[Array, Array]:
    """For each key its place among sorted_keys, and whether it is there."""
    place = xp.searchsorted(sorted_keys, keys)
    if not len(sorted_keys):
        return place, xp.zeros(len(keys), bool)
    place = xp.minimum(place, len(sorted_keys) - 1)
    return place, sorted_keys[place] == keys


def coo_pattern(indices: Array, shape: Shape, *, coalesced: bool) -> Pattern:
    """The COO pattern of indices i64[sparse_dim, nnz]. One alone, or none at all, is in order."""
    return Pattern(sparse_coo, shape, (Tensor._wrap(indices),), coalesced or indices.shape[1] < 2)


def compressed_pattern(kind: layout, shape: Shape, major: Array, minor: Array, xp: Any, dtype: Any = int64) -> Pattern:
    """The compressed pattern of elements in order of `major`, the index that is compressed."""
    rows = shape[0 if kind.name == "sparse_csr" else 1]
    begins = xp.searchsorted(major, xp.arange(rows + 1))
    made = [Tensor._wrap(xp.asarray(array, dtype.numpy)) for array in (begins, minor)]
    return Pattern(kind, shape, (made[0], made[1]))


def reshaped(pattern: Pattern, shape: Shape) -> Pattern:
    """The same places in a tensor of another shape."""
    return replace(pattern, shape=shape)


def rows_of(values: Array) -> Array:
    """Values as a matrix: one row an element."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def is_host(array: Array) -> bool:
    """Whether NumPy and the kernels can compute with it."""
    return type(array) is np.ndarray
