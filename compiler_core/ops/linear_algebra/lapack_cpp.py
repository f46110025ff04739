"""The C++ by which generated code calls LAPACK: one function template per routine, for one matrix.

In: matrices by their row and column strides. Out: `TEXT`; each function writes contiguous results and returns LAPACK's
info: not 0 if the routine failed, or (LAPACKE looks for them) if an operand holds a NaN.
Method: what NumPy does, so that signs and pivots are eager's: the matrix is copied into column-major order (102) and
the routine works there; of the Cholesky factor the upper one in column-major order is the lower one in row-major order.
"""

TEXT = """\
template <class T>
static inline void dc_to_columns(int m, int n, const T* a, int64_t row, int64_t column, T* out) {
  for (int64_t block = 0; block < m; block += 16)  // both sides stay in the cache
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = block; i < m && i < block + 16; ++i) out[j * m + i] = a[i * row + j * column];
}
template <class T>
static inline void dc_from_columns(int m, int n, const T* a, T* out) {
  for (int64_t block = 0; block < n; block += 16)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = block; j < n && j < block + 16; ++j) out[i * n + j] = a[j * m + i];
}
template <class T>
static inline void dc_symmetric_part(int n, const T* a, int64_t row, int64_t column, T* out) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      out[i * n + j] = out[j * n + i] = (a[i * row + j * column] + a[j * row + i * column]) / (T)2;
}
template <class T>
static int32_t dc_cholesky(const void* potrf, int n, const T* a, int64_t row, int64_t column, T* out) {
  typedef int (*routine)(int, char, int, T*, int);
  dc_symmetric_part(n, a, row, column, out);
  if (const int info = ((routine)potrf)(102, 'U', n, out, n)) return info;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j) out[i * n + j] = (T)0;
  return 0;
}
template <class T>
static int32_t dc_solve(const void* gesv, int n, int k, const T* a, int64_t row, int64_t column, const T* b,
                        int64_t b_row, int64_t b_column, T* out, T* lu) {
  typedef int (*routine)(int, int, int, T*, int, int*, T*, int);
  T* const x = lu + (int64_t)n * n;
  dc_to_columns(n, n, a, row, column, lu);
  dc_to_columns(n, k, b, b_row, b_column, x);
  if (const int info = ((routine)gesv)(102, n, k, lu, n, (int*)(x + (int64_t)n * k), x, n)) return info;
  dc_from_columns(n, k, x, out);
  return 0;
}
template <class T>
static void dc_solve_triangular(const void* trsm, int upper, int turned, int unit, int n, int k, const T* a, int lda,
                                const T* b, int64_t b_row, int64_t b_column, T* out) {
  typedef void (*routine)(int, int, int, int, int, int, int, T, const T*, int, T*, int);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) out[i * k + j] = b[i * b_row + j * b_column];
  ((routine)trsm)(101, 141, upper, turned, unit, n, k, (T)1, a, lda, out, k);
}
template <class T>
static int32_t dc_lu(const void* getrf, int m, int n, const T* a, int64_t row, int64_t column, T* out, T* lu) {
  typedef int (*routine)(int, int, int, T*, int, int*);
  const int64_t k = m < n ? m : n;
  int* const pivots = (int*)(lu + (int64_t)m * n);
  dc_to_columns(m, n, a, row, column, lu);
  if (const int info = ((routine)getrf)(102, m, n, lu, m, pivots)) return info;
  dc_from_columns(m, n, lu, out);
  T* const permutation = out + (int64_t)m * n;
  for (int64_t i = 0; i < m; ++i) permutation[i] = (T)i;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t other = pivots[i] - 1;
    const T kept = permutation[i];
    permutation[i] = permutation[other];
    permutation[other] = kept;
    permutation[m + i] = (T)pivots[i];
  }
  return 0;
}

"""
