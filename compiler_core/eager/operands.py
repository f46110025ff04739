"""What the definitions of this folder share: which operands they take, how they lie, and how one is registered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from compiler_core.ops.quiet import quietly
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Backward, Forward, Prepare, define

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
Grads: TypeAlias = Sequence[Array | None]


def alike(first: Array, *others: Array | None) -> bool:
    """Whether all are f32, or all f64. What was unpickled has a dtype object of its own."""
    dtype = first.dtype
    if dtype is not F32 and dtype is not F64 and dtype not in (F32, F64):
        return False
    return not others or all(other is None or other.dtype is dtype or other.dtype == dtype for other in others)


def dense(x: Array) -> Array:
    """x in row-major order without gaps."""
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def dense_or_none(x: Array | None) -> Array | None:
    """The same of what may not be there, or was not kept."""
    return np.ascontiguousarray(x) if type(x) is np.ndarray and not x.flags.c_contiguous else x


def single(g: Array) -> Array | None:
    """What stands for g, an array of one number, where it is that number everywhere, as of a sum it is."""
    return None if any(g.strides) or g.ndim == 0 else g[(slice(0, 1),) * g.ndim]


def for_blas(x: Array) -> Array:
    """x, or a copy where neither its rows nor its columns lie densely: the BLAS would not take it."""
    return x if x.itemsize in x.strides[-2:] and 0 not in x.strides else np.ascontiguousarray(x)


def product(a: Array, b: Array) -> Array:
    """a @ b for equal leading dims, dense: left to itself NumPy lays these out as those of its operands."""
    out = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    np.matmul(a, b, out)
    return out


def spreads(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `wide`."""
    return len(shape) <= len(wide) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(wide)))


def gathered(g: Array, shape: tuple[int, ...]) -> Array:
    """g summed over what was broadcast from `shape`."""
    lead = g.ndim - len(shape)
    dims = (*range(lead), *(lead + d for d, n in enumerate(shape) if n == 1))
    return g.sum(axis=dims).reshape(shape) if dims else g


def define_quietly(
    name: str,
    forward: Forward,
    backward: Backward,
    *,
    reads: Iterable[int] | None = None,
    reads_out: bool = False,
    prepare: Prepare | None = None,
) -> None:
    """Register a definition (see ops/whole.py); infinities and NaN in it are no warnings."""
    numbers = None if reads is None else frozenset(reads)
    define(name, quietly(forward), quietly(backward), reads=numbers, reads_out=reads_out, prepare=prepare)
