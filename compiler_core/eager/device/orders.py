"""In which order arrays of a CUDA device lie: row-major, with channels (dim 1) last, or in another order of their dims.

In: CuPy's arrays. Out: the order, as dims, outermost first; arrays that lie so. What a tensor says of its strides is
told (tensor/memory/layout.py): definitions here leave their results as is best, mostly as their operands lie, so that
what cuDNN computes with channels last stays so from one convolution to the next.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device.kernels import I64, MOST_ROWS, DeviceKernels, dense, is_known, kernels
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.on_device import ROW_MAJOR
from compiler_core.ops.registry import OPS, Array, run_eager
from compiler_core.runtime.cuda.replay import Address, empty

Order = tuple[int, ...]
FILE = "turns.cu"
_SIDE = 32  # of the squares that a block moves
_FEW = 1 << 10  # elements, which are moved as fast without squares
_CONVERTING = {(2, 4): "turn_wide", (4, 2): "turn_narrow"}  # by the sizes of what is read, and written


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
    made = empty(tuple([shape[d] for d in order]), dtype)
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
    return laid(x, order, x.dtype)


def laid(x: Array, order: Order, dtype: Any) -> Array:
    """x with its dims in that order, row-major, of that dtype: a copy, if it is not so."""
    turned = x if _back(order) is None else x.transpose(order)
    if turned.flags.c_contiguous and x.dtype == dtype:
        return turned
    if turned.flags.c_contiguous:
        cast: Array = run_eager(OPS["cast"], [turned], {"dtype": of(np.dtype(dtype))})
        return cast
    made = _by_kernel(x, turned, order, dtype) if x.ndim > 2 and x.size >= _FEW else None
    return laid(dense(turned), tuple(range(x.ndim)), dtype) if made is None else made


def _by_kernel(x: Array, turned: Array, order: Order, dtype: Any) -> Array | None:
    """Between row-major and channels last; None: it is not that, or there is no kernel."""
    plain, channels_last = tuple(range(x.ndim)), last(x.ndim)
    length = math.prod(x.shape[2:])
    if order == channels_last and x.flags.c_contiguous:
        rows, columns = x.shape[1], length
    elif order == plain and lies_last(x):
        rows, columns = length, x.shape[1]
    else:
        return None
    narrow = min(x.dtype, np.dtype(dtype), key=lambda one: one.itemsize)
    name = "turn" if x.dtype == dtype else _CONVERTING.get((x.dtype.itemsize, np.dtype(dtype).itemsize))
    k = kernels(narrow, FILE) if name and is_known(narrow) and is_known(x.dtype) and is_known(np.dtype(dtype)) else None
    if k is None or not is_right_once("laying out", k, lambda: _difference(k)):
        return None
    out: Array = empty(turned.shape, dtype)
    return out if name and _turn(k, name, x, out, len(x), rows, columns) else None


def _turn(k: DeviceKernels, name: str, x: Array, out: Array, outer: int, rows: int, columns: int) -> bool:
    """Whether there are not too many squares for a launch, which is done."""
    squares = outer * -(-rows // _SIDE) * -(-columns // _SIDE)
    if squares >= MOST_ROWS:
        return False
    k.block(name, Address(x.data.ptr), out, I64(rows), I64(columns), grid=(squares,))  # type: ignore[attr-defined]
    return True


def _difference(k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    here = np.random.default_rng(5).normal(size=(3, 40, 70)).astype(k.dtype)
    pairs = [("turn", here, k.dtype)]
    if k.dtype.itemsize == 2:
        pairs += [("turn_wide", here, k.wide), ("turn_narrow", here.astype(k.wide) * k.wide.type(1.01), k.dtype)]
    for name, given, dtype in pairs:
        out = cuda.module().empty((3, 70, 40), dtype)
        _turn(k, name, cuda.put(given, cuda.current()), out, *given.shape)
        if cuda.fetch(out).tobytes() != given.swapaxes(1, 2).astype(dtype).tobytes():
            return "other numbers than the CPU"
    return ""


def row_major(x: Array) -> Array:
    """x in row-major order without gaps."""
    return x if x.flags.c_contiguous else as_it_lies(x, tuple(range(x.ndim)))


ROW_MAJOR.fill(lambda x: row_major(x) if lies_last(x) else x)
