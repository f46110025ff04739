"""Matrix products of eager code on a CUDA device by cuBLAS: 16-bit floats as they are, summed in f32, rounded once.

In: the op `matmul`, CuPy's arrays in any strides, (*batch, M, K) and (*batch, K, N); of two matrices perhaps a bias
(N,) as well, which cuBLASLt adds before it rounds; perhaps the dtype of the result: f32. Out: an array, or None where
the arrays are of another dtype (CuPy's own product is cuBLAS's, too) or empty, and on a stand-in without cuBLAS: the
op's definition is then run, which multiplies 16-bit floats as f32, without a GPU's matrix units; with a bias also where
cuBLASLt has no algorithm, or where something does not lie on 16 bytes.
A matrix without a unit stride is copied; of several batch axes that do not lie as one, the longest is cuBLAS's, the
others are calls. Asked for by name (ops/on_device.py: DEFINITIONS).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import bfloat16, float16, of
from compiler_core.errors import DeviceError
from compiler_core.ops.linear_algebra.blas_layout import order
from compiler_core.ops.linear_algebra.gemm_cuda import INT32_MAX, TYPES, product_of
from compiler_core.ops.on_device import PRODUCT
from compiler_core.ops.routine import Strided
from compiler_core.runtime.cuda import context, driver, products
from compiler_core.runtime.cuda.entry import WORKSPACE_NBYTES

Array = Any
_NARROW = (bfloat16, float16)
_BY_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
_ALIGNED, _POINTER = 16, ctypes.c_size_t(8)  # bytes
_ONE, _ZERO = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """matmul(*operands) on the current device."""
    a, b, *bias = operands
    if of(a.dtype) not in _NARROW or not (a.size and b.size) or not _has_cublas():
        return None
    if max(math.prod(a.shape[:-2]), *a.shape[-2:], *b.shape[-2:]) > INT32_MAX:
        return None
    out = xp.empty((*a.shape[:-1], b.shape[-1]), attrs.get("result", a.dtype))
    matrices = [_readable(xp, a), _readable(xp, b), out]  # held until the calls are made: some may be copies
    if bias:
        return out if _multiply_and_add(matrices, bias[0]) else None
    layouts = [_together(x) for x in matrices]
    if len({len(layout.shape) for layout in layouts}) > 1:  # the batches of some lie as one, those of others not
        layouts = [_strided(x) for x in matrices]
    _multiply([x.data.ptr for x in matrices], layouts)
    return out


def _has_cublas() -> bool:
    try:
        driver.function("cublasGemmEx")
    except DeviceError:
        return False
    return True


# ---- how arrays lie


def _strided(x: Array) -> Strided:
    return Strided(of(x.dtype), x.shape, tuple(stride // x.itemsize for stride in x.strides))


def _readable(xp: Any, x: Array) -> Array:
    """`x`, or a copy of it where cuBLAS cannot be told how its matrices lie."""
    layout = _strided(x)
    (rows, columns), (row, column) = layout.shape[-2:], layout.strides[-2:]
    by_rows = column == 1 and (row >= columns or rows == 1)
    by_columns = row == 1 and (column >= rows or columns == 1)
    lies = (by_rows or by_columns) and min(layout.strides) >= 0 and max(row, column) <= INT32_MAX
    return x if lies else xp.ascontiguousarray(x)


def _together(x: Array) -> Strided:
    """Its layout, its batch axes as one if they lie so."""
    layout = _strided(x)
    lead = [(n, stride) for n, stride in zip(layout.shape[:-2], layout.strides[:-2]) if n != 1]
    if all(outer == n * stride for (_, outer), (n, stride) in pairwise(lead)):
        batch = math.prod(n for n, _ in lead)
        stride = lead[-1][1] if lead else 0
        layout = Strided(layout.dtype, (batch, *layout.shape[-2:]), (stride, *layout.strides[-2:]))
    return layout


# ---- the call


def _multiply(addresses: list[int], layouts: list[Strided]) -> None:
    """C = A B, of all matrices of the batch. Row-major: cuBLAS is told of C' = B' A'."""
    a, b, c = layouts
    lead = c.shape[:-2]
    own = max(range(len(lead)), key=lead.__getitem__)  # the longest axis is cuBLAS's
    others = [1 if axis == own else n for axis, n in enumerate(lead)]
    code, compute, _ = TYPES[a.dtype]
    (turned_a, ld_a), (turned_b, ld_b), (_, ld_c) = order(a), order(b), order(c)
    handle = context.eager_blas_handle()
    n, m, k, count = c.shape[-1], c.shape[-2], a.shape[-1], lead[own]
    for place in np.ndindex(*others):
        at_a, at_b, at_c = (
            ctypes.c_void_p(address + layout.dtype.itemsize * sum(p * s for p, s in zip(place, layout.strides)))
            for address, layout in zip(addresses, layouts)
        )
        driver.call(
            "cublasGemmStridedBatchedEx",
            *(ctypes.c_void_p(handle), int(turned_b == 112), int(turned_a == 112), n, m, k, _ONE),
            *(at_b, code, ld_b, ctypes.c_longlong(b.strides[own])),
            *(at_a, code, ld_a, ctypes.c_longlong(a.strides[own]), _ZERO),
            *(at_c, TYPES[c.dtype][0], ld_c, ctypes.c_longlong(c.strides[own]), count, compute, _BY_DEFAULT),
        )


def _multiply_and_add(matrices: list[Array], bias: Array) -> bool:
    """C = A B + bias, of matrices; whether cuBLASLt does it."""
    if any(x.data.ptr % _ALIGNED for x in (*matrices, bias)) or not bias.flags.c_contiguous:
        return False
    layouts = [_strided(x) for x in matrices]
    product = product_of((*layouts[:2], _strided(bias)), layouts[2], {})
    device, stream = cuda.current(), context.cupy().cuda.get_current_stream().ptr
    if product is None or any(ld * 2 % _ALIGNED for ld in (product.lda, product.ldb, product.ldd)):
        return False
    row = products.row_of(product, device)
    if not row.description:
        return False
    address = ctypes.c_void_p(bias.data.ptr)
    description = ctypes.c_void_p(row.description)
    driver.call("cublasLtMatmulDescSetAttribute", description, products.BIAS_POINTER, ctypes.byref(address), _POINTER)
    with context.nested_arena():  # a program that calls an op back has an arena of its own
        workspace = context.arena(WORKSPACE_NBYTES, device, stream)
        a, b, c = (ctypes.c_void_p(x.data.ptr) for x in matrices)
        driver.call(
            "cublasLtMatmul",
            *(ctypes.c_void_p(context.eager_blas_handle()), description, _ONE),
            *(b, ctypes.c_void_p(row.a), a, ctypes.c_void_p(row.b), _ZERO),
            *(c, ctypes.c_void_p(row.d), c, ctypes.c_void_p(row.d)),
            *(ctypes.byref(row, products.Row.algorithm.offset), ctypes.c_void_p(workspace.data.ptr)),
            *(ctypes.c_size_t(WORKSPACE_NBYTES), ctypes.c_void_p(stream)),
        )
    return True


PRODUCT.fill(run)
