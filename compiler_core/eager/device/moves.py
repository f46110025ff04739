"""Elements moved in eager code on a CUDA device, a launch an array: copies, `cat`, `reshape`, `x[index]`.

In: CuPy's arrays of the current device, in any order, of any dtype. Out: new row-major arrays; or None, and then CuPy
moves them: of an array with negative strides, of more than six dims that do not lie in each other, and where the
kernels do not give what NumPy gives (proof.py). Calls that come again are made by native code. Kernels: moves.cu. They
move units of up to 16 bytes, as far as strides and starts allow; nothing is computed, so bits stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import BLOCKS, I32, I64, U32, DeviceKernels, kernels
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.aliasing import reshaped_strides
from compiler_core.ops.indexing import known  # noqa: F401  declares a composite
from compiler_core.ops.indexing.adding import add_at
from compiler_core.ops.on_device import COPY, JOIN, MOVES
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import (
    Address,
    Known,
    empty,
    is_noting,
    replayed,
    replays,
    spoil,
)

_DIMS = 6
_WALK = np.dtype([("from", I64, _DIMS), ("to", I64, _DIMS), ("sizes", U32, _DIMS)])
_UNITS = (16, 8, 4, 2, 1)  # bytes
_MOST = 1 << 31  # units of a launch, fewer than which there are
_MODULE = np.dtype(np.float32)  # the kernels are the same for all dtypes
Dim = tuple[int, int, int]  # size, bytes from one place to the next in x and in out


def _walk(x: Array, to: Sequence[int]) -> list[Dim]:
    """The dims, outermost first, those that lie in each other on both sides as one."""
    dims: list[Dim] = []
    for n, step, other in zip(x.shape, x.strides, to):
        if n == 1:
            continue
        if dims and dims[-1][1:] == (n * step, n * other):
            dims[-1] = dims[-1][0] * n, step, other
        else:
            dims.append((n, step, other))
    return dims or [(1, x.itemsize, x.itemsize)]


def _unit(dims: Sequence[Dim], itemsize: int, ends: Sequence[int]) -> int | None:
    """How many bytes are moved at once, as sizes, strides and addresses (`ends`) allow; None: no such number."""
    *others, (n, step, other) = dims
    places = [*ends, *(place for _, *both in others for place in both)]
    if step == other == itemsize:
        return next((unit for unit in _UNITS if not any(place % unit for place in (*places, n * itemsize))), None)
    return itemsize if itemsize in _UNITS and not any(place % itemsize for place in (*places, step, other)) else None


def _move(k: DeviceKernels, x: Any, at: int, to: Sequence[int]) -> bool:
    """Whether x was moved to this address, where neighbours are so many bytes apart."""
    dims = _walk(x, to)
    unit = _unit(dims, x.itemsize, (x.data.ptr, at))
    if unit is None or len(dims) > _DIMS or min(x.strides, default=0) < 0:
        return False
    if dims[-1][1:] == (x.itemsize, x.itemsize):
        dims[-1] = dims[-1][0] * x.itemsize // unit, unit, unit
    n = math.prod(size for size, *_ in dims)
    if n >= _MOST:
        return False
    walk = np.zeros((), _WALK)
    for d, (size, step, other) in enumerate(dims):
        walk["from"][d], walk["to"][d], walk["sizes"][d] = step // unit, other // unit, size
    k.all(f"move_{unit}", n, Address(x.data.ptr), Address(at), I64(n), I32(len(dims)), walk, blocks=4 * BLOCKS)
    return True


def _kernels() -> DeviceKernels | None:
    k = kernels(_MODULE, "moves.cu")
    return k if k is not None and is_right_once("moving", k, lambda: _difference(k)) else None


# ---- copies


def copied(x: Array) -> Array:
    """A row-major copy; in a call that is not noted CuPy makes it, which takes less Python."""
    found = _moved(x) if x.size and _kernels() is not None and is_noting() else None
    if found is None:
        spoil()
        found = x.copy()
    return found


def _moved(x: Array) -> Array | None:
    k = _kernels()
    out: Any = None if k is None else empty(x.shape, x.dtype)
    return out if k is not None and _move(k, x, out.data.ptr, out.strides) else None


def joined(dim: int, parts: Sequence[Any]) -> Array | None:
    """Arrays one behind the other along a dim, in a call that is noted: in one that is not CuPy takes less Python."""
    first, k = parts[0], _kernels()  # which are proved in a call that is not noted
    if k is None or not is_noting():
        return None
    length = sum(part.shape[dim] for part in parts)
    out: Any = empty((*first.shape[:dim], length, *first.shape[dim + 1 :]), first.dtype)
    at = out.data.ptr
    for part in parts:
        if part.size and not _move(k, part, at, out.strides):
            spoil()
            return None
        at += part.shape[dim] * out.strides[dim]
    made: Array = out
    return made


def join(dim: int, parts: Sequence[Array]) -> Array | None:
    """`joined`, of arrays of one dtype, of which calls are made again."""
    made: Array | None = replayed(_known, (dim,), parts, lambda *parts: joined(dim, parts))
    return made


def copy(x: Array) -> Array:
    """`copied`, of which calls are made again."""
    made: Array = replayed(_known, (), (x,), copied)
    return made


_known: Known = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """op(*operands, **attrs), one of `cat` and `reshape`, on the current device."""
    x = operands[0]
    if "dim" in attrs:
        return join(attrs["dim"], operands)
    is_view = not x.size or reshaped_strides(x.shape, x.strides, attrs["shape"]) is not None
    made: Array = (x if is_view else copy(x)).reshape(attrs["shape"])
    return made


# ---- x[index]


@replays
def _index(k: DeviceKernels, x: Any, index: Any) -> Made:
    moves, size = _kernels(), x.size // max(len(x), 1)
    if moves is None or not (x.size and index.size) or index.dtype != np.int64:
        return None
    given: Any
    given, places = (one if one.flags.c_contiguous else copied(one) for one in (x, index))
    out: Any = empty((*index.shape, *x.shape[1:]), x.dtype)
    unit = next(u for u in _UNITS if not any(k % u for k in (size * x.itemsize, given.data.ptr, out.data.ptr)))
    row = size * x.itemsize // unit
    args = Address(given.data.ptr), places, Address(out.data.ptr)
    moves.all(f"take_{unit}", index.size * row, *args, *map(I64, (index.size * row, row, len(x))), blocks=4 * BLOCKS)
    return out, ()


def _index_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Any, index: Any) -> Grads:
    cupy = cuda.module()
    dx = add_at(cupy, cupy.zeros(x.shape, k.wide), index, g.astype(k.wide, copy=False))
    return dx.astype(k.dtype, copy=False), None


def define_moves() -> None:
    """Register the definitions."""
    define_there("index", _index, _index_backward, reads=(1,))


# ---- once


def _difference(k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    for dtype in (np.uint8, np.float16, np.float32, np.float64, np.complex128):
        here = np.arange(2 * 3 * 5 * 8).astype(dtype).reshape(2, 3, 5, 8)
        there = cuda.put(here, cuda.current())
        for turned, expected in ((there.transpose(2, 0, 3, 1), here.transpose(2, 0, 3, 1)), (there[:, :, 1::2], here[:, :, 1::2])):  # fmt: skip  # noqa: E501
            out: Any = cuda.module().empty(turned.shape, dtype)
            if not _move(k, turned, out.data.ptr, out.strides) or cuda.fetch(out).tobytes() != expected.tobytes():
                return "other elements than the CPU"
    return ""


COPY.fill(copy)
JOIN.fill(join)
MOVES.fill(run)
