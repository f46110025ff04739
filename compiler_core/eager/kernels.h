// Row kernels of eager composites: what a chain of NumPy calls would do in many passes, in one or two.
//
// In: a tuple of NumPy arrays, dense (C order, aligned), of f32 or all of f64, None where there is none; numbers. Out:
// the arrays that are written; 0, 1 where an index is out of range, -1 if one is not dense. The rules (rules.py) see to shapes.
// A row is what lies along the last dim, or dims. Sums run in lanes, in blocks of BLOCK, whose sums are added in double.
// Before it stands arrays.h.

DC_INLINE float exp_of(float x) { return dc_exp(x); }
DC_INLINE double exp_of(double x) { return exp(x); }
DC_INLINE float log_of(float x) { return __builtin_logf(x); }
DC_INLINE double log_of(double x) { return __builtin_log(x); }
DC_INLINE float sqrt_of(float x) { return __builtin_sqrtf(x); }
DC_INLINE double sqrt_of(double x) { return __builtin_sqrt(x); }

template <class T, class Term> DC_INLINE T sum_of(int64_t n, Term term) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += BLOCK) {
    const int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = begin; i < end; ++i) part += term(i);
    if (n <= BLOCK) return part;
    total += part;
  }
  return (T)total;
}

template <class T> DC_INLINE T max_of(int64_t n, const T* x) {
  T most = -__builtin_inf();
#pragma omp simd reduction(dc_max : most)
  for (int64_t i = 0; i < n; ++i) most = dc_max(most, x[i]);
  return most;
}

// ---- batch norm: channels are the second of three dims (N, C, L)

// Calls at(r) for the offset of each run of `length` elements that belongs to channel c, r = 0..N-1.
template <class F> DC_INLINE void runs_of(int64_t c, int64_t batch, int64_t channels, int64_t length, F run) {
  for (int64_t r = 0; r < batch; ++r) run((r * channels + c) * length);
}

// x[N, C, L], weight, bias, out, mean, rstd. given: mean and rstd hold statistics, else they are written.
template <class T> static int64_t batch_norm(const Tuple* t, double eps, int64_t given) {
  const T *x = at<T>(t, 0), *w = at<T>(t, 1), *b = at<T>(t, 2);
  T *out = at<T>(t, 3), *means = at<T>(t, 4), *scales = at<T>(t, 5);
  const int64_t* shape = t->items[0]->shape;
  const int64_t batch = shape[0], channels = shape[1], length = shape[2];
  for (int64_t c = 0; c < channels; ++c) {
    if (!given) {
      double total = 0, squares = 0;
      runs_of(c, batch, channels, length, [&](int64_t o) { total += sum_of<T>(length, [=](int64_t i) { return x[o + i]; }); });
      const T mean = (T)(total / (double)(batch * length));
      runs_of(c, batch, channels, length, [&](int64_t o) {
        squares += sum_of<T>(length, [=](int64_t i) { return (x[o + i] - mean) * (x[o + i] - mean); });
      });
      means[c] = mean;
      scales[c] = (T)(1 / sqrt_of(squares / (double)(batch * length) + eps));
    }
    const T mean = means[c], scale = scales[c] * (w ? w[c] : (T)1), level = b ? b[c] : (T)0;
    runs_of(c, batch, channels, length, [&](int64_t o) {
#pragma omp simd
      for (int64_t i = o; i < o + length; ++i) out[i] = (x[i] - mean) * scale + level;
    });
  }
  return 0;
}

// g, x, weight, mean, rstd -> dx, dweight, dbias, each of which may be None. given: the statistics are not x's.
template <class T> static int64_t batch_norm_backward(const Tuple* t, int64_t given) {
  const T *g = at<T>(t, 0), *x = at<T>(t, 1), *w = at<T>(t, 2), *means = at<T>(t, 3), *scales = at<T>(t, 4);
  T *dx = at<T>(t, 5), *dw = at<T>(t, 6), *db = at<T>(t, 7);
  const int64_t* shape = t->items[1]->shape;
  const int64_t batch = shape[0], channels = shape[1], length = shape[2];
  for (int64_t c = 0; c < channels; ++c) {
    const T mean = means[c], scale = scales[c], factor = scale * (w ? w[c] : (T)1);
    double total = 0, along = 0;
    runs_of(c, batch, channels, length, [&](int64_t o) {
      total += sum_of<T>(length, [=](int64_t i) { return g[o + i]; });
      along += sum_of<T>(length, [=](int64_t i) { return g[o + i] * (x[o + i] - mean); });
    });
    if (dw) dw[c] = (T)(along * scale);
    if (db) db[c] = (T)total;
    if (!dx) continue;
    if (given) {
      runs_of(c, batch, channels, length, [&](int64_t o) {
        for (int64_t i = o; i < o + length; ++i) dx[i] = g[i] * factor;
      });
      continue;
    }
    const double count = (double)(batch * length);
    const T level = (T)(total / count), slope = (T)(along / count * scale * scale);
    runs_of(c, batch, channels, length, [&](int64_t o) {
#pragma omp simd
      for (int64_t i = o; i < o + length; ++i) dx[i] = (g[i] - level - (x[i] - mean) * slope) * factor;
    });
  }
  return 0;
}

// x, means and variances so far -> both moved by a share towards those of x, the variance that of a sample.
template <class T> static int64_t moved_statistics(const Tuple* t, double share) {
  const T *x = at<T>(t, 0), *means = at<T>(t, 1), *variances = at<T>(t, 2);
  T *means_out = at<T>(t, 3), *variances_out = at<T>(t, 4);
  const int64_t* shape = t->items[0]->shape;
  const int64_t batch = shape[0], channels = shape[1], length = shape[2], count = batch * length;
  const T before = (T)(1 - share), now = (T)share;
  for (int64_t c = 0; c < channels; ++c) {
    double total = 0, squares = 0;
    runs_of(c, batch, channels, length, [&](int64_t o) { total += sum_of<T>(length, [=](int64_t i) { return x[o + i]; }); });
    const T mean = (T)(total / (double)count);
    runs_of(c, batch, channels, length, [&](int64_t o) {
      squares += sum_of<T>(length, [=](int64_t i) { return (x[o + i] - mean) * (x[o + i] - mean); });
    });
    means_out[c] = means[c] * before + mean * now;
    variances_out[c] = variances[c] * before + (T)(squares / (double)(count > 1 ? count - 1 : 1)) * now;
  }
  return 0;
}

EXPORT dc_moved_statistics(void* arrays, double share) { return BY_DTYPE(moved_statistics, share); }
EXPORT dc_batch_norm(void* arrays, double eps, int64_t given) { return BY_DTYPE(batch_norm, eps, given); }
EXPORT dc_batch_norm_backward(void* arrays, int64_t given) { return BY_DTYPE(batch_norm_backward, given); }

// ---- convolution: windows as columns, and columns added back to where they came from

// columns[N, C * prod(k), prod(out)], x[N, C, D, H, W], i64[19]: C, then sizes, kernel, stride, low, dilation, out
template <class T, bool back> static int64_t windows(const Tuple* t) {
  T *columns = at<T>(t, 0), *x = at<T>(t, 1);
  const int64_t *of = at<int64_t>(t, 2), *size = of + 1, *kernel = of + 4, *stride = of + 7, *low = of + 10;
  const int64_t *dilation = of + 13, *out = of + 16, planes = t->items[1]->shape[0] * of[0], last = out[2];
  for (int64_t p = 0; p < planes; ++p, x += size[0] * size[1] * size[2])
    for (int64_t k = 0; k < kernel[0] * kernel[1] * kernel[2]; ++k) {
      const int64_t shift0 = k / (kernel[1] * kernel[2]) * dilation[0] - low[0];
      const int64_t shift1 = k / kernel[2] % kernel[1] * dilation[1] - low[1];
      const int64_t shift = k % kernel[2] * dilation[2] - low[2], step = stride[2];
      const int64_t first = shift >= 0 ? 0 : (-shift + step - 1) / step;  // the positions that lie inside
      const int64_t after = shift >= size[2] ? 0 : (size[2] - shift - 1) / step + 1;
      const int64_t begin = first < last ? first : last, end = after < begin ? begin : after < last ? after : last;
      for (int64_t i = 0; i < out[0]; ++i)
        for (int64_t j = 0; j < out[1]; ++j, columns += last) {
          const int64_t d = i * stride[0] + shift0, h = j * stride[1] + shift1;
          const bool inside = d >= 0 && d < size[0] && h >= 0 && h < size[1];
          if (!inside) {
            if (!back) for (int64_t w = 0; w < last; ++w) columns[w] = 0;
            continue;
          }
          T* row = x + (d * size[1] + h) * size[2] + shift;
          if (back) {
            if (step == 1) {
#pragma omp simd
              for (int64_t w = begin; w < end; ++w) row[w] += columns[w];
            } else {
              for (int64_t w = begin; w < end; ++w) row[w * step] += columns[w];
            }
            continue;
          }
          for (int64_t w = 0; w < begin; ++w) columns[w] = 0;
          if (step == 1) {
            for (int64_t w = begin; w < end; ++w) columns[w] = row[w];
          } else {
            for (int64_t w = begin; w < end; ++w) columns[w] = row[w * step];
          }
          for (int64_t w = end; w < last; ++w) columns[w] = 0;
        }
    }
  return 0;
}
template <class T> static int64_t columns(const Tuple* t) { return windows<T, false>(t); }
template <class T> static int64_t columns_back(const Tuple* t) { return windows<T, true>(t); }
EXPORT dc_columns(void* arrays) { return BY_DTYPE(columns); }
EXPORT dc_columns_back(void* arrays) { return BY_DTYPE(columns_back); }

// ---- maxima of windows, of planes; method: ops/pooling/windows_maximum.py

template <class T> struct OffsetOf { typedef int32_t type; };  // as wide as T, so that both are lanes of one vector
template <> struct OffsetOf<double> { typedef int64_t type; };

// The maxima of n <= 64 windows of a row and where they are, counted from each window's corner. step: between windows.
template <class T, int64_t step, class I>
DC_INLINE void maxima_of_row(const T* x, int64_t n, int64_t stride, int64_t width, const int64_t* kernel,
                             const int64_t* dilation, T* best, I* at) {
  for (int64_t kh = 0; kh < kernel[0]; ++kh)
    for (int64_t kw = 0; kw < kernel[1]; ++kw) {
      const I offset = (I)(kh * dilation[0] * width + kw * dilation[1]);
      const T* const from = x + offset;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const T value = from[i * (step ? step : stride)];
        const bool better = (value > best[i]) | (value != value);
        best[i] = better ? value : best[i];
        at[i] = better ? offset : at[i];
      }
    }
}

// x[P, H, W], out[P, OH, OW], places in their planes i32[P, OH, OW], i64[8]: kernel, stride, dilation, padding in front
template <class T> static int64_t window_max(const Tuple* t) {
  typedef typename OffsetOf<T>::type I;
  const T* x = at<T>(t, 0);
  T* out = at<T>(t, 1);
  int32_t* places = at<int32_t>(t, 2);
  const int64_t *kernel = at<int64_t>(t, 3), *stride = kernel + 2, *dilation = kernel + 4, *low = kernel + 6;
  const int64_t *in = t->items[0]->shape, *counts = t->items[1]->shape;
  for (int64_t p = 0; p < in[0]; ++p, x += in[1] * in[2])
    for (int64_t oh = 0; oh < counts[1]; ++oh, out += counts[2], places += counts[2]) {
      const int64_t over = low[0] - oh * stride[0], above = over > 0 ? (over + dilation[0] - 1) / dilation[0] : 0;
      for (int64_t begin = 0; begin < counts[2]; begin += 64) {
        const int64_t n = counts[2] - begin < 64 ? counts[2] - begin : 64;
        const int64_t corner = oh * stride[0] * in[2] + begin * stride[1];
        T best[64];
        I found[64];
        for (int64_t i = 0; i < n; ++i) {
          const int64_t left = low[1] - (begin + i) * stride[1];
          const int64_t before = left > 0 ? (left + dilation[1] - 1) / dilation[1] * dilation[1] : 0;
          best[i] = -(T)__builtin_inf();
          found[i] = (I)(above * dilation[0] * in[2] + before);
        }
        const auto run = stride[1] == 1   ? maxima_of_row<T, 1, I>
                         : stride[1] == 2 ? maxima_of_row<T, 2, I>
                                          : maxima_of_row<T, 0, I>;
        run(x + corner, n, stride[1], in[2], kernel, dilation, best, found);
        for (int64_t i = 0; i < n; ++i) {
          out[begin + i] = best[i];
          places[begin + i] = (int32_t)(corner + i * stride[1] + found[i]);
        }
      }
    }
  return 0;
}

// g[P, windows], places i32[P, windows] -> dx[P, H * W], zeros before
template <class T> static int64_t window_max_backward(const Tuple* t) {
  const T* g = at<T>(t, 0);
  const int32_t* places = at<int32_t>(t, 1);
  T* dx = at<T>(t, 2);
  const int64_t windows = t->items[0]->shape[1], size = t->items[2]->shape[1];
  for (int64_t p = 0; p < t->items[0]->shape[0]; ++p, g += windows, places += windows, dx += size)
    for (int64_t i = 0; i < windows; ++i) dx[places[i]] += g[i];
  return 0;
}

EXPORT dc_window_max(void* arrays) { return BY_DTYPE(window_max); }
EXPORT dc_window_max_backward(void* arrays) { return BY_DTYPE(window_max_backward); }

// ---- cross entropy with class indices, and what is left of it where logarithms are given

template <class T> DC_INLINE T total_of(int64_t rows, const T* loss, int64_t count, int64_t mean) {
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r) sum += loss[r];
  return (T)(mean ? sum / (double)count : sum);
}

// x[N, C], target i64[N] -> loss[N], 0 where ignored; logs[2, N]: each row's greatest, and the logarithm of the row's sum
// of exp(x - greatest), of which the sum would have no digits where the greatest is large; counted, T[1]; the loss's sum,
// or its mean over those counted, T[1], if it is wanted. smoothing: how much of each target all classes share
template <class T> static int64_t cross_entropy(const Tuple* t, int64_t ignored, int64_t mean, double smoothing) {
  const T* x = at<T>(t, 0);
  const int64_t* target = at<int64_t>(t, 1);
  T *loss = at<T>(t, 2), *logs = at<T>(t, 3);
  const int64_t rows = numel(t->items[1]), n = rows ? numel(t->items[0]) / rows : 0;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r, x += n) {
    const T peak = max_of(n, x);
    const T logarithm = log_of(sum_of<T>(n, [=](int64_t i) { return exp_of(x[i] - peak); }));
    logs[r] = peak, logs[rows + r] = logarithm;
    const bool counts = target[r] != ignored;
    if (counts && (target[r] < 0 || target[r] >= n)) return 1;
    loss[r] = counts ? logarithm - (x[target[r]] - peak) : (T)0;
    if (counts && smoothing) {
      const T spread = (T)n * logarithm - sum_of<T>(n, [=](int64_t i) { return x[i] - peak; });
      loss[r] = loss[r] * (T)(1 - smoothing) + spread * (T)(smoothing / (double)n);
    }
    count += counts;
  }
  *at<T>(t, 4) = (T)count;
  if (T* total = at<T>(t, 5)) *total = total_of(rows, loss, count, mean);
  return 0;
}

// x, target, logs, g[N] or g[1] for all -> dx
template <class T> static int64_t cross_entropy_backward(const Tuple* t, int64_t ignored, double smoothing) {
  const T *x = at<T>(t, 0), *logs = at<T>(t, 2), *g = at<T>(t, 3);
  const int64_t* target = at<int64_t>(t, 1);
  T* dx = at<T>(t, 4);
  const int64_t rows = numel(t->items[1]), n = rows ? numel(t->items[0]) / rows : 0;
  const bool alike = numel(t->items[3]) != rows;
  const T chosen = (T)(1 - smoothing), each = (T)(smoothing / (double)n);
  for (int64_t r = 0; r < rows; ++r, x += n, dx += n) {
    const bool counts = target[r] != ignored;
    const T factor = counts ? g[alike ? 0 : r] : (T)0, peak = logs[r], logarithm = logs[rows + r];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = counts ? (exp_of(x[i] - peak - logarithm) - each) * factor : (T)0;
    if (counts) dx[target[r]] -= chosen * factor;
  }
  return 0;
}

// x[N, C], target i64[N] -> loss[N], 0 where ignored; counted, T[1]; the loss's sum, or mean, T[1], if it is wanted
template <class T> static int64_t nll_loss(const Tuple* t, int64_t ignored, int64_t mean) {
  const T* x = at<T>(t, 0);
  const int64_t* target = at<int64_t>(t, 1);
  T* loss = at<T>(t, 2);
  const int64_t rows = numel(t->items[1]), n = rows ? numel(t->items[0]) / rows : 0;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r, x += n) {
    const bool counts = target[r] != ignored;
    if (counts && (target[r] < 0 || target[r] >= n)) return 1;
    loss[r] = counts ? -x[target[r]] : (T)0;
    count += counts;
  }
  *at<T>(t, 3) = (T)count;
  if (T* total = at<T>(t, 4)) *total = total_of(rows, loss, count, mean);
  return 0;
}

// g[N] or g[1] for all, target -> dx, which is 0
template <class T> static int64_t nll_loss_backward(const Tuple* t, int64_t ignored) {
  const T* g = at<T>(t, 0);
  const int64_t* target = at<int64_t>(t, 1);
  T* dx = at<T>(t, 2);
  const int64_t rows = numel(t->items[1]), n = rows ? numel(t->items[2]) / rows : 0;
  const bool alike = numel(t->items[0]) != rows;
  for (int64_t r = 0; r < rows; ++r, dx += n)
    if (target[r] != ignored) dx[target[r]] = -g[alike ? 0 : r];
  return 0;
}

EXPORT dc_nll_loss(void* arrays, int64_t ignored, int64_t mean) { return BY_DTYPE(nll_loss, ignored, mean); }
EXPORT dc_nll_loss_backward(void* arrays, int64_t ignored) { return BY_DTYPE(nll_loss_backward, ignored); }
EXPORT dc_cross_entropy(void* arrays, int64_t ignored, int64_t mean, double smoothing) {
  return BY_DTYPE(cross_entropy, ignored, mean, smoothing);
}
EXPORT dc_cross_entropy_backward(void* arrays, int64_t ignored, double smoothing) {
  return BY_DTYPE(cross_entropy_backward, ignored, smoothing);
}

// ---- embedding: rows of g[N, C] added to rows index i64[N] of out[V, C]

template <class T> static int64_t add_rows(const Tuple* t) {
  const T* g = at<T>(t, 0);
  const int64_t* index = at<int64_t>(t, 1);
  T* out = at<T>(t, 2);
  const int64_t count = numel(t->items[1]), n = count ? numel(t->items[0]) / count : 0, rows = t->items[2]->shape[0];
  for (int64_t r = 0; r < count; ++r, g += n) {
    if (index[r] < 0 || index[r] >= rows) return 1;
    T* row = out + index[r] * n;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) row[i] += g[i];
  }
  return 0;
}
EXPORT dc_add_rows(void* arrays) { return BY_DTYPE(add_rows); }

// ---- where: cond bool, a, b -> out, of elements of `size` bytes; a or b may be one element, which repeats

template <class T> static int64_t choose(const Tuple* t) {
  const uint8_t* cond = at<uint8_t>(t, 0);
  const T *a = at<T>(t, 1), *b = at<T>(t, 2), one = *a, other = *b;
  T* out = at<T>(t, 3);
  const int64_t n = numel(t->items[3]);
  const bool repeats = numel(t->items[1]) < n, repeats_too = numel(t->items[2]) < n;
  if (repeats && repeats_too) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = cond[i] ? one : other;
  } else if (repeats) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = cond[i] ? one : b[i];
  } else if (repeats_too) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = cond[i] ? a[i] : other;
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = cond[i] ? a[i] : b[i];
  }
  return 0;
}
EXPORT dc_choose(void* arrays, int64_t size) {
  const Tuple* t = (const Tuple*)arrays;
  if (!is_dense(t)) return -1;
  if (size < 4) return size == 1 ? choose<uint8_t>(t) : choose<uint16_t>(t);
  return size == 4 ? choose<uint32_t>(t) : choose<uint64_t>(t);
}

// ---- erf: x f32 -> out

EXPORT dc_erf_of(void* arrays) {
  const Tuple* t = (const Tuple*)arrays;
  if (!is_dense(t)) return -1;
  const float* x = at<float>(t, 0);
  float* out = at<float>(t, 1);
  const int64_t n = numel(t->items[0]);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = dc_erf(x[i]);
  return 0;
}

// ---- dropout

// x, key u64[3] (seed, offset, shard) -> out, kept u8: bits as ops/random/op.py defines them, kept where >= threshold
template <class T> static int64_t dropout(const Tuple* t, double factor, int64_t stream, int64_t threshold) {
  const T *x = at<T>(t, 0), scale = (T)factor;
  const uint64_t* key = at<uint64_t>(t, 1);
  T* out = at<T>(t, 2);
  uint8_t* kept = at<uint8_t>(t, 3);
  const int64_t n = numel(t->items[0]);
  const uint64_t seed = key[0], counter = key[1] + (uint64_t)stream, first = key[2] * (uint64_t)n;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const bool keep = dc_philox(seed, counter, first + (uint64_t)i) >= (uint32_t)threshold;
    kept[i] = keep;
    out[i] = x[i] * (keep ? scale : (T)0);
  }
  return 0;
}

// g, kept -> dx
template <class T> static int64_t dropout_backward(const Tuple* t, double factor) {
  const T *g = at<T>(t, 0), scale = (T)factor;
  const uint8_t* kept = at<uint8_t>(t, 1);
  T* dx = at<T>(t, 2);
  const int64_t n = numel(t->items[0]);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dx[i] = g[i] * (kept[i] ? scale : (T)0);
  return 0;
}

EXPORT dc_dropout(void* arrays, double scale, int64_t stream, int64_t threshold) {
  return BY_DTYPE(dropout, scale, stream, threshold);
}
EXPORT dc_dropout_backward(void* arrays, double scale) { return BY_DTYPE(dropout_backward, scale); }
