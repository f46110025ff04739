"""Products of matrices of float32 on a CPU with AVX-512: C++ of our own in the place of OpenBLAS's sgemm.

In: the address of OpenBLAS's cblas_sgemm. Out: the address of a function that is called as it is, or None where the CPU
lacks AVX-512. What is small it hands on to OpenBLAS, whose kernels for that lay nothing out: products of 2^20
multiplications at most, and those of less than 48 rows and columns.
Sums are made by fused multiply-adds in the order of k, in parts of equal length, at most DEPTH, which are then added in
their order. So the bits do not depend on the other sizes, on strides, or on how a product is shared out among threads.
Method: b is laid out in panels of 48 columns, and so is a in panels of 8 rows if its rows are not dense. A tile of 8 x
48 sums stays in registers (Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication"). While a
panel is multiplied the next one is fetched: weights of a training step are not in the caches.
Why: with 128 rows OpenBLAS reaches 0.75 of what the core can do where b has to be fetched, this 0.82. And
OPENBLAS_CORETYPE, which may hold OpenBLAS to older instructions, says nothing to it.
The C++ is built once a machine like any artefact. A thread that multiplies keeps one megabyte until it ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from compiler_core.runtime.build import build_library
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import Toolchain, cpu_features, find_toolchain

LIBRARY = "products.so"
DEPTH, WIDTH, HEIGHT = 384, 480, 192  # of a block: summed at once, columns of b, rows of a
DEFINES = (f"DC_DEPTH={DEPTH}", f"DC_WIDTH={WIDTH}", f"DC_HEIGHT={HEIGHT}")

SOURCE = """\
#pragma GCC optimize("O2")  // half of the compile time of O3, and as quick
#include <cstdint>
#include <cstdlib>
#include <pthread.h>

namespace {

enum { LANES = 16, ROWS = 8, VECTORS = 3, PANEL = VECTORS * LANES, STRIP = 64 };
const int64_t small = 1 << 20;
typedef float vector __attribute__((vector_size(64)));
typedef vector loose __attribute__((aligned(4), may_alias));

// Element (i, j) lies at i * row + j * column.
struct Matrix {
  const float* at;
  int64_t row, column;
  const float* to(int64_t i, int64_t j) const { return at + i * row + j * column; }
};
// c = alpha * sum + beta * c; c is not read if beta is 0.
struct Result {
  float* at;
  int64_t row;
  float alpha, beta;
};
typedef void (*Tile)(const float* a, int64_t row, int64_t column, const float* b, int64_t depth, float alpha,
                     float beta, float* c, int64_t ldc, int64_t columns);

// R rows, of which the first `columns` of V vectors are written. b: a panel. No structures: those that are handed over
// in memory are read again behind stores to c that wait for memory.
template <int R, int V>
__attribute__((noinline)) void tile(const float* a, int64_t row, int64_t column, const float* b, int64_t depth,
                                    float alpha, float beta, float* c, int64_t ldc, int64_t columns) {
  vector sum[R][V], kept[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) sum[r][v] = vector{};
  const float *low = a, *middle = a + 3 * row, *high = a + 6 * row;
  for (const float* const end = b + depth * V * LANES; b != end; b += V * LANES) {
    vector right[V];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) right[v] = *(const vector*)(b + v * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      vector left;
      const float* const at = (r < 3 ? low : r < 6 ? middle : high) + r % 3 * row;
      asm("vbroadcastss %1, %0" : "=v"(left) : "m"(*at));
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) asm("vfmadd231ps %2, %1, %0" : "+v"(sum[r][v]) : "v"(right[v]), "v"(left));
    }
    low += column, middle += column, high += column;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) kept[r][v] = sum[r][v];
  const bool plain = columns == V * LANES && alpha == 1;
  for (int r = 0; r < R; ++r, c += ldc) {
    const float* const from = (const float*)kept[r];
    if (plain && beta == 0)
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) *(loose*)(c + v * LANES) = kept[r][v];
    else if (plain && beta == 1)
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) *(loose*)(c + v * LANES) += kept[r][v];
    else
      for (int64_t j = 0; j < columns; ++j) c[j] = beta == 0 ? alpha * from[j] : alpha * from[j] + beta * c[j];
  }
}
const Tile tiles[4][VECTORS] = {{tile<1, 1>, tile<1, 2>, tile<1, 3>},
                                {tile<2, 1>, tile<2, 2>, tile<2, 3>},
                                {tile<4, 1>, tile<4, 2>, tile<4, 3>},
                                {tile<8, 1>, tile<8, 2>, tile<8, 3>}};

// to[j][i] = from[i][j] of 16 x 16; rows lie ldf and ldt apart.
void turn(const float* from, int64_t ldf, float* to, int64_t ldt) {
#if defined(__clang__)
  for (int i = 0; i < LANES; ++i)
    for (int j = 0; j < LANES; ++j) to[j * ldt + i] = from[i * ldf + j];
#else
  typedef int places __attribute__((vector_size(64)));
  places low, high;
  for (int k = 0; k < LANES; ++k) {
    low[k] = k / 2 + k % 2 * LANES;
    high[k] = low[k] + LANES / 2;
  }
  vector rows[LANES], mixed[LANES];
#pragma GCC unroll 16
  for (int r = 0; r < LANES; ++r) rows[r] = *(const loose*)(from + r * ldf);
#pragma GCC unroll 4
  for (int done = 1; done < LANES; done *= 2) {
#pragma GCC unroll 8
    for (int r = 0; r < LANES / 2; ++r) {
      mixed[2 * r] = __builtin_shuffle(rows[r], rows[r + LANES / 2], low);
      mixed[2 * r + 1] = __builtin_shuffle(rows[r], rows[r + LANES / 2], high);
    }
#pragma GCC unroll 16
    for (int r = 0; r < LANES; ++r) rows[r] = mixed[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < LANES; ++r) *(loose*)(to + r * ldt) = rows[r];
#endif
}

// to[depth][width] = the first `columns` of b, 0 beyond; width: whole vectors.
void lay_out_b(Matrix b, int64_t depth, int64_t columns, float* to) {
  const int64_t width = (columns + LANES - 1) / LANES * LANES;
  const bool is_turned = b.column != 1;
  for (int64_t j = 0; j < width; j += LANES) {
    const int64_t whole = j + LANES > columns ? 0 : is_turned ? depth / LANES * LANES : depth;
    if (is_turned)
      for (int64_t p = 0; p < whole; p += LANES) turn(b.to(p, j), b.column, to + p * width + j, width);
    else
      for (int64_t p = 0; p < whole; ++p) *(vector*)(to + p * width + j) = *(const loose*)b.to(p, j);
    for (int64_t p = whole; p < depth; ++p)
      for (int64_t i = j; i < j + LANES; ++i) to[p * width + i] = i < columns ? *b.to(p, i) : 0;
  }
}

// to[rows / 8][depth][8] = rows of a, whose columns are dense.
void lay_out_a(Matrix a, int64_t depth, int64_t rows, float* to) {
  typedef float half __attribute__((vector_size(32), aligned(4), may_alias));
  int64_t i = 0;
  for (; i + STRIP <= rows; i += STRIP)
    for (int64_t p = 0; p < depth; ++p)
#pragma GCC unroll 8
      for (int r = 0; r < STRIP; r += ROWS)
        *(half*)(to + (i + r) * depth + p * ROWS) = *(const half*)(a.to(i, p) + r);
  for (; i + ROWS <= rows; i += ROWS)
    for (int64_t p = 0; p < depth; ++p) *(half*)(to + i * depth + p * ROWS) = *(const half*)a.to(i, p);
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t r = i; r < rows; ++r) to[i * depth + p * ROWS + r - i] = *a.to(r, p);
}

// What of the next panel is fetched before each tile of this one: some rows, as they lie in memory.
struct Ahead {
  const float* at;
  int64_t step, rows, each, numel;
  void fetch() {
    for (int64_t r = 0; r < each && rows > 0; ++r, --rows, at += step)
      for (int64_t j = 0; j < numel; j += LANES) __builtin_prefetch(at + j, 0, 2);
  }
};
Ahead ahead_of(Matrix b, int64_t depth, int64_t columns, int64_t tiles) {
  const bool is_turned = b.column != 1;
  const int64_t rows = columns <= 0 || tiles < 8 ? 0 : is_turned ? columns : depth;  // few tiles hide nothing
  return {b.at, is_turned ? b.column : b.row, rows, (rows + tiles - 1) / tiles, is_turned ? depth : columns};
}

// c[m][columns] of a panel.
void multiply(Matrix a, const float* panel, int64_t depth, Result c, int64_t m, int64_t columns, Ahead ahead) {
  for (int64_t i = 0; i < m;) {
    ahead.fetch();
    const int64_t left = m - i, size = left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
    const float* const rows = a.at + (a.row == 1 ? i / ROWS * ROWS * depth + i % ROWS : i * a.row);
    tiles[size][(columns - 1) / LANES](rows, a.row, a.column, panel, depth, c.alpha, c.beta, c.at + i * c.row, c.row,
                                       columns);
    i += 1 << size;
  }
}

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void product(Matrix a, Matrix b, Result c, int64_t m, int64_t n, int64_t k, float* memory) {
  const int64_t parts = (k + DC_DEPTH - 1) / DC_DEPTH, part = (k + parts - 1) / parts;
  float* const laid_out = memory + DC_DEPTH * DC_WIDTH;
  for (int64_t j0 = 0; j0 < n; j0 += DC_WIDTH)
    for (int64_t p = 0; p < k; p += part)
      for (int64_t i = 0; i < m; i += DC_HEIGHT) {
        const int64_t depth = least(k - p, part), rows = least(m - i, DC_HEIGHT), end = least(n, j0 + DC_WIDTH);
        Matrix block = {a.to(i, p), a.row, a.column};
        if (a.column != 1) {
          lay_out_a(block, depth, rows, laid_out);
          block = {laid_out, 1, ROWS};
        }
        for (int64_t j = j0; j < end; j += PANEL) {
          const int64_t columns = least(end - j, PANEL);
          float* const panel = m <= DC_HEIGHT ? memory : memory + (j - j0) * depth;
          if (!i) lay_out_b({b.to(p, j), b.row, b.column}, depth, columns, panel);
          const Matrix next = {b.to(p, j + PANEL), b.row, b.column};
          const int64_t coming = i ? 0 : least(n - j - PANEL, PANEL);
          multiply(block, panel, depth, {c.at + i * c.row + j, c.row, c.alpha, p ? 1 : c.beta}, rows, columns,
                   ahead_of(next, depth, coming, (rows + ROWS - 1) / ROWS));
        }
      }
}

pthread_key_t key;
pthread_once_t once = PTHREAD_ONCE_INIT;
void make_key() { pthread_key_create(&key, free); }
float* memory_of_thread() {
  pthread_once(&once, make_key);
  void* memory = pthread_getspecific(key);
  if (!memory) {
    memory = aligned_alloc(64, sizeof(float) * DC_DEPTH * (DC_WIDTH + DC_HEIGHT));
    pthread_setspecific(key, memory);
  }
  return (float*)memory;
}

typedef void (*Gemm)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
Gemm other = nullptr;

}  // namespace

extern "C" __attribute__((visibility("default"))) void dc_products_else(Gemm gemm) { other = gemm; }

// As cblas_sgemm: order 101; 111: as it lies, 112: turned.
extern "C" __attribute__((visibility("default"))) void dc_sgemm(
    int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda, const float* b, int ldb,
    float beta, float* c, int ldc) {
  const bool is_small = (double)m * n * k <= small || (m < PANEL && n < PANEL);
  float* const memory = is_small ? nullptr : memory_of_thread();
  if (!memory) return other(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  const Matrix first = {a, ta == 111 ? lda : 1, ta == 111 ? 1 : lda};
  const Matrix second = {b, tb == 111 ? ldb : 1, tb == 111 ? 1 : ldb};
  product(first, second, {c, ldc, alpha, beta}, m, n, k, memory);
}
"""


def sgemm_address(openblas: int) -> int | None:
    """The function that computes what `openblas`, the address of its cblas_sgemm, does. Raises what a build does."""
    if not units_for(("cblas_sgemm",)):
        return None
    library = _library()
    library.dc_products_else(ctypes.c_void_p(openblas))
    return ctypes.cast(library.dc_sgemm, ctypes.c_void_p).value


def units_for(symbols: Sequence[str]) -> dict[str, str]:
    """What a library that is to bring these routines of OpenBLAS's itself is built from besides: name -> C++."""
    return {"products": SOURCE} if "cblas_sgemm" in symbols and "avx512f" in cpu_features() else {}


@cache
def _library() -> ctypes.CDLL:
    toolchain = find_toolchain()
    key = make_key({"products": SOURCE, "defines": " ".join(DEFINES), "toolchain": toolchain.key()})
    return ctypes.CDLL(str(load_or_build(key, lambda folder: _build(folder, toolchain)).file(LIBRARY)))


def _build(folder: Path, toolchain: Toolchain) -> Manifest:
    build_library({"products": SOURCE}, folder / LIBRARY, toolchain, defines=DEFINES)
    return {"library": LIBRARY}
