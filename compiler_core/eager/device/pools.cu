// Kernels of pooling in eager code on a CUDA device: maxima and averages of windows, and their gradients.
//
// In: x as [planes, H, W, channels]: of row-major arrays all planes, and one channel; with channels last in memory the
// samples, and all channels; results as [planes, P, Q, channels]; before this text those of numbers.cu and rows.cu. Out: the
// arrays that are written.
// Window (p, q) begins at p * SH - LH, q * SW - LW, and what lies outside of x is none of its elements. A thread has a
// place, and V channels of it at once: WIDTH where `wide` says that all lie so. Gradients are gathered: each thread looks
// for the windows that its place lies in, always in the same order.

__device__ inline int least(int a, int b) { return a < b ? a : b; }
__device__ inline int most(int a, int b) { return a > b ? a : b; }

#define EACH(k) for (int k = 0; k < V; ++k)
#define BY_WIDTH(body, ...)           \
  if (wide) body<WIDTH>(__VA_ARGS__); \
  else body<1>(__VA_ARGS__);
// Each of `n` groups of V elements of an array [planes, HEIGHT, ROW, channels]: where it is.
#define PLACES(HEIGHT, ROW)                                                                                  \
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {                  \
    const unsigned pieces = channels / V, piece = i % pieces, flat = i / pieces, rest = flat / (unsigned)(ROW);         \
    const int column = flat % (unsigned)(ROW), row = rest % (unsigned)(HEIGHT);                                         \
    const i64 plane = rest / (unsigned)(HEIGHT);

template <int V> __device__ inline void maxima_of(const T* x, T* out, u8* chosen, unsigned n, unsigned channels, int H, int W,
                                                  int P, int Q, int KH, int KW, int SH, int SW, int DH, int DW, int LH,
                                                  int LW) {
  PLACES(P, Q)
    C best[V], given[V];
    int at[V];
    EACH(k) {
      best[k] = -infinity();
      at[k] = 255;  // nowhere
    }
    for (int kh = 0; kh < KH; ++kh) {
      const int h = row * SH - LH + kh * DH;
      if (h < 0 || h >= H) continue;
      for (int kw = 0; kw < KW; ++kw) {
        const int w = column * SW - LW + kw * DW;
        if (w < 0 || w >= W) continue;
        load<V>(x + ((plane * H + h) * W + w) * channels + piece * V, given);
#pragma unroll
        EACH(k) {
          if (given[k] > best[k] || given[k] != given[k] || at[k] == 255) {
            best[k] = given[k];
            at[k] = kh * KW + kw;
          }
        }
      }
    }
    store<V>(out + (i64)i * V, best);
    EACH(k) chosen[(i64)i * V + k] = (u8)at[k];
  }
}

// chosen: which element of a window is its maximum, the first of equals, the last NaN.
KERNEL maxima(const T* x, T* out, u8* chosen, unsigned n, unsigned channels, int H, int W, int P, int Q, int KH, int KW, int SH,
              int SW, int DH, int DW, int LH, int LW, int wide) {
  BY_WIDTH(maxima_of, x, out, chosen, n, channels, H, W, P, Q, KH, KW, SH, SW, DH, DW, LH, LW)
}

template <int V> __device__ inline void maxima_back(const T* g, const u8* chosen, T* dx, unsigned n, unsigned channels, int H,
                                                    int W, int P, int Q, int KH, int KW, int SH, int SW, int DH, int DW,
                                                    int LH, int LW) {
  PLACES(H, W)
    C total[V], given[V];
    EACH(k) total[k] = 0;
    for (int kh = 0; kh < KH; ++kh) {
      const int down = row + LH - kh * DH, p = down / SH;
      if (down < 0 || p * SH != down || p >= P) continue;
      for (int kw = 0; kw < KW; ++kw) {
        const int along = column + LW - kw * DW, q = along / SW;
        if (along < 0 || q * SW != along || q >= Q) continue;
        const i64 window = ((plane * P + p) * Q + q) * channels + piece * V;
        load<V>(g + window, given);
#pragma unroll
        EACH(k) if (chosen[window + k] == kh * KW + kw) total[k] += given[k];
      }
    }
    store<V>(dx + (i64)i * V, total);
  }
}

KERNEL maxima_backward(const T* g, const u8* chosen, T* dx, unsigned n, unsigned channels, int H, int W, int P, int Q, int KH,
                       int KW, int SH, int SW, int DH, int DW, int LH, int LW, int wide) {
  BY_WIDTH(maxima_back, g, chosen, dx, n, channels, H, W, P, Q, KH, KW, SH, SW, DH, DW, LH, LW)
}

// What a window's sum is divided by. padded: zeros around x count as elements. divisor: where it is not 0, that.
__device__ inline C divisor_of(int p, int q, int H, int W, int KH, int KW, int SH, int SW, int LH, int LW, int padded,
                               int divisor) {
  if (divisor) return (C)divisor;
  int top = p * SH - LH, left = q * SW - LW;
  int bottom = least(top + KH, H + LH), right = least(left + KW, W + LW);
  if (!padded) {
    top = most(top, 0);
    left = most(left, 0);
    bottom = least(bottom, H);
    right = least(right, W);
  }
  return (C)((bottom - top) * (i64)(right - left));
}

template <int V> __device__ inline void averages_of(const T* x, T* out, unsigned n, unsigned channels, int H, int W, int P, int Q,
                                                    int KH, int KW, int SH, int SW, int LH, int LW, int padded,
                                                    int divisor) {
  PLACES(P, Q)
    C total[V], given[V];
    EACH(k) total[k] = 0;
    for (int h = most(row * SH - LH, 0); h < least(row * SH - LH + KH, H); ++h)
      for (int w = most(column * SW - LW, 0); w < least(column * SW - LW + KW, W); ++w) {
        load<V>(x + ((plane * H + h) * W + w) * channels + piece * V, given);
#pragma unroll
        EACH(k) total[k] += given[k];
      }
    const C by = divisor_of(row, column, H, W, KH, KW, SH, SW, LH, LW, padded, divisor);
    EACH(k) total[k] /= by;
    store<V>(out + (i64)i * V, total);
  }
}

KERNEL averages(const T* x, T* out, unsigned n, unsigned channels, int H, int W, int P, int Q, int KH, int KW, int SH, int SW,
                int LH, int LW, int padded, int divisor, int wide) {
  BY_WIDTH(averages_of, x, out, n, channels, H, W, P, Q, KH, KW, SH, SW, LH, LW, padded, divisor)
}

template <int V> __device__ inline void averages_back(const T* g, T* dx, unsigned n, unsigned channels, int H, int W, int P, int Q,
                                                      int KH, int KW, int SH, int SW, int LH, int LW, int padded,
                                                      int divisor) {
  PLACES(H, W)
    C total[V], given[V];
    EACH(k) total[k] = 0;
    const int down = row + LH, along = column + LW;
    for (int p = down < KH ? 0 : (down - KH) / SH + 1; p <= down / SH && p < P; ++p)
      for (int q = along < KW ? 0 : (along - KW) / SW + 1; q <= along / SW && q < Q; ++q) {
        const C by = divisor_of(p, q, H, W, KH, KW, SH, SW, LH, LW, padded, divisor);
        load<V>(g + ((plane * P + p) * Q + q) * channels + piece * V, given);
#pragma unroll
        EACH(k) total[k] += given[k] / by;
      }
    store<V>(dx + (i64)i * V, total);
  }
}

KERNEL averages_backward(const T* g, T* dx, unsigned n, unsigned channels, int H, int W, int P, int Q, int KH, int KW, int SH,
                         int SW, int LH, int LW, int padded, int divisor, int wide) {
  BY_WIDTH(averages_back, g, dx, n, channels, H, W, P, Q, KH, KW, SH, SW, LH, LW, padded, divisor)
}
