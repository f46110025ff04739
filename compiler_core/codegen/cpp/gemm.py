"""GEMM calls of a program as C++ calls of the BLAS whose addresses the entry function is given.

In: a `LibraryCall`: (batched) matrices as strides. Out: lines that call `dc_gemm`, in loops over the batch axes.
CBLAS, row-major: a matrix with unit column stride is passed as it is, one with unit row stride as transposed.
The place of a routine in `lib` is that in `runtime/blas.py:ROUTINES`.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler_core.codegen.cpp.types import float_literal
from compiler_core.dtype import DType, float32, float64
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.ir import LibraryCall, Matrix
from compiler_core.runtime.blas import ROUTINES

_ROUTINE: dict[DType, str] = {float32: "sgemm", float64: "dgemm"}

# C = alpha A B + beta C with CBLAS's row-major order (101) and its codes 111, 112 for "as it is" and "transposed"
GEMM_HELPER = """\
template <class T>
static inline void dc_gemm(const void* routine, int ta, int tb, int m, int n, int k, T alpha, const T* a, int lda,
                           const T* b, int ldb, T beta, T* c, int ldc) {
  typedef void (*gemm)(int, int, int, int, int, int, T, const T*, int, const T*, int, T, T*, int);
  ((gemm)routine)(101, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

"""


def gemm_call(call: LibraryCall) -> Iterator[str]:
    """The lines that do `call`."""
    if call.dtype not in _ROUTINE:
        raise LoweringError(f"no GEMM routine for {call.dtype}", expected=", ".join(d.name for d in _ROUTINE))
    pad = "  "
    for axis, extent in enumerate(call.batch):
        yield f"{pad}for (int64_t b{axis} = 0; b{axis} < {extent}; ++b{axis})"
        pad += "  "
    ta, lda = _layout(call.a, call.m, call.k)
    tb, ldb = _layout(call.b, call.k, call.n)
    _, ldc = _layout(call.c, call.m, call.n)
    alpha = float_literal(call.alpha, call.dtype)
    if call.scale is not None:
        factor = f"{call.scale.buffer}[{call.scale.offset}]"
        alpha = factor if call.alpha == 1.0 else f"{alpha} * {factor}"
    routine = f"lib[{ROUTINES.index(_ROUTINE[call.dtype])}]"
    a, b, c = (_address(matrix, len(call.batch)) for matrix in (call.a, call.b, call.c))
    sizes = f"{call.m}, {call.n}, {call.k}"
    beta = float_literal(call.beta, call.dtype)
    matrices = f"{alpha}, {a}, {lda}, {b}, {ldb}, {beta}, {c}, {ldc}"
    yield f"{pad}dc_gemm<{call.dtype.ctype}>({routine}, {ta}, {tb}, {sizes}, {matrices});"


def _layout(matrix: Matrix, rows: int, columns: int) -> tuple[int, int]:
    """CBLAS's transposition code and leading dimension; the latter is free where there is one row (or column)."""
    if matrix.col_stride == 1 and (matrix.row_stride >= columns or rows == 1):
        return 111, max(matrix.row_stride, columns, 1)
    return 112, max(matrix.col_stride, rows, 1)


def _address(matrix: Matrix, batch_rank: int) -> str:
    terms = [f"b{axis}*{stride}" for axis, stride in enumerate(matrix.batch_strides[:batch_rank]) if stride]
    offset = [str(matrix.slot.offset)] if matrix.slot.offset else []
    return " + ".join([matrix.slot.buffer, *offset, *terms])
