// Depthwise convolutions of 16-bit floats in eager code on a CUDA device: one channel a group, and their gradients.
//
// In: dense arrays with channels last, an even number of them, on four bytes; weights as f32[taps, channels]; before this
// text KW, SW, DW, the kernel's width, stride and dilation along a row, RUN, and that of numbers.cu. Out: the
// arrays that are written. A thread has two channels, and RUN results that lie side by side: it reads what these read
// once, SPAN places of each row. N, H, W and OH, OW: sizes of what is read and of the result; KH, SH, DH: as KW, SW, DW;
// PH, PW: zeros in front; counts are below 2^31; runs: how many a row of results has; pairs: of channels.

#define SPAN ((RUN - 1) * SW + (KW - 1) * DW + 1)

struct alignas(8) Pair { C a, b; };

__device__ inline Pair pair_of(unsigned both) {
  Pair made;
  made.a = in((T)(both & 0xFFFF));
  made.b = in((T)(both >> 16));
  return made;
}
__device__ inline unsigned as_both(C a, C b) { return (unsigned)as_stored(a) | (unsigned)as_stored(b) << 16; }

// `count` pairs of a row that is `width` long, `from` the place `first` on; zeros beside it
template <int count> __device__ inline void read(const T* row, int first, int width, int pairs, Pair* to) {
  const unsigned* at = (const unsigned*)row + (i64)first * pairs;
#pragma unroll
  for (int s = 0; s < count; ++s, at += pairs) {
    const int place = first + s;
    to[s] = pair_of(place >= 0 && place < width ? *at : 0u);
  }
}

// out of x; b: a bias, or null. flip: the weight's taps from the last on.
KERNEL depthwise(const T* x, const C* w, const T* b, T* out, i64 count, int pairs, int H, int W, int OH, int OW, int KH,
                 int SH, int DH, int PH, int PW, int runs, int flip) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned piece = i / (unsigned)pairs, row = piece / (unsigned)runs;
  const int pair = i - piece * pairs, turn = piece - row * runs, oh = row % (unsigned)OH, left = turn * RUN * SW - PW;
  const i64 line = row, sample = row / (unsigned)OH;
  Pair sums[RUN];
#pragma unroll
  for (int t = 0; t < RUN; ++t) sums[t].a = sums[t].b = 0;
  for (int kh = 0; kh < KH; ++kh) {
    const int h = oh * SH + kh * DH - PH;
    if (h < 0 || h >= H) continue;
    Pair given[SPAN];
    read<SPAN>(x + ((sample * H + h) * W * pairs + pair) * 2, left, W, pairs, given);
#pragma unroll
    for (int kw = 0; kw < KW; ++kw) {
      const int tap = flip ? (KH - 1 - kh) * KW + KW - 1 - kw : kh * KW + kw;
      const Pair weight = ((const Pair*)w)[(i64)tap * pairs + pair];
#pragma unroll
      for (int t = 0; t < RUN; ++t) {
        sums[t].a += given[t * SW + kw * DW].a * weight.a;
        sums[t].b += given[t * SW + kw * DW].b * weight.b;
      }
    }
  }
  Pair bias;
  bias.a = bias.b = 0;
  if (b) bias = pair_of(((const unsigned*)b)[pair]);
  unsigned* const to = (unsigned*)out + (line * OW + turn * RUN) * pairs + pair;
#pragma unroll
  for (int t = 0; t < RUN; ++t)
    if (turn * RUN + t < OW) to[(i64)t * pairs] = as_both(sums[t].a + bias.a, sums[t].b + bias.b);
}

// The input's gradient where a stride is not 1: each element gathers what it gave to. g: [N, OH, OW]; dx: [N, H, W].
KERNEL depthwise_input(const T* g, const C* w, T* dx, i64 count, int pairs, int H, int W, int OH, int OW, int KH, int SH,
                       int DH, int PH, int PW) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned place = i / (unsigned)pairs, row = place / (unsigned)W;
  const int pair = i - place * pairs, left = place - row * W, h = row % (unsigned)H;
  const i64 sample = row / (unsigned)H;
  Pair sum;
  sum.a = sum.b = 0;
  for (int kh = 0; kh < KH; ++kh) {
    const int down = h + PH - kh * DH, oh = down / SH;
    if (down < 0 || down % SH || oh >= OH) continue;
#pragma unroll
    for (int kw = 0; kw < KW; ++kw) {
      const int along = left + PW - kw * DW, ow = along / SW;
      if (along < 0 || along % SW || ow >= OW) continue;
      const Pair slope = pair_of(((const unsigned*)g)[((sample * OH + oh) * OW + ow) * pairs + pair]);
      const Pair weight = ((const Pair*)w)[(i64)(kh * KW + kw) * pairs + pair];
      sum.a += slope.a * weight.a;
      sum.b += slope.b * weight.b;
    }
  }
  ((unsigned*)dx)[i] = as_both(sum.a, sum.b);
}

// parts[splits, KH * KW, channels]: of the weight's gradient. A block has a row of the kernel, blockIdx.x % KH, `lanes`
// pairs of channels (a power of two), and `share` runs of all that there are, of which its levels take turns.
KERNEL depthwise_weight(const T* x, const T* g, C* parts, i64 all, i64 share, int lanes, int pairs, int H, int W, int OH,
                        int OW, int KH, int SH, int DH, int PH, int PW, int runs) {
  __shared__ C room[MOST];
  const int kh = blockIdx.x % KH, pair = blockIdx.x / KH * lanes + threadIdx.x % lanes, levels = blockDim.x / lanes;
  const unsigned first = blockIdx.y * share, last = first + share < all ? first + share : all;
  Pair sums[KW];
#pragma unroll
  for (int kw = 0; kw < KW; ++kw) sums[kw].a = sums[kw].b = 0;
  if (pair < pairs)
    for (unsigned i = first + threadIdx.x / lanes; i < last; i += levels) {
      const unsigned row = i / (unsigned)runs;
      const int turn = i - row * runs, h = (int)(row % (unsigned)OH) * SH + kh * DH - PH;
      const i64 line = row, sample = row / (unsigned)OH;
      if (h < 0 || h >= H) continue;
      Pair given[SPAN], slopes[RUN];
      read<SPAN>(x + ((sample * H + h) * W * pairs + pair) * 2, turn * RUN * SW - PW, W, pairs, given);
      read<RUN>(g + (line * OW * pairs + pair) * 2, turn * RUN, OW, pairs, slopes);
#pragma unroll
      for (int t = 0; t < RUN; ++t)
        if (turn * RUN + t < OW) {  // a zero in its place would make NaN of what is not finite
#pragma unroll
          for (int kw = 0; kw < KW; ++kw) {
            sums[kw].a += given[t * SW + kw * DW].a * slopes[t].a;
            sums[kw].b += given[t * SW + kw * DW].b * slopes[t].b;
          }
        }
    }
#pragma unroll
  for (int k = 0; k < 2 * KW; ++k) {
    room[threadIdx.x] = k % 2 ? sums[k / 2].b : sums[k / 2].a;
    __syncthreads();
    for (int half = MOST / 2; half >= lanes; half /= 2) {
      if (threadIdx.x < half) room[threadIdx.x] += room[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x < lanes && pair < pairs)
      parts[(((i64)blockIdx.y * KH + kh) * KW + k / 2) * pairs * 2 + 2 * pair + k % 2] = room[threadIdx.x];
    __syncthreads();
  }
}
