"""Matrix products of eager code on a CUDA device by cuBLAS: 16-bit floats as they are, summed in f32, rounded once;
f32, in tf32 where the process permits that at the time of the call.

In: the op `matmul`, CuPy's arrays in any strides, (*batch, M, K) and (*batch, K, N); of two matrices perhaps a bias
(N,) as well, which cuBLASLt adds before it rounds; perhaps the dtype of the result: f32. Out: an array, or None where
the arrays are of another dtype (CuPy's own product is cuBLAS's, too) or empty, and on a stand-in without cuBLAS: the
op's definition is then run, which multiplies 16-bit floats as f32, without a GPU's matrix units, and f32 never in tf32;
with a bias also where cuBLASLt has no algorithm, or where something does not lie on 16 bytes.
A matrix without a unit stride is copied; of several batch axes that do not lie as one, the longest is cuBLAS's, the
others are calls. What is done is planned once for arrays that lie alike. Asked for by name (ops/on_device.py:
DEFINITIONS).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import DType, bfloat16, float16, float32, of
from compiler_core.eager.device.moves import copied
from compiler_core.eager.device.padding import padded_product
from compiler_core.errors import DeviceError
from compiler_core.ops.aliasing import contiguous_strides
from compiler_core.ops.linear_algebra.blas_layout import order
from compiler_core.ops.linear_algebra.gemm_cuda import INT32_MAX, TYPES, product_of
from compiler_core.ops.linear_algebra.gemm_product import Product
from compiler_core.ops.on_device import PRODUCT
from compiler_core.ops.routine import Strided
from compiler_core.runtime.cuda import context, driver, products
from compiler_core.runtime.cuda.entry import WORKSPACE_NBYTES
from compiler_core.runtime.cuda.replay import Address, Known, Workspace, empty, library, replayed

Array = Any
_TAKEN = (bfloat16, float16, float32)
_BY_DEFAULT = -1  # CUBLAS_GEMM_DEFAULT
_ALIGNED, _POINTER = 16, ctypes.c_size_t(8)  # bytes
_ONE, _ZERO = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))


class Plan(NamedTuple):
    """How operands of one layout are multiplied. copied: which of both must be copied first. shape: the result's.

    product: with a bias, what cuBLASLt is asked for. offsets: else where the matrices of each call begin, in bytes from
    the beginnings of A, B and C; between: a call's other arguments, around the addresses of B, A and C.
    """

    copied: tuple[bool, bool]
    shape: tuple[int, ...]
    product: Product | None
    offsets: tuple[tuple[int, int, int], ...]
    between: tuple[tuple[Any, ...], ...]


_CACHE_LIMIT = 1 << 12
_plans: dict[tuple[Any, ...], Plan | None] = {}  # by the layouts
_known: Known = {}


def run(xp: Any, op: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """matmul(*operands) on the current device."""
    found: Array | None = replayed(
        _known, (attrs.get("result"),), operands, lambda *operands: _run(xp, operands, attrs)
    )
    return found


def _run(xp: Any, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    a, b, *bias = operands
    dtype = attrs.get("result", a.dtype)
    if not bias and a.ndim == b.ndim == 2 and attrs.get("padded", True) and _has_cublas():
        found = padded_product(a, b, dtype, lambda first, second: _run(xp, (first, second), {**attrs, "padded": False}))
        if found is not None:
            return found
    kinds = (a.dtype, dtype, cuda.precision.tf32)
    key = (*kinds, a.shape, a.strides, b.shape, b.strides, *[(x.dtype, x.shape) for x in bias])
    if key not in _plans:
        if len(_plans) >= _CACHE_LIMIT:
            _plans.clear()
        _plans[key] = _planned(a, b, bias, dtype)
    plan = _plans[key]
    if plan is None or not _has_cublas():
        return None
    out = empty(plan.shape, dtype)
    matrices: list[Any] = [copied(x) if is_copied else x for x, is_copied in zip((a, b), plan.copied)]
    matrices.append(out)  # held until the calls are made: some may be copies
    if bias:
        return out if _multiply_and_add(plan.product, matrices, bias[0]) else None
    _multiply(plan, [x.data.ptr for x in matrices])
    return out


def _has_cublas() -> bool:
    try:
        driver.function("cublasGemmEx")
    except DeviceError:
        return False
    return True


# ---- how arrays lie


def _planned(a: Array, b: Array, bias: list[Array], dtype: Any) -> Plan | None:
    """What is done with arrays that lie like these; None: nothing."""
    if of(a.dtype) not in _TAKEN or not (a.size and b.size):
        return None
    if max(math.prod(a.shape[:-2]), *a.shape[-2:], *b.shape[-2:]) > INT32_MAX:
        return None
    shape = (*a.shape[:-1], b.shape[-1])
    result = Strided(of(dtype), shape, contiguous_strides(shape))
    (first, copies_a), (second, copies_b) = _readable(_strided(a)), _readable(_strided(b))
    copied, layouts = (copies_a, copies_b), [first, second, result]
    if bias:
        product = product_of((first, second, _strided(bias[0])), result, {})
        if product is not None and any(ld * a.itemsize % _ALIGNED for ld in (product.lda, product.ldb, product.ldd)):
            product = None
        return Plan(copied, shape, product, (), ())
    together = [_together(x) for x in layouts]
    if len({len(layout.shape) for layout in together}) == 1:  # else the batches of some lie as one, of others not
        layouts = together
    return Plan(copied, shape, None, *_calls(layouts))


def _strided(x: Array) -> Strided:
    return Strided(of(x.dtype), x.shape, tuple(stride // x.itemsize for stride in x.strides))


def _readable(layout: Strided) -> tuple[Strided, bool]:
    """The layout, or that of a copy where cuBLAS cannot be told how its matrices lie; whether it is that."""
    (rows, columns), (row, column) = layout.shape[-2:], layout.strides[-2:]
    by_rows = column == 1 and (row >= columns or rows == 1)
    by_columns = row == 1 and (column >= rows or columns == 1)
    lies = (by_rows or by_columns) and min(layout.strides) >= 0 and max(row, column) <= INT32_MAX
    return (layout if lies else replace(layout, strides=contiguous_strides(layout.shape))), not lies


def _together(layout: Strided) -> Strided:
    """The layout, its batch axes as one if they lie so."""
    lead = [(n, stride) for n, stride in zip(layout.shape[:-2], layout.strides[:-2]) if n != 1]
    if all(outer == n * stride for (_, outer), (n, stride) in pairwise(lead)):
        batch = math.prod(n for n, _ in lead)
        stride = lead[-1][1] if lead else 0
        layout = Strided(layout.dtype, (batch, *layout.shape[-2:]), (stride, *layout.strides[-2:]))
    return layout


def _calls(layouts: list[Strided]) -> tuple[tuple[tuple[int, int, int], ...], tuple[tuple[Any, ...], ...]]:
    """(offsets, between) of C = A B, of all matrices of the batch. Row-major: cuBLAS is told of C' = B' A'."""
    a, b, c = layouts
    lead = c.shape[:-2]
    own = max(range(len(lead)), key=lead.__getitem__)  # the longest axis is cuBLAS's
    others = [1 if axis == own else n for axis, n in enumerate(lead)]
    code, _, _ = TYPES[a.dtype]
    (turned_a, ld_a), (turned_b, ld_b), (_, ld_c) = order(a), order(b), order(c)
    n, m, k, count = c.shape[-1], c.shape[-2], a.shape[-1], lead[own]
    offsets = tuple(
        tuple(x.dtype.itemsize * sum(p * s for p, s in zip(place, x.strides)) for x in layouts)
        for place in np.ndindex(*others)
    )
    between = (
        (int(turned_b == 112), int(turned_a == 112), n, m, k, _ONE),
        (code, ld_b, ctypes.c_longlong(b.strides[own])),
        (code, ld_a, ctypes.c_longlong(a.strides[own]), _ZERO),
        (TYPES[c.dtype][0], ld_c, ctypes.c_longlong(c.strides[own]), count, _compute(a.dtype), _BY_DEFAULT),
    )
    return offsets, between


def _compute(dtype: DType) -> int:
    """How products of such are computed: cublasComputeType_t."""
    return products.TF32 if dtype is float32 and cuda.precision.tf32 else TYPES[dtype][1]


# ---- the call


def _multiply(plan: Plan, addresses: list[int]) -> None:
    """C = A B, of matrices that begin at these addresses."""
    handle = ctypes.c_void_p(context.eager_blas_handle())
    first, behind_b, behind_a, behind_c = plan.between
    for offsets in plan.offsets:
        at_a, at_b, at_c = [Address(address + offset) for address, offset in zip(addresses, offsets)]
        library("cublasGemmStridedBatchedEx", handle, *first, at_b, *behind_b, at_a, *behind_a, at_c, *behind_c)


def _multiply_and_add(product: Product | None, matrices: list[Array], bias: Array) -> bool:
    """C = A B + bias, of matrices; whether cuBLASLt does it."""
    if product is None or any(x.data.ptr % _ALIGNED for x in (*matrices, bias)) or not bias.flags.c_contiguous:
        return False
    device, stream = cuda.current(), context.cupy().cuda.get_current_stream().ptr
    row = products.row_of(product, device, _compute(of(bias.dtype)))
    if not row.description:
        return False
    address, description = Address(bias.data.ptr, by_reference=True), ctypes.c_void_p(row.description)
    library("cublasLtMatmulDescSetAttribute", description, products.BIAS_POINTER, address, _POINTER)
    a, b, c = (Address(x.data.ptr) for x in matrices)
    library(
        "cublasLtMatmul",
        *(ctypes.c_void_p(context.eager_blas_handle()), description, _ONE),
        *(b, ctypes.c_void_p(row.a), a, ctypes.c_void_p(row.b), _ZERO),
        *(c, ctypes.c_void_p(row.d), c, ctypes.c_void_p(row.d)),
        *(ctypes.byref(row, products.Row.algorithm.offset), Workspace(context.eager_workspace())),
        *(ctypes.c_size_t(WORKSPACE_NBYTES), ctypes.c_void_p(stream)),
    )
    return True


PRODUCT.fill(run)
