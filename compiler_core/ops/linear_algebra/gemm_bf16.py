"""Products of bf16 on a CPU that multiplies them (AVX512_BF16): C++ of our own, as OpenBLAS has none that rounds once.

In: a (*batch, m, k), b (*batch, k, n), which lie as the BLAS wants them. Out: c (*batch, m, n), rows dense.
Sums are f32, of pairs of products in the order of k, whatever the sizes, strides, or number of threads, and rounded
once: eager code and compiled code have the same bits. As the instruction has it, subnormal numbers count as 0.
Method: b is laid out in panels of 64 columns, pairs of rows side by side; so is a, in panels of 96 rows, if its rows
are not dense, or of odd length. A tile of 6 x 64 sums stays in registers (Goto and van de Geijn 2008).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from compiler_core.dtype import DType, bfloat16
from compiler_core.ops.linear_algebra.blas_layout import order
from compiler_core.ops.routine import Attrs, CArray, CCall, Native, Strided, no_symbols

NEEDS = ("bf16", "turn")  # of codegen/cpp/helpers.py
_LANES, _PAIR = 16, 4  # columns of a vector; bytes of two numbers

TEXT = """\
// ---- products of bf16
#define DC_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
enum { DC_TILE = 6, DC_PANEL = 64, DC_BLOCK = 96 };
typedef uint32_t dc_pair __attribute__((aligned(2), may_alias));
// Matrices in memory: rows (turned: columns) of numbers side by side, ld apart.
struct dc_bf16_matrix { const dc_bf16* at; int64_t ld; bool turned; };
struct dc_bf16_axis { int64_t extent, a, b, c; };  // of a batch: how many, and how far apart

// c[rows, columns] = a b, of at most DC_TILE rows and V vectors of columns. Row r of a is at a[r], pairs `step` apart.
template <int V> DC_BF16 __attribute__((noinline)) static void dc_bf16_tile(
    const dc_pair* const* a, int64_t step, const uint32_t* b, int64_t pairs, dc_bf16* c, int64_t ldc, int64_t rows,
    int64_t columns) {
  typedef float sums __attribute__((vector_size(64)));
  typedef uint32_t vector __attribute__((vector_size(64)));
  const dc_pair *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3], *a4 = a[4], *a5 = a[5];
  sums sum[DC_TILE][V], kept[DC_TILE][V];
#pragma GCC unroll 6
  for (int r = 0; r < DC_TILE; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = sums{};
  for (int64_t p = 0; p < pairs; ++p, b += V * 16) {
    vector right[V], left;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = *(const vector*)(b + v * 16);
#define DC_ROW(r)                                \\
  left = vector{} + (uint32_t)a##r[p * step];    \\
  _Pragma("GCC unroll 4") for (int v = 0; v < V; ++v) \\
      asm("vdpbf16ps %2, %1, %0" : "+v"(sum[r][v]) : "v"(right[v]), "v"(left));
    DC_ROW(0) DC_ROW(1) DC_ROW(2) DC_ROW(3) DC_ROW(4) DC_ROW(5)
#undef DC_ROW
  }
#pragma GCC unroll 6
  for (int r = 0; r < DC_TILE; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) kept[r][v] = sum[r][v];
  for (int64_t r = 0; r < rows; ++r, c += ldc) {
    const float* const row = (const float*)kept[r];
    if (columns == V * 16)
      for (int j = 0; j < V * 16; ++j) c[j] = dc_to_bf16(row[j]);
    else
      for (int64_t j = 0; j < columns; ++j) c[j] = dc_to_bf16(row[j]);
  }
}

// to[k / 2][width] = pairs of rows of the first `columns` of matrix b; what lies beyond is 0.
static void dc_bf16_panel(const dc_bf16* b, int64_t ld, bool turned, int64_t k, int64_t columns, uint32_t* to) {
  const int64_t width = (columns + 15) / 16 * 16, whole = k / 2, first = turned ? whole / 16 * 16 : whole;
  if (!turned)
    for (int64_t p = 0; p < whole; ++p) {
      const dc_bf16 *even = b + 2 * p * ld, *odd = even + ld;
      uint32_t* const row = to + p * width;
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) row[j] = even[j] | (uint32_t)odd[j] << 16;
      for (int64_t j = columns; j < width; ++j) row[j] = 0;
    }
  else
    for (int64_t p = 0; p < first; p += 16)
      for (int64_t j = 0; j < columns; j += 16)
        if (j + 16 <= columns && ld % 2 == 0)
          dc_turn<uint32_t, 64>((const uint32_t*)(b + j * ld + 2 * p), ld / 2, to + p * width + j, width);
        else
          for (int64_t q = p; q < p + 16; ++q)
            for (int64_t i = j; i < j + 16; ++i)
              to[q * width + i] = i < columns ? *(const dc_pair*)(b + i * ld + 2 * q) : 0;
  const int64_t row = turned ? 1 : ld, column = turned ? ld : 1;
  for (int64_t p = first; 2 * p < k; ++p)
    for (int64_t j = 0; j < width; ++j) {
      const dc_bf16* const at = b + j * column + 2 * p * row;
      to[p * width + j] = j < columns ? at[0] | (2 * p + 1 < k ? (uint32_t)at[row] << 16 : 0) : 0;
    }
}

// The number of the first element of matrix `number` of a batch, by the steps of `operand`: 0 a, 1 b, 2 c.
static inline int64_t dc_bf16_start(const dc_bf16_axis* axes, int64_t rank, int64_t number, int operand) {
  int64_t at = 0;
  for (int64_t axis = rank; axis-- > 0; number /= axes[axis].extent)
    at += number % axes[axis].extent * (&axes[axis].a)[operand];
  return at;
}

static void dc_bf16_gemm(dc_bf16_matrix a, dc_bf16_matrix b, dc_bf16* c, int64_t ldc, int64_t m, int64_t n, int64_t k,
                         const dc_bf16_axis* axes, int64_t rank, char* scratch) {
  const int64_t pairs = (k + 1) / 2, panels = (n + DC_PANEL - 1) / DC_PANEL, blocks = (m + DC_BLOCK - 1) / DC_BLOCK;
  const bool laid_out = a.turned || k % 2;
  const int64_t b_size = (n + 15) / 16 * 16 * pairs, a_size = laid_out ? (m + 15) / 16 * 16 * pairs : 0;
  const int64_t each = panels + (laid_out ? blocks : 0);
  int64_t count = 1;
  for (int64_t axis = 0; axis < rank; ++axis) count *= axes[axis].extent;
  uint32_t *const bs = (uint32_t*)scratch, *const as = bs + count * b_size;
  const auto least = [](int64_t work) { return (1 << 20) / (work + 1) + 1; };
  dc_parallel(count * each, least(DC_PANEL * k * 4), [&](int64_t from, int64_t to) {
    for (int64_t t = from; t < to; ++t) {
      const int64_t number = t / each, j = t % each * DC_PANEL, i = (t % each - panels) * DC_BLOCK;
      if (i < 0)
        dc_bf16_panel(b.at + dc_bf16_start(axes, rank, number, 1) + j * (b.turned ? b.ld : 1), b.ld, b.turned, k,
                      n - j < DC_PANEL ? n - j : DC_PANEL, bs + number * b_size + j * pairs);
      else
        dc_bf16_panel(a.at + dc_bf16_start(axes, rank, number, 0) + i * (a.turned ? 1 : a.ld), a.ld, !a.turned, k,
                      m - i < DC_BLOCK ? m - i : DC_BLOCK, as + number * a_size + i * pairs);
    }
  });
  dc_parallel(count * panels * blocks, least(DC_PANEL * DC_BLOCK * k), [&](int64_t from, int64_t to) {
    for (int64_t t = from; t < to; ++t) {
      const int64_t number = t / (panels * blocks), j = t / blocks % panels * DC_PANEL, i0 = t % blocks * DC_BLOCK;
      const int64_t columns = n - j < DC_PANEL ? n - j : DC_PANEL, rows = m - i0 < DC_BLOCK ? m - i0 : DC_BLOCK;
      const int64_t step = laid_out ? (rows + 15) / 16 * 16 : 1, vectors = (columns + 15) / 16;
      const dc_pair* const first = laid_out ? as + number * a_size + i0 * pairs
                                            : (const dc_pair*)(a.at + dc_bf16_start(axes, rank, number, 0) + i0 * a.ld);
      const auto tile = vectors == 4   ? dc_bf16_tile<4>
                        : vectors == 3 ? dc_bf16_tile<3>
                        : vectors == 2 ? dc_bf16_tile<2>
                                       : dc_bf16_tile<1>;
      dc_bf16* const to_c = c + dc_bf16_start(axes, rank, number, 2) + i0 * ldc + j;
      for (int64_t i = 0; i < rows; i += DC_TILE) {
        const int64_t left = rows - i < DC_TILE ? rows - i : DC_TILE;
        const dc_pair* at[DC_TILE];  // of rows that there are not: the last again, whose sums nobody reads
        for (int64_t r = 0; r < DC_TILE; ++r) {
          const int64_t row = i + (r < left ? r : left - 1);
          at[r] = laid_out ? first + row : (const dc_pair*)((const dc_bf16*)first + row * a.ld);
        }
        tile(at, step, bs + number * b_size + j * pairs, pairs, to_c + i * ldc, ldc, left, columns);
      }
    }
  });
}

"""


def scratch_nbytes(count: int, m: int, n: int, k: int, *, turned: bool) -> int:
    """Bytes that a product of `count` pairs of matrices writes meanwhile. turned: whether a's columns are dense."""
    widths = _rounded(n) + (_rounded(m) if turned or k % 2 else 0)
    return count * widths * -(-k // 2) * _PAIR


def _rounded(columns: int) -> int:
    return -(-columns // _LANES) * _LANES


def _takes(dtype: DType, attrs: Attrs) -> bool:
    return dtype is bfloat16 and attrs["alpha"] == 1 and not attrs["beta"]


def _scratch(operands: tuple[Strided, ...], attrs: Attrs) -> int:
    a, b, *_ = operands
    *batch, m, k = a.shape
    return scratch_nbytes(math.prod(batch), m, b.shape[-1], k, turned=order(a)[0] == 112)


def _emit(call: CCall) -> Iterator[str]:
    a, b = call.operands
    c = call.result.layout
    *batch, m, n = c.shape
    steps = zip(batch, a.layout.strides, b.layout.strides, c.strides)
    axes = ", ".join(f"{{{', '.join(map(str, numbers))}}}" for numbers in steps) or "{1, 0, 0, 0}"
    yield f"  {{ const dc_bf16_axis axes[] = {{{axes}}};"
    yield f"    dc_bf16_gemm({_matrix(a)}, {_matrix(b)}, {call.result.address}, {order(c)[1]},"
    yield f"                 {m}, {n}, {a.layout.shape[-1]}, axes, {max(len(batch), 1)}, {call.scratch}); }}"


def _matrix(array: CArray) -> str:
    code, ld = order(array.layout)
    return f"dc_bf16_matrix{{{array.address}, {ld}, {str(code == 112).lower()}}}"


BF16_GEMM = Native(no_symbols, _emit, TEXT, needs=NEEDS, scratch=_scratch, takes=_takes)
