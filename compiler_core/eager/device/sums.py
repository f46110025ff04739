"""Sums of floats in eager code on a CUDA device, by kernels that read each element once.

In: an array of f32, f64, f16 or bf16 and the dims that are summed over, as ops/on_device.py has them. Out: the sum; or
None, and then the op's own rule computes it with CuPy.
Method: dims are taken in the order in which they lie in memory, and neighbours of one kind are one. So what is summed
over lies before what is kept (columns), behind it (rows), between, or around it. What is added up by more than one
block is left as parts in the dtype computed in, which a second kernel adds: the parts depend on sizes and places alone,
so the bits are the same at every call. Around, a first kernel sums columns, or rows where they are long, and a second
the rest.
Used once the kernels have given the rule's numbers on the CPU, for each dtype (proof.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.kernels import I32, I64, MOST, MOST_ROWS, DeviceKernels, dense, is_known, kernels
from compiler_core.eager.device.orders import row_major
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.on_device import SUM
from compiler_core.ops.registry import OPS, Array
from compiler_core.runtime.cuda.replay import Address, Known, empty, replayed

_FILE = "sums.cu"
NBYTES = 16  # that a thread reads at once
_BLOCKS = 1 << 12  # that keep a device busy
_PARTS = 512  # of one sum, at most
_LONG = 512  # elements of a row that lanes of its own read well
_FEW = 8  # rows, of which a sum down the columns would leave too much to the second kernel
_WIDE = np.dtype(np.float32)

# kernels of x's dtype, and of the result's; x, or where it is; what the sum is divided by, before it is rounded
Sum = Callable[[DeviceKernels, DeviceKernels, Any, int], Array]


_known: Known = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """The sum on the current device."""
    dims = tuple(attrs["dims"])
    found: Array | None = replayed(_known, dims, operands, lambda x: _run(x, dims))
    return found


def _run(x: Array, dims: tuple[int, ...]) -> Array | None:
    k = _proved(x.dtype) if x.size and is_known(x.dtype) else None
    return None if k is None else _sum(k, k, x, dims)


def column_sums(x: Array) -> Array | None:
    """Those of a matrix of 16-bit floats, in f32; None where there are no kernels."""
    return wide_sum(x, (0,))


def wide_sum(x: Array, dims: tuple[int, ...]) -> Array | None:
    """The sum in f32 of f32 or 16-bit floats; None where there are no kernels."""
    k, wide = _proved(x.dtype), _proved(_WIDE)
    return None if k is None or wide is None or not x.size else _sum(k, wide, x, dims)


def average(x: Array, dims: tuple[int, ...]) -> Array | None:
    """The sum over dims, divided by how many it is of and rounded once; None where there are no kernels."""
    k = _proved(x.dtype)
    return None if k is None else _sum(k, k, x, dims, math.prod([x.shape[d] for d in dims]))


def added(x: Array, dim: int) -> Array:
    """The sum over a dim of a dense array of the dtype that kernels compute in."""
    k = None if x.shape[dim] == 1 else _proved(x.dtype)
    found = None if k is None else _sum(k, k, x, (dim,))
    if found is None:
        found = x.reshape(*x.shape[:dim], *x.shape[dim + 1 :]) if x.shape[dim] == 1 else x.sum(axis=dim)
    return found


def _sum(k: DeviceKernels, ends: DeviceKernels, x: Array, dims: tuple[int, ...], divisor: int = 1) -> Array | None:
    found = _order(x.shape, x.strides, x.itemsize, dims)
    if found is None:
        if x.ndim == 2 and dims == (0,) and _has_gaps(x.shape, x.strides, x.itemsize):
            step, fits = x.strides[0] // x.itemsize, not (x.data.ptr % NBYTES or x.strides[0] % NBYTES)  # type: ignore[attr-defined]
            columns = _down(1, *x.shape, NBYTES // x.itemsize if fits else 1, step=step)
            return columns(k, ends, Address(x.data.ptr), divisor)  # type: ignore[attr-defined]
        if not all(x.strides):
            return None  # it repeats
        x = row_major(x)
        found = _order(x.shape, x.strides, x.itemsize, dims)
    made = None if found is None else _way(found[0], x.itemsize, not x.data.ptr % NBYTES)  # type: ignore[attr-defined]
    if found is None or made is None:
        return None
    out = made(k, ends, x if x.flags.c_contiguous else Address(x.data.ptr), divisor)  # type: ignore[attr-defined]
    shape, turn = found[1:]
    if turn is not None:
        out = dense(out.reshape(turn[0]).transpose(turn[1]))
    return out if out.shape == shape else out.reshape(shape)


def _has_gaps(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether it is a matrix of rows with gaps between them."""
    return strides[1] == itemsize and strides[0] > shape[1] * itemsize and math.prod(shape) < MOST_ROWS * 32


@lru_cache(4096)
def _order(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, dims: tuple[int, ...]) -> Any:
    """((outer, rows, n, inner), the result's shape, and how it is turned, or None); None: not for these kernels.

    outer and n are kept, rows and inner are summed over. turn: the shape that the kept dims lie in, and their order.
    """
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -strides[d])
    step, groups = itemsize, list[tuple[bool, int]]()
    for d in reversed(order):
        if strides[d] != step:
            return None
        step *= shape[d]
        is_summed, size = d in dims, shape[d]
        if groups and groups[-1][0] == is_summed:
            size *= groups.pop()[1]
        groups.append((is_summed, size))
    pattern = "".join("s" if is_summed else "k" for is_summed, _ in reversed(groups))
    sizes = dict(zip(_PLACES.get(pattern, ()), (size for _, size in reversed(groups))))
    if not sizes:
        return None
    kept = [d for d in order if d not in dims]
    turn = None if kept == sorted(kept) else ([shape[d] for d in kept], [kept.index(d) for d in sorted(kept)])
    result = tuple(n for d, n in enumerate(shape) if d not in dims)
    return tuple(sizes.get(name, 1) for name in ("outer", "rows", "n", "inner")), result, turn


_PLACES = {
    "s": ("inner",), "ks": ("n", "inner"), "sk": ("rows", "n"), "ksk": ("outer", "rows", "n"),
    "sks": ("rows", "n", "inner"),
}  # fmt: skip


@lru_cache(4096)
def _way(sizes: tuple[int, int, int, int], itemsize: int, aligned: bool) -> Sum | None:
    """How they are summed; None: by too many blocks."""
    outer, rows, n, inner = sizes
    vector = NBYTES // itemsize if aligned else 1
    if math.prod(sizes) >= MOST_ROWS * 32:
        return None
    if inner == 1:
        return _down(outer, rows, n, vector)
    if rows == 1:
        return _along(n, inner, vector)
    is_odd = bool(inner % vector) and not n * inner % vector
    if rows < _FEW or (inner >= _LONG and not is_odd):
        splits = pieces(rows * n, inner, vector)[1]
        return _around(_along(rows * n, inner, vector, is_all=False), rows, n, splits)
    splits = levels(1, rows, n * inner, vector)[2]
    return _around(_down(1, rows, n * inner, vector, is_all=False), splits, n, inner)


def _around(first: Sum, outer: int, n: int, inner: int) -> Sum:
    lanes = _lanes(outer * inner)
    sizes, grid = (I64(outer), I64(n), I64(inner), I32(lanes)), (-(-n * lanes // MOST),)

    def around(k: DeviceKernels, ends: DeviceKernels, x: Any, divisor: int) -> Array:
        out = _empty(n, ends.dtype)
        ends.block("add_around", first(k, ends, x, 1), out, *sizes, ends.wide.type(divisor), grid=grid)
        return out

    return around


def levels(outer: int, rows: int, n: int, vector: int) -> tuple[int, int, int, int]:
    """Of columns: (lanes, blocks across them, splits of the rows, rows of a split)."""
    steps = -(-n // (1 if n % vector else vector))
    lanes = min(32, 1 << (steps - 1).bit_length())
    across, most = -(-steps // lanes), max(1, rows * lanes // (4 * MOST))
    splits = min(max(1, _BLOCKS // (across * outer)), most, _PARTS)
    share = -(-rows // splits)
    return lanes, across, -(-rows // share), share


@lru_cache(4096)
def _down(outer: int, rows: int, n: int, vector: int, *, step: int = 0, is_all: bool = True) -> Sum:
    """The sums of columns; of parts of the rows if there are parts, where not `is_all`. step: from row to row."""
    lanes, across, splits, share = levels(outer, rows, n, vector)
    sizes = *map(I64, (rows, n, step or n, splits, share, across)), I32(lanes), I32(vector > 1 and not n % vector)
    own = 32 if splits <= _FEW else 8  # lanes that add parts: as many as lie in one sector, if parts are many
    rest, ends_grid = (I64(outer), I64(splits), I64(n), I32(own)), (-(-outer * n // own),)

    def down(k: DeviceKernels, ends: DeviceKernels, x: Any, divisor: int) -> Array:
        at_once = splits == 1 and is_all and k is ends
        made = _empty(outer * splits * n, k.dtype if at_once else k.wide)
        targets = (None, made) if at_once else (made, None)
        k.block("sum_down", x, *targets, *sizes, k.wide.type(divisor), grid=(across * outer * splits,))
        if at_once or not is_all or (splits == divisor == 1 and k.wide == ends.dtype):
            return made
        out = _empty(outer * n, ends.dtype)
        ends.block("add_down", made, out, *rest, ends.wide.type(divisor), grid=ends_grid)
        return out

    return down


def pieces(rows: int, n: int, vector: int) -> tuple[int, int, int]:
    """Of rows: (lanes, splits of a row, elements of a split)."""
    step = 1 if n % vector else vector
    lanes = _lanes(n // step)
    splits = max(1, min(n // (16 * MOST), -(-_BLOCKS // rows), _PARTS * 4))
    share = -(-n // (splits * lanes * step)) * lanes * step
    return lanes, -(-n // share), share


def _along(rows: int, n: int, vector: int, *, is_all: bool = True) -> Sum:
    """The sums of rows; of parts of them, where not `is_all`."""
    lanes, splits, share = pieces(rows, n, vector)
    sizes = *map(I64, (rows, n, splits, share)), I32(lanes), I32(vector > 1 and not n % vector)
    grid = (-(-rows * splits * lanes // MOST),)
    rest = _around(lambda k, ends, made, divisor: made, 1, rows, splits)

    def along(k: DeviceKernels, ends: DeviceKernels, x: Any, divisor: int) -> Array:
        at_once = splits == 1 and is_all and k is ends
        made = _empty(rows * splits, k.dtype if at_once else k.wide)
        targets = (None, made) if at_once else (made, None)
        k.block("sum_along", x, *targets, *sizes, k.wide.type(divisor), grid=grid)
        return made if at_once or not is_all else rest(k, ends, made, divisor)

    return along


def _lanes(n: int) -> int:
    """Threads along n steps: a power of two, four steps each."""
    return min(MOST, 1 << (max(n // 4, 1).bit_length() - 1))


def _empty(n: int, dtype: Any) -> Array:
    return empty((n,), dtype)


# ---- once


def _proved(dtype: Any) -> DeviceKernels | None:
    k = kernels(dtype, _FILE)
    return k if k is not None and is_right_once("sum", k, lambda: _difference(k)) else None


_SAMPLES = (  # shapes, and dims: several parts and one, by vectors and by elements
    ((3000, 24), (0,)), ((300, 9), (0,)), ((3, 40, 16), (1,)), ((5, 210), (1,)), ((2, 20480), (1,)), ((5, 9), (1,)),
    ((20, 3, 7), (0, 2)), ((3, 5, 520), (0, 2)), ((33, 7), (0, 1)),
)  # fmt: skip


def _difference(k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is. Of whole numbers, whose sum no order changes."""
    for shape, dims in _SAMPLES:
        x = np.round(np.random.default_rng(5).normal(size=shape)).astype(k.dtype)
        made = _sum(k, k, cuda.put(x, cuda.current()), dims)
        expected = np.asarray(OPS["sum"].eager(np, x, dims=dims))
        if made is None or made.shape != expected.shape or cuda.fetch(made).tobytes() != expected.tobytes():
            return "other numbers than the CPU"
    return ""


SUM.fill(run)
