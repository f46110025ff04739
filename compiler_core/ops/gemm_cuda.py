"""GEMM on a CUDA device: cuBLAS, by strides. f32, f64, f16, bf16, c64, c128; 16-bit floats are summed in f32.

In: the operands of ops/gemm.py. Out: the C++ of one call. cuBLAS is column-major: a row-major C = A B is its C' = B'A',
so the operands change places, a matrix of unit column stride is passed as it is, one of unit row stride as transposed.
One batch axis, the longest, is cuBLAS's own (StridedBatched); the others are loops around the call. `scale` is read by
the device: cuBLAS then takes alpha and beta from its memory, beta from the constants at `gpu->units`.
f32 is multiplied in tf32 where the process permits that at the time of the call (`gpu->tf32`).
Seam: cuBLASLt's epilogues (bias, gelu) will be forms of this routine.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler_core.dtype import DType, bfloat16, complex64, complex128, float16, float32, float64
from compiler_core.ops.blas_layout import order
from compiler_core.ops.routine import Attrs, CArray, CCall, CudaCall, Strided

# cudaDataType_t; cublasComputeType_t; the type of alpha and beta
_TYPES: dict[DType, tuple[int, int, str]] = {
    float32: (0, 68, "float"), float64: (1, 70, "double"), float16: (2, 68, "float"), bfloat16: (14, 68, "float"),
    complex64: (4, 68, "float"), complex128: (5, 70, "double"),
}  # fmt: skip
_INT32_MAX = 2**31 - 1

_HELPER = """\
// cuBLAS's matrix product of `type`: C (m, n) row-major = alpha A B + beta C; `ta`, `tb`: 111 as it is, 112 transposed.
// T: what alpha and beta are made of. scale: on the device, or null.
struct dc_matrix { const void* data; int32_t order, ld; int64_t batch; };
template <class T>
static int32_t dc_gemm(dc_gpu* gpu, int32_t step, const void* routine, const void* set_mode, int32_t type,
                       int32_t compute, int32_t m, int32_t n, int32_t k, double alpha, const void* scale, dc_matrix a,
                       dc_matrix b, double beta, dc_matrix c, int32_t batch) {
  typedef int32_t (*mode)(void*, int32_t);
  typedef int32_t (*gemm)(void*, int32_t, int32_t, int32_t, int32_t, int32_t, const void*, const void*, int32_t,
                          int32_t, const void*, int32_t, int32_t, const void*, void*, int32_t, int32_t, int32_t,
                          int32_t);
  typedef int32_t (*gemms)(void*, int32_t, int32_t, int32_t, int32_t, int32_t, const void*, const void*, int32_t,
                           int32_t, long long, const void*, int32_t, int32_t, long long, const void*, void*, int32_t,
                           int32_t, long long, int32_t, int32_t, int32_t);
  const T host_alpha[2] = {(T)alpha, 0}, host_beta[2] = {(T)beta, 0};
  const void *alpha_at = host_alpha, *beta_at = host_beta;
  if (scale) {
    alpha_at = scale;
    beta_at = (const char*)gpu->units + (sizeof(T) == 8 ? 16 : 0) + (beta != 0 ? sizeof(T) : 0);
    if (const int32_t status = dc_done(gpu, step, "cublasSetPointerMode_v2", ((mode)set_mode)(gpu->blas, 1)))
      return status;
  }
  if (type == 0 && gpu->tf32) compute = 77;
  const int32_t ta = a.order == 112, tb = b.order == 112;
  const int32_t code =
      batch == 1 ? ((gemm)routine)(gpu->blas, tb, ta, n, m, k, alpha_at, b.data, type, b.ld, a.data, type, a.ld,
                                   beta_at, (void*)c.data, type, c.ld, compute, -1)
                 : ((gemms)routine)(gpu->blas, tb, ta, n, m, k, alpha_at, b.data, type, b.ld, b.batch, a.data, type,
                                    a.ld, a.batch, beta_at, (void*)c.data, type, c.ld, c.batch, batch, compute, -1);
  if (scale) ((mode)set_mode)(gpu->blas, 0);
  return dc_done(gpu, step, batch == 1 ? "cublasGemmEx" : "cublasGemmStridedBatchedEx", code);
}

"""


def _takes(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> bool:
    """Whether cuBLAS computes it: of a scale, only where it is alpha as it stands."""
    if result.dtype not in _TYPES or max(*result.shape, *operands[0].shape) > _INT32_MAX:
        return False
    return len(operands) < 3 or (attrs["alpha"] == 1.0 and result.dtype in (float32, float64))


def _batch_axis(result: Strided) -> int | None:
    """The batch axis that is cuBLAS's own: the longest; None: there is none longer than 1."""
    batch = result.shape[:-2]
    return max(range(len(batch)), key=batch.__getitem__) if batch and max(batch) > 1 else None


def _symbols(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> tuple[str, ...]:
    routine = "cublasGemmEx" if _batch_axis(result) is None else "cublasGemmStridedBatchedEx"
    return (routine, "cublasSetPointerMode_v2") if len(operands) > 2 else (routine,)


def _emit(call: CCall) -> Iterator[str]:
    a, b, *scale = call.operands
    c = call.result
    *batch, m, n = c.layout.shape
    own = _batch_axis(c.layout)
    routine, *mode = (call.symbol(name) for name in _symbols(tuple(x.layout for x in call.operands), c.layout, {}))
    pad = "  "
    for axis, extent in enumerate(batch):
        if axis != own and extent != 1:
            yield f"{pad}for (int64_t b{axis} = 0; b{axis} < {extent}; ++b{axis})"
            pad += "  "
    kind, compute, number = _TYPES[c.layout.dtype]
    loops = {axis for axis, extent in enumerate(batch) if axis != own and extent != 1}
    matrices = [_matrix(x, own, loops) for x in (a, b, c)]
    factor = scale[0].address if scale else "nullptr"
    alpha, beta = (repr(float(call.attrs[name])) for name in ("alpha", "beta"))
    yield f"{pad}if (const int32_t status = dc_gemm<{number}>({call.device}, {routine},"
    yield f"{pad}        {mode[0] if mode else 'nullptr'}, {kind}, {compute}, {m}, {n}, {a.layout.shape[-1]}, {alpha},"
    yield f"{pad}        {factor}, {matrices[0]}, {matrices[1]}, {beta}, {matrices[2]},"
    yield f"{pad}        {1 if own is None else batch[own]}))"
    yield f"{pad}  return status;"


def _matrix(matrix: CArray, own: int | None, loops: set[int]) -> str:
    """Where one matrix begins, how it lies, and the stride of cuBLAS's batch axis."""
    strides = matrix.layout.strides[:-2]
    at = [f"b{axis}*{stride}" for axis, stride in enumerate(strides) if stride and axis in loops]
    code, leading = order(matrix.layout)
    address = " + ".join([matrix.address, *at])
    return f"dc_matrix{{{address}, {code}, {leading}, {0 if own is None else strides[own]}}}"


CUBLAS_GEMM = CudaCall(_takes, _symbols, _emit, _HELPER)
