"""In which order arrays of a CUDA device lie: row-major, with channels (dim 1) last, or in another order of their dims.

In: CuPy's arrays. Out: the order, as dims, outermost first; arrays that lie so. What a tensor says of its strides is
told (tensor/memory/layout.py): definitions here leave their results as is best, mostly as their operands lie, so that
what cuDNN computes with channels last stays so from one convolution to the next.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from compiler_core import cuda
from compiler_core.eager.device_kernels import dense
from compiler_core.ops.registry import Array

Order = tuple[int, ...]


@lru_cache(maxsize=64)
def last(ndim: int) -> Order:
    """Channels last."""
    return (0, *range(2, ndim), 1)


@lru_cache(maxsize=4096)
def _order(shape: tuple[int, ...], steps: tuple[int, ...]) -> Order | None:
    """steps: strides in elements."""
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -steps[d])
    step = 1
    for d in reversed(order):
        if steps[d] != step:
            return None
        step *= shape[d]
    if order == sorted(order):
        return tuple(range(len(shape)))
    alone = [d for d in range(len(shape)) if shape[d] == 1]
    return tuple(alone + order)


def order_of(x: Array) -> Order | None:
    """The order of its dims in which it is dense, that of the dims themselves if it can be; None: it has gaps."""
    if x.flags.c_contiguous:
        return tuple(range(x.ndim))
    size = x.itemsize
    return _order(x.shape, tuple([step // size for step in x.strides])) if x.size else None


def lies_last(x: Array) -> bool:
    """Whether channels lie last, without gaps, but not as a row-major array's do."""
    if x.ndim < 3 or x.flags.c_contiguous or x.strides[1] != x.itemsize:
        return False
    return bool(x.transpose(last(x.ndim)).flags.c_contiguous)


def empty_in(order: Order, shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array of this shape, whose dims lie in that order."""
    made = cuda.module().empty(tuple([shape[d] for d in order]), dtype)
    return as_seen(made, order)


@lru_cache(maxsize=1024)
def _back(order: Order) -> Order | None:
    """The inverse; None of what changes nothing."""
    made = tuple(sorted(range(len(order)), key=order.__getitem__))
    return None if made == order == tuple(range(len(order))) else made


def as_seen(x: Array, order: Order) -> Array:
    """An array whose dims lie in `order`, seen with its dims in turn."""
    back = _back(order)
    return x if back is None else x.transpose(back)


def as_it_lies(x: Array, order: Order) -> Array:
    """x with its dims in that order, row-major: copied if it does not lie so."""
    return dense(x if _back(order) is None else x.transpose(order))
