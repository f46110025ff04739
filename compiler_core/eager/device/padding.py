"""Products of 16-bit floats whose rows do not start on 16 bytes, by rows that do: the library has slow kernels alone.

In: two matrices, of which some lie along an odd size (a vocabulary of 50257), and what multiplies matrices. Out: their
product; or None: no size is odd, or the product is too small to be worth the copies. What is padded is zeros, so it
adds nothing. As graph/passes/gpu_products.py has it for compiled code. On an H200 a product of [8192, 768] and
[768, 50257] takes 2.0 ms, half of them the copy of its result, in the place of 6.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.kernels import I64, MOST_ROWS, DeviceKernels, kernels
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda.replay import Address, empty

_ALIGNED = 8  # elements: 16 bytes
_MIN_SIZE = 512  # of a size that is padded: less than a sixty-fourth is added
_MIN_FLOPS = 1 << 31
_PIECE = 4096  # elements of a row that a block copies


def padded_product(a: Array, b: Array, dtype: Any, multiply: Callable[[Array, Array], Array | None]) -> Array | None:
    """a @ b, of that dtype, by `multiply` of matrices whose rows are aligned."""
    odd = _odd_sizes(a, b)
    k, ends = (_proved(dtype) if odd else None for dtype in (a.dtype, dtype))
    if k is None or ends is None:
        return None
    first = _aligned(k, a, ("m" in odd, "k" in odd))
    second = _aligned(k, b, ("k" in odd, "n" in odd))
    made = multiply(first, second)
    if made is None:
        return None
    made = made[: a.shape[0]]
    return made if made.shape[1] == b.shape[1] else _copied(ends, made, len(made), b.shape[1])


def _proved(dtype: Any) -> DeviceKernels | None:
    k = kernels(dtype, "narrow.cu")
    return k if k is not None and is_right_once("padding", k, lambda: _difference(k)) else None


def _odd_sizes(a: Array, b: Array) -> str:
    """Those of "m", "k", "n" along which some matrix lies in memory, its rows not aligned."""
    (m, k), n = a.shape, b.shape[1]
    if 2 * m * k * n < _MIN_FLOPS or a.dtype.itemsize != 2 or max(m, k, n) >= MOST_ROWS:
        return ""
    along = {"m" if _is_turned(a) else "k", "k" if _is_turned(b) else "n", "n"}
    odd = "".join(name for name, size in zip("mkn", (m, k, n)) if name in along and size % _ALIGNED)
    return odd if all(size >= _MIN_SIZE for name, size in zip("mkn", (m, k, n)) if name in odd) else ""


def _is_turned(x: Array) -> bool:
    return x.strides[0] == x.itemsize and x.shape[0] != 1


def _aligned(k: DeviceKernels, x: Array, dims: tuple[bool, bool]) -> Array:
    """x with zeros behind, so that these dims are aligned: of one that is turned, what it turns is padded."""
    if not any(dims):
        return x
    if _is_turned(x):
        return _aligned(k, x.T, dims[::-1]).T
    rows, columns = (n + (-n % _ALIGNED if chosen else 0) for n, chosen in zip(x.shape, dims))
    return _copied(k, x, rows, columns)


def _copied(k: DeviceKernels, x: Array, rows: int, columns: int) -> Array:
    """A dense copy of so many rows and columns: fewer than x has, or more, which are zeros."""
    out = empty((rows, columns), x.dtype)
    given = x if x.strides[1] == x.itemsize else x.copy()
    sizes = map(I64, (min(rows, len(x)), min(columns, x.shape[1]), given.strides[0] // x.itemsize, columns))
    k.block("padded", Address(given.data.ptr), out, *sizes, grid=(rows, min(-(-columns // _PIECE), 1 << 15)))  # type: ignore[attr-defined]
    return out


def _difference(k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    here = np.random.default_rng(5).normal(size=(5, 4101)).astype(k.dtype)
    there = cuda.put(here, cuda.current())
    wide = cuda.fetch(_copied(k, there, 8, 4104))
    back = cuda.fetch(_copied(k, there[:, 3:], 4, 4001))
    right = not wide[5:].any() and not wide[:, 4101:].any() and (wide[:5, :4101] == here).all()
    return "" if right and (back == here[:4, 3:4004]).all() else "other numbers than the CPU"
