"""GEMM on a CUDA device: cuBLAS, by strides. f32, f64, f16, bf16, c64, c128; 16-bit floats are summed in f32.

Of 16-bit operands the result may be f32: what was summed, not rounded.

In: the operands of ops/linear_algebra/gemm.py. Out: the C++ of one call. cuBLAS is column-major: a row-major C = A B is
its C' = B'A', so the operands change places, a matrix of unit column stride is passed as it is, one of unit row stride
as transposed. One batch axis, the longest, is cuBLAS's own (StridedBatched); the others are loops around the call.
`scale` is read by the device: cuBLAS then takes alpha and beta from its memory, beta from the constants at
`gpu->units`. f32 is multiplied in tf32 where the process permits that at the time of the call (`gpu->tf32`).
Products of f32, f16 and bf16 that are worth it, and those with a bias, are cuBLASLt's, by the algorithm that was chosen
for them (runtime/cuda/products.py): `gpu->products` has two rows for each, the second for tf32. A bias for which it has
none is copied to the result's rows, and cuBLAS adds the product onto them: the same sum, rounded once.
Epilogues that an H200 was measured with and that are not used, for a kernel of its own takes no longer: gelu and its
derivative (GELU_AUX_BIAS adds 37 us to a product of 16384 x 3072, a kernel 50; DGELU 45, without the bias's gradient),
sums of gradients (BGRADB adds 13 to 43 us, a kernel 17 to 34), residuals (beta, of an f32 result: as many bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from compiler_core.dtype import DType, bfloat16, complex64, complex128, float16, float32, float64
from compiler_core.ops.linear_algebra.blas_layout import order
from compiler_core.ops.linear_algebra.gemm_product import Product
from compiler_core.ops.routine import Attrs, CArray, CCall, CudaCall, Strided

T = TypeVar("T")

# cudaDataType_t; cublasComputeType_t; the type of alpha and beta
TYPES: dict[DType, tuple[int, int, str]] = {
    float32: (0, 68, "float"), float64: (1, 70, "double"), float16: (2, 68, "float"), bfloat16: (14, 68, "float"),
    complex64: (4, 68, "float"), complex128: (5, 70, "double"),
}  # fmt: skip
INT32_MAX = 2**31 - 1
_LT = (float32, float16, bfloat16)
LEAST_FLOPS = 1 << 28  # of products that are cuBLASLt's: about a microsecond

_HELPER = """\
// cuBLAS's matrix product of `type`, its result of type `result`: C (m, n) row-major = alpha A B + beta C; `ta`, `tb`:
// 111 as it is, 112 transposed. T: what alpha and beta are made of. scale: on the device, or null.
// product: its rows of cuBLASLt's, or null; `multiply`, `set`: cublasLtMatmul, cublasLtMatmulDescSetAttribute.
// copy: cuMemcpyDtoDAsync, of a bias that cuBLASLt does not add: its D is f32 or of 16 bits, in no batch, beta 0.
struct dc_matrix { const void* data; int64_t order, ld, batch; };
// Each of `rows` rows becomes `line` (nbytes long); rows that lie side by side by copies of all that are there so far.
static inline int32_t dc_rows(const void* copy, char* to, int64_t rows, uint64_t nbytes, uint64_t stride,
                              const void* line, void* stream) {
  typedef int32_t (*copies)(const void*, const void*, uint64_t, void*);
  for (int64_t row = 0; row < rows;) {
    const bool one = row == 0 || stride != nbytes;
    const int64_t count = one ? 1 : row < rows - row ? row : rows - row;
    if (const int32_t code = ((copies)copy)(to + row * stride, one ? line : to, count * nbytes, stream)) return code;
    row += count;
  }
  return 0;
}
template <class T>
static int32_t dc_gemm(dc_gpu* gpu, int32_t step, const void* routine, const void* set_mode, int32_t type,
                       int32_t result, int32_t compute, int32_t m, int32_t n, int32_t k, double alpha,
                       const void* scale, dc_matrix a, dc_matrix b, double beta, dc_matrix c, int32_t batch,
                       const dc_product* product = nullptr, const void* multiply = nullptr, const void* set = nullptr,
                       const void* bias = nullptr, const void* copy = nullptr) {
  typedef int32_t (*mode)(void*, int32_t);
  typedef int32_t (*gemm)(void*, int32_t, int32_t, int32_t, int32_t, int32_t, const void*, const void*, int32_t,
                          int32_t, const void*, int32_t, int32_t, const void*, void*, int32_t, int32_t, int32_t,
                          int32_t);
  typedef int32_t (*gemms)(void*, int32_t, int32_t, int32_t, int32_t, int32_t, const void*, const void*, int32_t,
                           int32_t, long long, const void*, int32_t, int32_t, long long, const void*, void*, int32_t,
                           int32_t, long long, int32_t, int32_t, int32_t);
  const T host_alpha[2] = {(T)alpha, 0};
  T host_beta[2] = {(T)beta, 0};
  const void *alpha_at = host_alpha, *beta_at = host_beta;
  if (scale) {
    alpha_at = scale;
    beta_at = (const char*)gpu->units + (sizeof(T) == 8 ? 16 : 0) + (beta != 0 ? sizeof(T) : 0);
  }
  if (product) {
    typedef int32_t (*assign)(void*, int32_t, const void*, uint64_t);
    typedef int32_t (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                              const void*, void*, void*, void*, const void*, void*, uint64_t, void*);
    const dc_product* const p = product + (gpu->tf32 ? 1 : 0);
    if (p->description && bias)  // attribute 8: where the bias is
      if (const int32_t code = ((assign)set)(p->description, 8, &bias, sizeof bias))
        return dc_done(gpu, step, "cublasLtMatmulDescSetAttribute", code);
    if (p->description)
      return dc_done(gpu, step, "cublasLtMatmul",
                     ((matmul)multiply)(gpu->blas, p->description, alpha_at, b.data, p->a, a.data, p->b, beta_at,
                                        c.data, p->d, (void*)c.data, p->d, p->algorithm, gpu->workspace,
                                        gpu->workspace_nbytes, gpu->stream));
    if (bias) {  // cuBLASLt has no algorithm: D starts as the bias, and cuBLAS adds the product onto it
      const uint64_t nbytes = result == 0 ? 4 : 2;
      const int32_t code = dc_rows(copy, (char*)c.data, m, n * nbytes, c.ld * nbytes, bias, gpu->stream);
      if (code) return dc_done(gpu, step, "cuMemcpyDtoDAsync_v2", code);
      host_beta[0] = 1;
      if (scale) beta_at = (const char*)gpu->units + sizeof(T);
    }
  }
  if (scale)
    if (const int32_t status = dc_done(gpu, step, "cublasSetPointerMode_v2", ((mode)set_mode)(gpu->blas, 1)))
      return status;
  if (type == 0 && gpu->tf32) compute = 77;
  const int32_t ta = a.order == 112, tb = b.order == 112;
  const int32_t code =
      batch == 1 ? ((gemm)routine)(gpu->blas, tb, ta, n, m, k, alpha_at, b.data, type, b.ld, a.data, type, a.ld,
                                   beta_at, (void*)c.data, result, c.ld, compute, -1)
                 : ((gemms)routine)(gpu->blas, tb, ta, n, m, k, alpha_at, b.data, type, b.ld, b.batch, a.data, type,
                                    a.ld, a.batch, beta_at, (void*)c.data, result, c.ld, c.batch, batch, compute, -1);
  if (scale) ((mode)set_mode)(gpu->blas, 0);
  return dc_done(gpu, step, batch == 1 ? "cublasGemmEx" : "cublasGemmStridedBatchedEx", code);
}

"""


def _takes(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> bool:
    """Whether cuBLAS computes it: of a scale, only where it is alpha as it stands."""
    if result.dtype not in TYPES or max(*result.shape, *operands[0].shape) > INT32_MAX:
        return False
    _, _, scale, _ = named(operands)
    return scale is None or (attrs["alpha"] == 1.0 and result.dtype in (float32, float64))


def named(operands: Sequence[T]) -> tuple[T, T, T | None, T | None]:
    """a, b, scale and bias, of layouts or arrays. The scale is a 0-d array, the bias has one axis."""
    a, b, *rest = operands
    found = {len(_layout(one).shape): one for one in rest}
    return a, b, found.get(0), found.get(1)


def _layout(one: Any) -> Strided:
    return one if isinstance(one, Strided) else one.layout


def _batch_axis(result: Strided) -> int | None:
    """The batch axis that is cuBLAS's own: the longest; None: there is none longer than 1."""
    batch = result.shape[:-2]
    return max(range(len(batch)), key=batch.__getitem__) if batch and max(batch) > 1 else None


def _symbols(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> tuple[str, ...]:
    _, _, scale, bias = named(operands)
    names = ["cublasGemmEx" if _batch_axis(result) is None else "cublasGemmStridedBatchedEx"]
    names += ["cublasSetPointerMode_v2"] if scale else []
    if product_of(operands, result, attrs):
        names += ["cublasLtMatmul", "cublasLtMatmulDescSetAttribute"]
        names += ["cuMemcpyDtoDAsync_v2"] if bias is not None else []
    return tuple(names)


def product_of(operands: tuple[Strided, ...], result: Strided, attrs: Attrs) -> Product | None:
    """How cuBLASLt is asked for it; None: it is not."""
    a, b, scale, bias = named(operands)
    *batch, m, n = result.shape
    own = _batch_axis(result)
    alone = sum(extent > 1 for extent in batch) <= 1
    if a.dtype not in _LT or not alone:
        return None
    (ta, lda), (tb, ldb), (_, ldd) = order(b), order(a), order(result)
    if own is None:
        count, stride_a, stride_b, stride_d = 1, 0, 0, 0
    else:
        count, (stride_a, stride_b, stride_d) = batch[own], (x.strides[own] for x in (b, a, result))
    product = Product(
        TYPES[a.dtype][0], TYPES[result.dtype][0], n, m, a.shape[-1], int(ta == 112), int(tb == 112), lda, ldb, ldd,
        count, stride_a, stride_b, stride_d, bias is not None, scale is not None,
    )  # fmt: skip
    return product if bias is not None or product.flops >= LEAST_FLOPS else None


def _emit(call: CCall) -> Iterator[str]:
    a, b, scale, bias = named(call.operands)
    c = call.result
    *batch, m, n = c.layout.shape
    own = _batch_axis(c.layout)
    layouts = tuple(x.layout for x in call.operands)
    routine, *others = _symbols(layouts, c.layout, call.attrs)
    pad = "  "
    for axis, extent in enumerate(batch):
        if axis != own and extent != 1:
            yield f"{pad}for (int64_t b{axis} = 0; b{axis} < {extent}; ++b{axis})"
            pad += "  "
    kind, compute, number = TYPES[a.layout.dtype]
    result, *_ = TYPES[c.layout.dtype]
    loops = {axis for axis, extent in enumerate(batch) if axis != own and extent != 1}
    matrices = [_matrix(x, own, loops) for x in (a, b, c)]
    alpha, beta = (repr(float(call.attrs[name])) for name in ("alpha", "beta"))
    mode = call.symbol("cublasSetPointerMode_v2") if scale else "nullptr"
    yield f"{pad}if (const int32_t status = dc_gemm<{number}>({call.device}, {call.symbol(routine)},"
    yield f"{pad}        {mode}, {kind}, {result}, {compute}, {m}, {n}, {a.layout.shape[-1]}, {alpha},"
    yield f"{pad}        {_address(scale)}, {matrices[0]}, {matrices[1]}, {beta}, {matrices[2]},"
    yield f"{pad}        {1 if own is None else batch[own]}"
    assert bias is None or call.product, "a bias is added by cuBLASLt, of matrices that start on 16 bytes"
    if "cublasLtMatmul" in others and call.product:
        lt = ", ".join(call.symbol(name) for name in ("cublasLtMatmul", "cublasLtMatmulDescSetAttribute"))
        copy = call.symbol("cuMemcpyDtoDAsync_v2") if bias else "nullptr"
        yield f"{pad}        , {call.product}, {lt}, {_address(bias)}, {copy}"
    yield f"{pad}        ))"
    yield f"{pad}  return status;"


def _address(array: CArray | None) -> str:
    return "nullptr" if array is None else array.address


def _matrix(matrix: CArray, own: int | None, loops: set[int]) -> str:
    """Where one matrix begins, how it lies, and the stride of cuBLAS's batch axis."""
    strides = matrix.layout.strides[:-2]
    at = [f"b{axis}*{stride}" for axis, stride in enumerate(strides) if stride and axis in loops]
    code, leading = order(matrix.layout)
    address = " + ".join([matrix.address, *at])
    return f"dc_matrix{{{address}, {code}, {leading}, {0 if own is None else strides[own]}}}"


CUBLAS_GEMM = CudaCall(_takes, _symbols, _emit, _HELPER, product_of)
