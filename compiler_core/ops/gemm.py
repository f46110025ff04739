"""GEMM as a library routine: C = alpha * scale * A @ B + beta * C, batched, f32, f64, c64 or c128, by strides.

Operands: a (*batch, m, k), b (*batch, k, n), and perhaps scale, one element read at run time. Result: c (*batch, m, n).
attrs: real numbers alpha, beta (0: c is not read). Of a matrix's row and column strides one is 1 and the other at least
the length of that direction, as BLAS needs; c's column stride is 1; a batch stride of 0 shares one matrix among the
batch.
The C call is CBLAS's, in loops over the batch axes: with row-major order (code 101) a matrix of unit column stride is
passed as it is (111), one of unit row stride as transposed (112).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from compiler_core.dtype import DType, complex64, complex128, float32, float64
from compiler_core.meta import TensorMeta
from compiler_core.ops.routine import (
    Array,
    Attrs,
    CArray,
    CCall,
    Native,
    Routine,
    Strided,
    register_routine,
)

_SYMBOL: dict[DType, str] = {
    float32: "cblas_sgemm", float64: "cblas_dgemm", complex64: "cblas_cgemm", complex128: "cblas_zgemm",
}  # fmt: skip

_HELPER = """\
template <class T>
static inline void dc_gemm(const void* routine, int ta, int tb, int m, int n, int k, T alpha, const T* a, int lda,
                           const T* b, int ldb, T beta, T* c, int ldc) {
  typedef void (*gemm)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  ((gemm)routine)(101, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
template <class T>
static inline void dc_complex_gemm(const void* routine, int ta, int tb, int m, int n, int k, T alpha, const T* a,
                                   int lda, const T* b, int ldb, T beta, T* c, int ldc) {
  typedef void (*gemm)(int, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*,
                       void*, int);
  ((gemm)routine)(101, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

"""


def _define(out: Array, a: Array, b: Array, *scale: Array, alpha: float, beta: float) -> None:
    factor = out.dtype.type(alpha * (scale[0][()] if scale else 1.0))
    with np.errstate(all="ignore"):
        out[...] = np.matmul(a, b) * factor + (out if beta else 0)


def _accepts(layout: Strided) -> bool:
    if layout.dtype not in _SYMBOL:
        return False
    if not layout.shape:
        return True  # scale
    (rows, columns), (row, col) = layout.shape[-2:], layout.strides[-2:]
    return (col == 1 and row >= columns) or (row == 1 and col >= rows)


def _accepts_result(layout: Strided) -> bool:
    return _accepts(layout) and layout.strides[-1] == 1


def _flops(a: TensorMeta, b: TensorMeta, *scale: TensorMeta, **attrs: Any) -> int:
    return 2 * math.prod(a.shape) * b.shape[-1]


def _symbols(operands: tuple[Strided, ...], attrs: Attrs) -> tuple[str, ...]:
    return (_SYMBOL[operands[0].dtype],)


def _emit(call: CCall) -> Iterator[str]:
    a, b, *scale = call.operands
    c, ctype = call.result, call.result.layout.dtype.ctype
    *batch, m, n = c.layout.shape
    pad = "  "
    for axis, extent in enumerate(batch):
        yield f"{pad}for (int64_t b{axis} = 0; b{axis} < {extent}; ++b{axis})"
        pad += "  "
    (ta, lda), (tb, ldb), (_, ldc) = _order(a.layout), _order(b.layout), _order(c.layout)
    alpha = f"({ctype}){call.attrs['alpha']!r}"
    if scale:
        factor = f"*({scale[0].address})"
        alpha = factor if call.attrs["alpha"] == 1.0 else f"{alpha} * {factor}"
    sizes = f"{m}, {n}, {a.layout.shape[-1]}"
    matrices = f"{alpha}, {_at(a)}, {lda}, {_at(b)}, {ldb}, ({ctype}){call.attrs['beta']!r}, {_at(c)}, {ldc}"
    routine = call.symbol(_SYMBOL[c.layout.dtype])
    function = "dc_complex_gemm" if c.layout.dtype.is_complex else "dc_gemm"
    yield f"{pad}{function}<{ctype}>({routine}, {ta}, {tb}, {sizes}, {matrices});"


def _order(matrix: Strided) -> tuple[int, int]:
    """CBLAS's transposition code and leading dimension; the latter is free where there is one row (or column)."""
    (rows, columns), (row, col) = matrix.shape[-2:], matrix.strides[-2:]
    if col == 1 and (row >= columns or rows == 1):
        return 111, max(row, columns, 1)
    return 112, max(col, rows, 1)


def _at(matrix: CArray) -> str:
    terms = [f"b{axis}*{stride}" for axis, stride in enumerate(matrix.layout.strides[:-2]) if stride]
    return " + ".join([matrix.address, *terms])


GEMM = register_routine(
    Routine(
        "gemm",
        _define,
        native=Native(_symbols, _emit, _HELPER),
        accepts=_accepts,
        accepts_result=_accepts_result,
        reads_result=lambda attrs: bool(attrs["beta"]),
        flops=_flops,
    )
)
