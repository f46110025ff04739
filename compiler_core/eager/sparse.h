// Kernels over the elements of a sparse matrix. In: as in kernels.h, which stands before this; rows and columns are i64.
// Sums are taken in the order of the elements, in the dtype of the result.

// What is kept of a row of the result while elements of that row follow each other.
template <class T> constexpr int64_t STRIP = 256 / sizeof(T);

template <class T, bool whole>
DC_INLINE bool sparse_strip(const T* dense, T* out, const T* w, const int64_t* rows, const int64_t* cols, int64_t count,
                            uint64_t n, uint64_t m, int64_t k, int64_t width) {
  for (int64_t i = 0; i < count;) {
    const int64_t row = rows[i];
    if ((uint64_t)row >= n) return false;
    T sum[STRIP<T>];
    T* const to = out + row * k;
    for (int64_t j = 0; j < (whole ? STRIP<T> : width); ++j) sum[j] = to[j];
    for (; i < count && rows[i] == row; ++i) {
      if ((uint64_t)cols[i] >= m) return false;
      const T a = w ? w[i] : (T)1;
      const T* const from = dense + cols[i] * k;
#pragma omp simd
      for (int64_t j = 0; j < (whole ? STRIP<T> : width); ++j) sum[j] += a * from[j];
    }
    for (int64_t j = 0; j < (whole ? STRIP<T> : width); ++j) to[j] = sum[j];
  }
  return true;
}

// dense[m, k], out[n, k], weights or None, rows, columns: out[row] += weight * dense[column]
template <class T> static int64_t sparse_product(const Tuple* t) {
  const T *dense = at<T>(t, 0), *w = at<T>(t, 2);
  T* out = at<T>(t, 1);
  const int64_t *rows = at<int64_t>(t, 3), *cols = at<int64_t>(t, 4), count = numel(t->items[3]);
  const int64_t m = t->items[0]->shape[0], k = t->items[0]->shape[1], n = t->items[1]->shape[0];
  for (int64_t j = 0; j < k; j += STRIP<T>) {
    const int64_t width = k - j < STRIP<T> ? k - j : STRIP<T>;
    const bool good = width == STRIP<T>
                          ? sparse_strip<T, true>(dense + j, out + j, w, rows, cols, count, n, m, k, width)
                          : sparse_strip<T, false>(dense + j, out + j, w, rows, cols, count, n, m, k, width);
    if (!good) return 1;
  }
  return 0;
}

// a[n, k], b[m, k], out, rows, columns: out[i] = a[row] . b[column]
template <class T> static int64_t sparse_sampled(const Tuple* t) {
  const T *a = at<T>(t, 0), *b = at<T>(t, 1);
  T* out = at<T>(t, 2);
  const int64_t *rows = at<int64_t>(t, 3), *cols = at<int64_t>(t, 4), count = numel(t->items[3]);
  const uint64_t n = t->items[0]->shape[0], m = t->items[1]->shape[0];
  const int64_t k = t->items[0]->shape[1];
  for (int64_t i = 0; i < count; ++i) {
    if ((uint64_t)rows[i] >= n || (uint64_t)cols[i] >= m) return 1;
    const T *x = a + rows[i] * k, *y = b + cols[i] * k;
    out[i] = sum_of<T>(k, [=](int64_t j) { return x[j] * y[j]; });
  }
  return 0;
}

EXPORT dc_sparse_product(void* arrays) { return BY_DTYPE(sparse_product); }
EXPORT dc_sparse_sampled(void* arrays) { return BY_DTYPE(sparse_sampled); }
