"""GEMM as a library routine: C = alpha * scale * A @ B + beta * C, batched, f32, f64, c64 or c128, by strides.

On a CUDA device also f16 and bf16, summed in f32, whose C may be f32 too; on a CPU that multiplies it bf16
(gemm_bf16.py).
Operands: a (*batch, m, k), b (*batch, k, n), and perhaps scale, one element read at run time, of C's dtype; on a CUDA
device perhaps bias (n,), of C's dtype, added to each row. Result: c (*batch, m, n).
attrs: real numbers alpha, beta (0: c is not read). Of a matrix's row and column strides one is 1 and the other at least
the length of that direction, as BLAS needs; c's column stride is 1; a batch stride of 0 shares one matrix among the
batch.
The C call is CBLAS's, in loops over the batch axes, and stays in the thread that calls it; big products, and batches,
are shared out among the pool's threads (runtime/pool.py). A real product with a vector is its gemv: 5 to 10 times as
fast as a gemm of one row or column. In row-major order (code 101) a matrix of unit column stride
is passed as it is (111), one of unit row stride as transposed (112).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from compiler_core.dtype import DType, bfloat16, complex64, complex128, float16, float32, float64
from compiler_core.meta import TensorMeta
from compiler_core.ops.linear_algebra.blas_layout import order
from compiler_core.ops.linear_algebra.gemm_bf16 import BF16_GEMM
from compiler_core.ops.linear_algebra.gemm_cuda import CUBLAS_GEMM
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
_VECTOR: dict[DType, str] = {float32: "cblas_sgemv", float64: "cblas_dgemv"}
_HALVES = (float16, bfloat16)

# A part that a thread computes of a product has at least so many multiplications and additions (about 20 microseconds
# of one core; below, OpenBLAS has kernels of another order), and is a multiple of so many rows or columns, whole tiles
# of its blocking, to which the last part adds what is left: thus the bits do not depend on the number of threads.
# Without AVX-512, and for columns of f64, its tiles are larger. Without AVX-512 the columns of f32 are in blocks that
# depend on how many there are: there only rows are shared out. Seen of OpenBLAS 0.3.34 on random sizes, by core type,
# which OpenBLAS is asked for: OPENBLAS_CORETYPE may name kernels without AVX-512 on a CPU that has it.
_PART = 1 << 20
_TILES, _LARGE_TILES = 48, 192
# Of a product of a transposed matrix of f32 and a vector the bits do: it has one part, and beyond so many elements, of
# which a thread's share by gemm is sooner done, it is a gemm.
_ONE_PART = 1 << 24
_SHARES = 2  # parts of a product for every thread; each of them packs the other matrix anew

_HELPER = (
    """\
extern "C" int dladdr(const void*, void*);
extern "C" void* dlopen(const char*, int);
extern "C" void* dlsym(void*, const char*);
// Whether the OpenBLAS that `routine` belongs to computes with AVX-512; not of another library.
static bool dc_asked_for_avx512(const void* routine) {
  struct { const char* file; void *base; const char* name; void* at; } found = {};
  void* const library = dladdr(routine, &found) && found.file ? dlopen(found.file, 1) : nullptr;
  typedef const char* (*get)();
  const get core = library ? (get)dlsym(library, "scipy_openblas_get_corename") : nullptr;
  const char* const name = core ? core() : "";
  static const char* const cores[] = {"SkylakeX", "Cooperlake", "Sapphirerapids"};
  for (const char* wide : cores)
    if (!__builtin_strcmp(name, wide)) return true;
  return false;
}
static int dc_avx512 = -1;  // not asked yet
template <class T>  // not inline: a program may have hundreds of products, and each would be compiled anew
__attribute__((noinline)) static void dc_gemm(const void* routine, int ta, int tb, int m, int n, int k, T alpha,
                                              const T* a, int lda, const T* b, int ldb, T beta, T* c, int ldc) {
  typedef void (*gemm)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  if ((double)m * n * k <= DC_PART)  // one part, without a division
    return ((gemm)routine)(101, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (dc_avx512 < 0) dc_avx512 = dc_asked_for_avx512(routine);
  const bool by_rows = m >= n || (sizeof(T) == 4 && !dc_avx512);
  const int64_t slice = (int64_t)(by_rows ? n : m) * k;  // one row or column
  const int64_t tiles = dc_avx512 && (by_rows || sizeof(T) == 4) ? DC_TILES : DC_LARGE_TILES;
  const int64_t least = (DC_PART / (slice ? slice : 1) / tiles + 1) * tiles, all = by_rows ? m : n;
  const int64_t parts = all / least ? all / least : 1;
  dc_parallel(parts, 1, [&](int64_t first, int64_t last) {
    const int64_t from = first * least, count = (last == parts ? all : last * least) - from;
    if (by_rows)
      ((gemm)routine)(101, ta, tb, count, n, k, alpha, a + from * (ta == 111 ? lda : 1), lda, b, ldb, beta,
                      c + from * ldc, ldc);
    else
      ((gemm)routine)(101, ta, tb, m, count, k, alpha, a, lda, b + from * (tb == 111 ? 1 : ldb), ldb, beta, c + from,
                      ldc);
  }, DC_SHARES);
}
template <class T>  // rows, columns: of what is stored; outputs are rows, or (ta 112) columns
__attribute__((noinline)) static void dc_gemv(const void* routine, int ta, int rows, int columns, T alpha, const T* a,
                                              int lda, const T* x, int incx, T beta, T* y, int incy) {
  typedef void (*gemv)(int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  const bool by_rows = ta == 111;
  if ((double)rows * columns <= DC_PART || (!by_rows && sizeof(T) == 4))
    return ((gemv)routine)(101, ta, rows, columns, alpha, a, lda, x, incx, beta, y, incy);
  const int64_t all = by_rows ? rows : columns, each = by_rows ? columns : rows;
  const int64_t least = (DC_PART / each / DC_LARGE_TILES + 1) * DC_LARGE_TILES;
  const int64_t parts = all / least ? all / least : 1;
  dc_parallel(parts, 1, [&](int64_t first, int64_t last) {
    const int64_t from = first * least, count = (last == parts ? all : last * least) - from;
    ((gemv)routine)(101, ta, by_rows ? count : rows, by_rows ? columns : count, alpha, a + from * (by_rows ? lda : 1),
                    lda, x, incx, beta, y + from * incy, incy);
  }, DC_SHARES);
}
template <class T>
static inline void dc_complex_gemm(const void* routine, int ta, int tb, int m, int n, int k, T alpha, const T* a,
                                   int lda, const T* b, int ldb, T beta, T* c, int ldc) {
  typedef void (*gemm)(int, int, int, int, int, int, const void*, const void*, int, const void*, int, const void*,
                       void*, int);
  ((gemm)routine)(101, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

""".replace("DC_PART", str(_PART))
    .replace("DC_LARGE_TILES", str(_LARGE_TILES))
    .replace("DC_TILES", str(_TILES))
    .replace("DC_SHARES", str(_SHARES))
)


def _define(out: Array, a: Array, b: Array, *others: Array, alpha: float, beta: float) -> None:
    scale, bias = [x for x in others if not x.ndim], [x for x in others if x.ndim]
    if a.dtype.itemsize <= 2:
        a, b = a.astype(np.float32), b.astype(np.float32)
    factor = (alpha * scale[0]).astype(a.dtype) if scale else a.dtype.type(alpha)
    with np.errstate(all="ignore"):
        made = np.matmul(a, b) * factor + (out if beta else 0)
        out[...] = (made + bias[0].astype(a.dtype) if bias else made).astype(out.dtype)


def _accepts(layout: Strided) -> bool:
    if layout.dtype not in _SYMBOL and layout.dtype not in _HALVES:
        return False
    if len(layout.shape) < 2:
        return layout.strides in ((), (1,))  # scale, bias
    (rows, columns), (row, col) = layout.shape[-2:], layout.strides[-2:]
    return (col == 1 and row >= columns) or (row == 1 and col >= rows)


def _accepts_result(layout: Strided) -> bool:
    return _accepts(layout) and layout.strides[-1] == 1


def _flops(a: TensorMeta, b: TensorMeta, *scale: TensorMeta, **attrs: Any) -> int:
    return 2 * math.prod(a.shape) * b.shape[-1]


def _symbols(operands: tuple[Strided, ...], attrs: Attrs) -> tuple[str, ...]:
    a, b, *_ = operands
    return (_VECTOR[a.dtype] if _is_of_vector(a, b) else _SYMBOL[a.dtype],)


def _is_of_vector(a: Strided, b: Strided) -> bool:
    """Whether a gemv computes it."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    if a.dtype not in _VECTOR or k == 1 or (m != 1 and n != 1):
        return False
    by_rows = order(a)[0] == 111 if n == 1 else order(b)[0] == 112
    return by_rows or a.dtype is float64 or max(m, n) * k < _ONE_PART


def _emit(call: CCall) -> Iterator[str]:
    a, b, *scale = call.operands
    c, ctype = call.result, call.result.layout.dtype.ctype
    *batch, m, n = c.layout.shape
    pad = "  "
    work = math.prod((*batch, m, n, a.layout.shape[-1]))
    shared = math.prod(batch) > 1 and work >= _PART
    if shared:
        yield f"{pad}dc_parallel({math.prod(batch)}, 1, [&](int64_t dc_from, int64_t dc_to) {{"
        yield f"{pad}  for (int64_t dc_at = dc_from; dc_at < dc_to; ++dc_at) {{"
        pad += "    "
        for axis, extent in enumerate(batch):
            yield f"{pad}const int64_t b{axis} = dc_at / {math.prod(batch[axis + 1 :])} % {extent};"
    else:
        for axis, extent in enumerate(batch):
            yield f"{pad}for (int64_t b{axis} = 0; b{axis} < {extent}; ++b{axis})"
            pad += "  "
    (ta, lda), (tb, ldb), (_, ldc) = order(a.layout), order(b.layout), order(c.layout)
    alpha = f"({ctype}){call.attrs['alpha']!r}"
    if scale:
        factor = f"*({scale[0].address})"
        alpha = factor if call.attrs["alpha"] == 1.0 else f"{alpha} * {factor}"
    k, beta = a.layout.shape[-1], f"({ctype}){call.attrs['beta']!r}"
    (symbol,) = _symbols((a.layout, b.layout), call.attrs)
    routine = call.symbol(symbol)
    if _is_of_vector(a.layout, b.layout):
        of_a = n == 1  # y = a b, or y' = b' a'
        code, ld, matrix, x = (ta, lda, a, b.layout.strides[-2]) if of_a else (223 - tb, ldb, b, a.layout.strides[-1])
        stored = (m if of_a else n, k) if code == 111 else (k, m if of_a else n)
        vector, step = (b, c.layout.strides[-2]) if of_a else (a, 1)
        yield f"{pad}dc_gemv<{ctype}>({routine}, {code}, {stored[0]}, {stored[1]}, {alpha}, {_at(matrix)}, {ld},"
        yield f"{pad}  {_at(vector)}, {x}, {beta}, {_at(c)}, {step});"
    else:
        matrices = f"{alpha}, {_at(a)}, {lda}, {_at(b)}, {ldb}, {beta}, {_at(c)}, {ldc}"
        function = "dc_complex_gemm" if c.layout.dtype.is_complex else "dc_gemm"
        yield f"{pad}{function}<{ctype}>({routine}, {ta}, {tb}, {m}, {n}, {k}, {matrices});"
    if shared:
        yield "    }"
        yield "  });"


def _at(matrix: CArray) -> str:
    terms = [f"b{axis}*{stride}" for axis, stride in enumerate(matrix.layout.strides[:-2]) if stride]
    return " + ".join([matrix.address, *terms])


GEMM = register_routine(
    Routine(
        "gemm",
        _define,
        native=Native(_symbols, _emit, _HELPER),
        native_half=BF16_GEMM,
        cuda=CUBLAS_GEMM,
        accepts=_accepts,
        accepts_result=_accepts_result,
        reads_result=lambda attrs: bool(attrs["beta"]),
        flops=_flops,
    )
)
