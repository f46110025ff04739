// Kernels of planes: depthwise convolutions' gradients, and resampling along a dim.
//
// In: as in kernels.h, behind which it stands. Planes are copied into wider ones with zeros around, so that no window
// leaves them; a window's row, or a row of results, is a vector.

template <class T> struct LanesOf;
template <> struct LanesOf<float> { typedef float type __attribute__((vector_size(32), aligned(4), may_alias)); };
template <> struct LanesOf<double> { typedef double type __attribute__((vector_size(32), aligned(8), may_alias)); };
constexpr int64_t LANE_BYTES = 32, ROWS = 4;  // bytes of a vector; vectors of results at a time

// A plane from[height, width] into to[.., pitch], moved by (down, right); what leaves to[rows, columns] is left out.
template <class T>
DC_INLINE void put_plane(T* to, int64_t rows, int64_t columns, int64_t pitch, const T* from, int64_t height,
                         int64_t width, int64_t down, int64_t right) {
  const int64_t top = down < 0 ? -down : 0, bottom = height < rows - down ? height : rows - down;
  const int64_t left = right < 0 ? -right : 0, end = width < columns - right ? width : columns - right;
  for (int64_t r = top; r < bottom; ++r)
    for (int64_t c = left; c < end; ++c) to[(r + down) * pitch + c + right] = from[r * width + c];
}

// The sums of one plane for `height` rows of a window, from row kh and column kw on: as many columns as a vector has.
template <class T, int64_t height>
DC_INLINE void window_rows(const T* g, const T* wide, int64_t pitch, const int64_t* out, const int64_t* stride,
                           const int64_t* kernel, int64_t kh, int64_t kw, double* total) {
  typedef typename LanesOf<T>::type V;
  V sums[height];
#pragma GCC unroll 8
  for (int64_t k = 0; k < height; ++k) sums[k] = V{};
  for (int64_t i = 0; i < out[0]; ++i)
    for (int64_t j = 0; j < out[1]; ++j) {
      const T* const from = wide + (i * stride[0] + kh) * pitch + j * stride[1] + kw;
      const T by = g[i * out[1] + j];
#pragma GCC unroll 8
      for (int64_t k = 0; k < height; ++k) sums[k] += by * *(const V*)(from + k * pitch);
    }
  for (int64_t k = 0; k < height; ++k)
    for (int64_t l = 0; l < LANE_BYTES / (int64_t)sizeof(T) && kw + l < kernel[1]; ++l)
      total[(kh + k) * kernel[1] + kw + l] += (double)sums[k][l];
}

// g[N, C, OH, OW], x[N, C, H, W], dw[C, KH, KW], zeros for a wider plane, zeros f64[KH * KW], i64[8]: stride, padding
// in front, sizes of the wider plane without and with what vectors read beyond it (rows, pitch), 0
template <class T> static int64_t depthwise_weight(const Tuple* t) {
  const T *g = at<T>(t, 0), *x = at<T>(t, 1);
  T *dw = at<T>(t, 2), *wide = at<T>(t, 3);
  double* total = at<double>(t, 4);
  const int64_t *of = at<int64_t>(t, 5), *out = t->items[0]->shape + 2, *size = t->items[1]->shape + 2;
  const int64_t *kernel = t->items[2]->shape + 1, batch = t->items[1]->shape[0], channels = t->items[1]->shape[1];
  const int64_t lanes = LANE_BYTES / (int64_t)sizeof(T), rows = of[4], pitch = of[5], count = kernel[0] * kernel[1];
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < count; ++k) total[k] = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const int64_t plane = n * channels + c;
      const T* const from = g + plane * out[0] * out[1];
      put_plane(wide, rows, pitch, pitch, x + plane * size[0] * size[1], size[0], size[1], of[2], of[3]);
      for (int64_t kw = 0; kw < kernel[1]; kw += lanes)
        for (int64_t kh = 0; kh < kernel[0];) {
          const int64_t left = kernel[0] - kh;
          if (left >= 7) { window_rows<T, 7>(from, wide, pitch, out, of, kernel, kh, kw, total); kh += 7; }
          else if (left >= 5) { window_rows<T, 5>(from, wide, pitch, out, of, kernel, kh, kw, total); kh += 5; }
          else if (left >= 3) { window_rows<T, 3>(from, wide, pitch, out, of, kernel, kh, kw, total); kh += 3; }
          else { window_rows<T, 1>(from, wide, pitch, out, of, kernel, kh, kw, total); kh += 1; }
        }
    }
    for (int64_t k = 0; k < count; ++k) dw[c * count + k] = (T)total[k];
  }
  return 0;
}

// The sums of one plane for `width` elements of a window's row: products of g, spread to the pitch of x, and x itself,
// which stands `step` further for each of them.
template <class T, int64_t width>
DC_INLINE void window_row(const T* g, const T* wide, int64_t count, int64_t step, double* total) {
  typedef typename LanesOf<T>::type V;
  V sums[width];
#pragma GCC unroll 8
  for (int64_t k = 0; k < width; ++k) sums[k] = V{};
  for (int64_t j = 0; j < count; j += LANE_BYTES / (int64_t)sizeof(T)) {
    const V by = *(const V*)(g + j);
#pragma GCC unroll 8
    for (int64_t k = 0; k < width; ++k) sums[k] += by * *(const V*)(wide + j + k * step);
  }
  for (int64_t k = 0; k < width; ++k)
    for (int64_t l = 0; l < LANE_BYTES / (int64_t)sizeof(T); ++l) total[k] += (double)sums[k][l];
}

// g[N, C, OH, OW], x[N, C, H, W], dw[C, KH, KW], zeros for a wider plane of x and one of g, zeros f64[KH * KW], i64[8]:
// dilation, padding in front, rows and pitch of x's plane, 0, 0. Steps of one.
template <class T> static int64_t depthwise_dilated_weight(const Tuple* t) {
  const T *g = at<T>(t, 0), *x = at<T>(t, 1);
  T *dw = at<T>(t, 2), *wide = at<T>(t, 3), *spread = at<T>(t, 4);
  double* total = at<double>(t, 5);
  const int64_t *of = at<int64_t>(t, 6), *out = t->items[0]->shape + 2, *size = t->items[1]->shape + 2;
  const int64_t *kernel = t->items[2]->shape + 1, batch = t->items[1]->shape[0], channels = t->items[1]->shape[1];
  const int64_t rows = of[4], pitch = of[5], count = kernel[0] * kernel[1], elements = out[0] * pitch;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t k = 0; k < count; ++k) total[k] = 0;
    for (int64_t n = 0; n < batch; ++n) {
      const int64_t plane = n * channels + c;
      put_plane(wide, rows, pitch, pitch, x + plane * size[0] * size[1], size[0], size[1], of[2], of[3]);
      put_plane(spread, out[0], pitch, pitch, g + plane * out[0] * out[1], out[0], out[1], 0, 0);
      for (int64_t kh = 0; kh < kernel[0]; ++kh)
        for (int64_t kw = 0; kw < kernel[1];) {
          const T* const from = wide + kh * of[0] * pitch + kw * of[1];
          double* const to = total + kh * kernel[1] + kw;
          const int64_t left = kernel[1] - kw;
          if (left >= 5) { window_row<T, 5>(spread, from, elements, of[1], to); kw += 5; }
          else if (left >= 3) { window_row<T, 3>(spread, from, elements, of[1], to); kw += 3; }
          else { window_row<T, 1>(spread, from, elements, of[1], to); kw += 1; }
        }
    }
    for (int64_t k = 0; k < count; ++k) dw[c * count + k] = (T)total[k];
  }
  return 0;
}

// g[N, C, OH, OW], w[C, KH, KW], dx[N, C, H, W], zeros for a wider plane of g, memory for one of dx, i64[6]: where g
// stands in it (down, right), its rows and its pitch, dilation. Steps of one.
template <class T> static int64_t depthwise_input(const Tuple* t) {
  typedef typename LanesOf<T>::type V;
  const T *g = at<T>(t, 0), *w = at<T>(t, 1);
  T *dx = at<T>(t, 2), *wide = at<T>(t, 3), *made = at<T>(t, 4);
  const int64_t *of = at<int64_t>(t, 5), *out = t->items[0]->shape + 2, *size = t->items[2]->shape + 2;
  const int64_t *kernel = t->items[1]->shape + 1, planes = t->items[2]->shape[0] * t->items[2]->shape[1];
  const int64_t lanes = LANE_BYTES / (int64_t)sizeof(T), pitch = of[3], channels = t->items[2]->shape[1];
  for (int64_t p = 0; p < planes; ++p) {
    const T* const by = w + p % channels * kernel[0] * kernel[1] + kernel[0] * kernel[1] - 1;
    put_plane(wide, of[2], pitch, pitch, g + p * out[0] * out[1], out[0], out[1], of[0], of[1]);
    for (int64_t j = 0; j < size[0] * pitch; j += ROWS * lanes) {
      V sums[ROWS];
#pragma GCC unroll 4
      for (int64_t r = 0; r < ROWS; ++r) sums[r] = V{};
      for (int64_t a = 0; a < kernel[0]; ++a)
        for (int64_t b = 0; b < kernel[1]; ++b) {
          const T weight = by[-(a * kernel[1] + b)];
          const T* const from = wide + j + a * of[4] * pitch + b * of[5];
#pragma GCC unroll 4
          for (int64_t r = 0; r < ROWS; ++r) sums[r] += weight * *(const V*)(from + r * lanes);
        }
#pragma GCC unroll 4
      for (int64_t r = 0; r < ROWS; ++r) *(V*)(made + j + r * lanes) = sums[r];
    }
    T* const to = dx + p * size[0] * size[1];
    for (int64_t i = 0; i < size[0]; ++i)
      for (int64_t j = 0; j < size[1]; ++j) to[i * size[1] + j] = made[i * pitch + j];
  }
  return 0;
}

EXPORT dc_depthwise_weight(void* arrays) { return BY_DTYPE(depthwise_weight); }
EXPORT dc_depthwise_dilated_weight(void* arrays) { return BY_DTYPE(depthwise_dilated_weight); }
EXPORT dc_depthwise_input(void* arrays) { return BY_DTYPE(depthwise_input); }

// ---- resampling: element i along a dim is the sum of weights[i, l] times element places[i, l]

// x[K, n, R], out[K, o, R], places i64[o, L], weights[o, L]; back: to x, which holds zeros, from out
template <class T, bool back> static int64_t resampled(const Tuple* t) {
  T *x = at<T>(t, 0), *out = at<T>(t, 1);
  const int64_t* places = at<int64_t>(t, 2);
  const T* weights = at<T>(t, 3);
  const int64_t *shape = t->items[0]->shape, count = t->items[2]->shape[0], taps = t->items[2]->shape[1];
  const int64_t lead = shape[0], size = shape[1], rest = shape[2];
  for (int64_t k = 0; k < count * taps; ++k)
    if (places[k] < 0 || places[k] >= size) return 1;
  for (int64_t q = 0; q < lead; ++q, x += size * rest, out += count * rest) {
    if (rest == 1) {
      for (int64_t i = 0; i < count; ++i) {
        T sum = 0;
        for (int64_t l = i * taps; l < (i + 1) * taps; ++l) {
          if (back) x[places[l]] += weights[l] * out[i];
          else sum += weights[l] * x[places[l]];
        }
        if (!back) out[i] = sum;
      }
      continue;
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t l = 0; l < taps; ++l) {
        T *from = x + places[i * taps + l] * rest, *to = out + i * rest;
        const T weight = weights[i * taps + l];
        if (back) {
#pragma omp simd
          for (int64_t r = 0; r < rest; ++r) from[r] += weight * to[r];
        } else if (!l) {
#pragma omp simd
          for (int64_t r = 0; r < rest; ++r) to[r] = weight * from[r];
        } else {
#pragma omp simd
          for (int64_t r = 0; r < rest; ++r) to[r] += weight * from[r];
        }
      }
  }
  return 0;
}
template <class T> static int64_t resample(const Tuple* t) { return resampled<T, false>(t); }
template <class T> static int64_t resample_back(const Tuple* t) { return resampled<T, true>(t); }
EXPORT dc_resample(void* arrays) { return BY_DTYPE(resample); }
EXPORT dc_resample_back(void* arrays) { return BY_DTYPE(resample_back); }
