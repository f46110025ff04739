"""Eager definitions of layers on a CUDA device: `linear`, `addmm` where it is one, and a residual's sum.

See rules.py. Products are our calls of cuBLAS (runtime/cuda/eager_product.py), which adds a bias before it rounds;
those of f64, and where it takes none, CuPy's. Under autocast weights come in f32: they are cast
here, once in a region, and their gradients are f32 sums, never rounded to 16 bits. Sums of f32 and 16-bit floats are
one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device.define import Grads, alike, define_there
from compiler_core.eager.device.kernels import DeviceKernels
from compiler_core.eager.device.lowered import with_lowered
from compiler_core.eager.device.narrow import narrowed, widened_sum
from compiler_core.eager.device.orders import as_it_lies, as_seen, lies_last, order_of, row_major
from compiler_core.eager.device.sums import column_sums
from compiler_core.ops.on_device import PRODUCT
from compiler_core.ops.registry import OPS, Array, run_eager
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import replays, replays_backward, spoil

_F32 = np.dtype(np.float32)


@replays
def _linear(k: DeviceKernels, x: Array, weight: Array, bias: Array | None) -> Made:
    if not alike(k, weight, bias) or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    if not (x.size and weight.size):
        return None
    out = _product(k, x.reshape(-1, x.shape[-1]), weight.T, bias)
    return None if out is None else (out.reshape(*x.shape[:-1], weight.shape[0]), ())


def _product(k: DeviceKernels, rows: Array, factor: Array, bias: Array | None) -> Array | None:
    """rows @ factor + bias; None: cuBLAS does not take them."""
    found = _multiplied(rows, factor, *(() if bias is None else (bias,)))
    if found is not None or k.dtype.itemsize == 2:
        return found
    out = _multiply(k, rows, factor)
    if bias is not None:
        spoil()
        out += bias
    return out


@replays
def _affine(k: DeviceKernels, x: Array, weight: Array, bias: Array) -> Made:
    if not alike(k, weight, bias) or bias.shape != weight.shape[1:] or not (x.size and weight.size):
        return None
    out = _product(k, x, weight, bias)
    return None if out is None else (out, ())


@replays_backward
def _affine_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array, bias: Array
) -> Grads | None:
    dx = _multiply(k, g, weight.T) if needs[0] else None
    dw = _multiply(k, x.T, g) if needs[1] else None
    if (needs[0] and dx is None) or (needs[1] and dw is None):
        return None
    return dx, dw, run_eager(OPS["sum"], [g], {"dims": (0,)}) if needs[2] else None


def _multiply(k: DeviceKernels, a: Array, b: Array) -> Array | None:
    """a @ b; None: of 16-bit floats, where cuBLAS does not take them."""
    found = _multiplied(a, b)
    return cuda.module().matmul(a, b) if found is None and k.dtype.itemsize > 2 else found


def _multiplied(*operands: Array, **how: Any) -> Array | None:
    """The product of two matrices, and perhaps a bias, by cuBLAS, rounded once; None: it does not take them.

    result: its dtype, if it is f32.
    """
    found: Array | None = PRODUCT.get()(cuda.module(), OPS["matmul"], operands, how)
    return found


@replays_backward
def _linear_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array, bias: Array | None) -> Grads | None:  # fmt: skip  # noqa: E501
    rows = g.reshape(-1, g.shape[-1])
    dx = _multiply(k, rows, weight) if needs[0] else None
    dw = _multiply(k, rows.T, x.reshape(-1, x.shape[-1])) if needs[1] else None
    if (needs[0] and dx is None) or (needs[1] and dw is None):
        return None
    db = run_eager(OPS["sum"], [rows], {"dims": (0,)}) if needs[2] else None
    return None if dx is None else dx.reshape(x.shape), dw, db


def _in_rows(g: Array) -> Array:
    """g, if it is rows that lie as far from each other, on 16 bytes, as those of one of several heads; else dense."""
    return g if g.flags.c_contiguous or _are_rows(g.shape, g.strides, g.itemsize) else row_major(g)


@lru_cache(maxsize=1024)
def _are_rows(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if len(shape) < 2 or strides[-1] != itemsize or strides[-2] < shape[-1] * itemsize or strides[-2] % 16:
        return False
    return all(strides[d] == strides[d + 1] * shape[d + 1] for d in range(len(shape) - 2))


# ---- weights in f32


def _cast(weight: Array, dtype: Any) -> Array:
    made = narrowed(weight, dtype)
    return run_eager(OPS["cast"], [weight], {"dtype": of(dtype)}) if made is None else made


def _sums(rows: Array) -> Array:
    """Of the columns, in f32."""
    made = column_sums(rows)
    found: Array = run_eager(OPS["sum"], [rows], {"dims": (0,)}).astype(_F32) if made is None else made
    return found


@replays_backward
def _lowered_linear_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array, bias: Array | None) -> Grads | None:  # fmt: skip  # noqa: E501
    rows = g.reshape(-1, g.shape[-1])
    dx = _multiplied(rows, kept[0]) if needs[0] else None
    dw = _multiplied(rows.T, x.reshape(-1, x.shape[-1]), result=_F32) if needs[1] else None
    if (needs[0] and dx is None) or (needs[1] and dw is None):
        return None
    db = _sums(rows) if needs[2] else None
    return None if dx is None else dx.reshape(x.shape), dw, db


@replays_backward
def _lowered_affine_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array, bias: Array
) -> Grads | None:
    dx = _multiplied(g, kept[0].T) if needs[0] else None
    dw = _multiplied(x.T, g, result=_F32) if needs[1] else None
    if (needs[0] and dx is None) or (needs[1] and dw is None):
        return None
    return dx, dw, _sums(g) if needs[2] else None


# ---- sums


@replays
def _widened_sum(k: DeviceKernels, a: Array, b: Array) -> Made:
    wide, narrow = (a, b) if a.dtype == _F32 else (b, a)
    if wide.dtype != _F32 or narrow.dtype.itemsize != 2 or a.shape != b.shape or not a.size:
        return None
    order = order_of(wide if wide.flags.c_contiguous and not lies_last(narrow) else narrow) or tuple(range(a.ndim))
    made = widened_sum(as_it_lies(wide, order), as_it_lies(narrow, order))
    return None if made is None else (as_seen(made, order), ())


@replays_backward
def _widened_sum_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, a: Array, b: Array) -> Grads:  # fmt: skip  # noqa: E501
    both = zip(needs, (a.dtype, b.dtype))
    return [
        None if not need else g if dtype == _F32 else run_eager(OPS["cast"], [g], {"dtype": of(dtype)})
        for need, dtype in both
    ]


def define_products() -> None:
    """Define them all."""
    define_there("linear", _linear, _linear_backward, reads=(0, 1), arrange=_in_rows)
    lowered = with_lowered(_linear, _cast, 2)
    define_there("lowered_linear", lowered, _lowered_linear_backward, reads=(0,), arrange=_in_rows)
    define_there("affine", _affine, _affine_backward, reads=(0, 1))
    define_there("lowered_affine", with_lowered(_affine, _cast, 2), _lowered_affine_backward, reads=(0,))
    define_there("widened_sum", _widened_sum, _widened_sum_backward, reads=(), arrange=None)
