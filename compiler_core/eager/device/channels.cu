// Kernels of batch norm in eager code on a CUDA device: statistics of each channel, what they normalise, gradients.
//
// In: dense arrays, row-major [batch, channels, length], or with channels last [rows, channels]; what belongs to a channel
// in the dtype computed in, C; before this text that of numbers.cu. Out: the arrays that are written.
//
// A block takes a part of the elements of its channels: `share` units of `units`, which are rows where channels lie last,
// else the pieces of all planes of a channel. V elements are moved at once: 16 bytes where `wide` says that all lie so.
// lanes: where channels lie last, how many threads of a block lie side by side along them, a power of two; 0: row-major.
// A mean is told from a thread's first element, the squares from that mean, and then pairs of both are joined (Chan,
// Golub, LeVeque 1979): x is read once, and no element that lies far off spoils more than its thread's share.

#define EACH(k) for (int k = 0; k < V; ++k)

// The units of one thread, one after the other. column: its first channel, of V where channels lie last, else of one.
template <int V, bool last> struct Walk {
  i64 unit, step, stop, channels;
  unsigned pieces;  // of a plane
  int column;

  __device__ inline Walk(i64 units, int all, int length, int lanes, i64 share) {
    const i64 first = blockIdx.y * share;
    channels = all;
    pieces = length / V;
    column = last ? (blockIdx.x * lanes + threadIdx.x % lanes) * V : blockIdx.x;
    unit = first + (last ? threadIdx.x / lanes : threadIdx.x);
    step = last ? blockDim.x / lanes : blockDim.x;
    stop = column >= all ? 0 : first + share < units ? first + share : units;
  }
  __device__ inline bool goes_on() const { return unit < stop; }
  __device__ inline void next() { unit += step; }
  __device__ inline int channel(int k) const { return column >= channels ? 0 : last ? column + k : column; }
  __device__ inline i64 at() const {
    if (last) return unit * channels + column;
    const unsigned sample = (unsigned)unit / pieces;
    return (sample * channels + column) * pieces * V + ((unsigned)unit - sample * pieces) * V;
  }
};
#define WALK Walk<V, last> walk(units, channels, length, lanes, share); walk.goes_on(); walk.next()
#define BY_ORDER(body, ...)                                  \
  if (lanes) {                                               \
    if (wide) body<WIDTH, true>(__VA_ARGS__);                \
    else body<1, true>(__VA_ARGS__);                         \
  } else {                                                   \
    if (wide) body<WIDTH, false>(__VA_ARGS__);               \
    else body<1, false>(__VA_ARGS__);                        \
  }

// ---- joined over the threads of a block that have the same channels: every `lanes`-th; the first of each has the result

// (mean, squares of the distance to it) of `count` numbers, and those of `more`.
__device__ inline void join(C& mean, C& squares, C count, C mean_too, C squares_too, C more) {
  if (!more) return;
  const C apart = mean_too - mean, part = more / (count + more);
  mean = count ? mean + apart * part : mean_too;
  squares = count ? squares + squares_too + apart * apart * count * part : squares_too;
}

template <int V> __device__ inline void join_over_block(C* mean, C* squares, C count, int lanes, C* room) {
  C* const counts = room + 2 * V * MOST + threadIdx.x;
  C* const own = room + threadIdx.x;
#pragma unroll
  EACH(k) {
    own[k * MOST] = mean[k];
    own[(V + k) * MOST] = squares[k];
  }
  *counts = count;
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width >= lanes; width /= 2) {
    if (threadIdx.x < width) {
#pragma unroll
      EACH(k) {
        join(mean[k], squares[k], count, own[k * MOST + width], own[(V + k) * MOST + width], counts[width]);
        own[k * MOST] = mean[k];
        own[(V + k) * MOST] = squares[k];
      }
      count += counts[width];
      *counts = count;
    }
    __syncthreads();
  }
}

template <int V> __device__ inline void add_over_block(C* a, C* b, int lanes, C* room) {
  C* const own = room + threadIdx.x;
#pragma unroll
  EACH(k) {
    own[k * MOST] = a[k];
    own[(V + k) * MOST] = b[k];
  }
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width >= lanes; width /= 2) {
    if (threadIdx.x < width) {
#pragma unroll
      EACH(k) {
        own[k * MOST] = a[k] = a[k] + own[k * MOST + width];
        own[(V + k) * MOST] = b[k] = b[k] + own[(V + k) * MOST + width];
      }
    }
    __syncthreads();
  }
}

// What a block found of its channels, two numbers each, to parts[gridDim.y, 2, channels].
template <int V, bool last> __device__ inline void leave(const C* a, const C* b, C* parts, int channels, int lanes) {
  const int column = last ? (blockIdx.x * lanes + threadIdx.x) * V : blockIdx.x;
  if (threadIdx.x >= (last ? lanes : 1) || column >= channels) return;
  C* const mine = parts + 2 * (i64)blockIdx.y * channels + column;
  for (int k = 0; k < (last ? V : 1); ++k) {
    mine[k] = a[k];
    mine[channels + k] = b[k];
  }
}

// ---- statistics

template <int V, bool last>
__device__ inline void parts_of(const T* x, C* parts, i64 units, int channels, int length, int lanes, i64 share, C* room) {
  C start[V], mean[V], squares[V], count = 0;
  const Walk<V, last> own(units, channels, length, lanes, share);
#pragma unroll
  EACH(k) start[k] = mean[k] = squares[k] = 0;
  if (own.goes_on()) load<V>(x + own.at(), start);
#pragma unroll 4
  for (WALK) {
    C given[V];
    load<V>(x + walk.at(), given);
#pragma unroll
    EACH(k) {
      const C apart = given[k] - start[k];
      mean[k] += apart;
      squares[k] += apart * apart;
    }
    count += 1;
  }
#pragma unroll
  EACH(k) {
    const C apart = count ? mean[k] / count : (C)0, rest = squares[k] - mean[k] * apart;
    squares[k] = rest < 0 ? (C)0 : rest;
    mean[k] = start[k] + apart;
  }
  if (!last) {
    for (int k = 1; k < V; ++k) join(mean[0], squares[0], count * k, mean[k], squares[k], count);
    join_over_block<1>(mean, squares, count * V, 1, room);
  } else {
    join_over_block<V>(mean, squares, count, lanes, room);
  }
  leave<V, last>(mean, squares, parts, channels, lanes);
}

// parts: the mean of each part, and the squares of the distance to it
KERNEL channel_parts(const T* x, C* parts, i64 units, int channels, int length, int lanes, i64 share, int wide) {
  __shared__ C room[(2 * WIDTH + 1) * MOST];
  BY_ORDER(parts_of, x, parts, units, channels, length, lanes, share, room)
}

// statistics[3, channels]: mean, 1 / sqrt(variance + eps), variance. each: elements of a part, but of the last, of n.
// Eight channels a block, beside each other.
KERNEL channel_finish(const C* parts, C* statistics, int channels, int number, i64 each, i64 n, double eps) {
  __shared__ C room[3 * MOST];
  const int c = blockIdx.x * 8 + threadIdx.x % 8;
  C mean = 0, squares = 0, count = 0;
  if (c < channels)
    for (int p = threadIdx.x / 8; p < number; p += MOST / 8) {
      const C* const part = parts + 2 * (i64)p * channels + c;
      const C more = (C)(p == number - 1 ? n - p * each : each);
      join(mean, squares, count, part[0], part[channels], more);
      count += more;
    }
  join_over_block<1>(&mean, &squares, count, 8, room);
  if (threadIdx.x < 8 && c < channels) {
    const C variance = squares / (C)n;
    statistics[c] = mean;
    statistics[channels + c] = 1 / root_of(variance + (C)eps);
    statistics[2 * (i64)channels + c] = variance;
  }
}

// The same of statistics that are given.
KERNEL channel_given(const C* mean, const C* variance, C* statistics, int channels, double eps) {
  ALL(c, channels) {
    statistics[c] = mean[c];
    statistics[channels + c] = 1 / root_of(variance[c] + (C)eps);
    statistics[2 * (i64)channels + c] = variance[c];
  }
}

// What running statistics become: `share` of the way to the mean of each channel, and to its unbiased variance, of n.
KERNEL channel_moved(const C* statistics, const C* mean, const C* variance, C* new_mean, C* new_variance, int channels,
                     i64 n, double share) {
  const C unbiased = (C)n / (C)(n > 1 ? n - 1 : 1);
  ALL(c, channels) {
    new_mean[c] = mean[c] * (C)(1 - share) + statistics[c] * (C)share;
    new_variance[c] = variance[c] * (C)(1 - share) + statistics[2 * (i64)channels + c] * unbiased * (C)share;
  }
}

// ---- normalised

template <int V, bool last>
__device__ inline void normed(const T* x, const C* statistics, const C* w, const C* b, T* out, i64 units, int channels,
                              int length, int lanes, i64 share) {
  C mean[V], scale[V], weight[V], bias[V];
  const Walk<V, last> own(units, channels, length, lanes, share);
#pragma unroll
  EACH(k) {
    const int c = own.channel(k);
    mean[k] = statistics[c];
    scale[k] = statistics[channels + c];
    weight[k] = w ? w[c] : (C)1;
    bias[k] = b ? b[c] : (C)0;
  }
#pragma unroll 2
  for (WALK) {
    const i64 at = walk.at();
    C given[V];
    load<V>(x + at, given);
#pragma unroll
    EACH(k) given[k] = (given[k] - mean[k]) * scale[k] * weight[k] + bias[k];
    store<V>(out + at, given);
  }
}

KERNEL channel_norm(const T* x, const C* statistics, const C* w, const C* b, T* out, i64 units, int channels,
                    int length, int lanes, i64 share, int wide) {
  BY_ORDER(normed, x, statistics, w, b, out, units, channels, length, lanes, share)
}

// ---- gradients

template <int V, bool last>
__device__ inline void slopes_of(const T* g, const T* x, const C* statistics, C* parts, i64 units, int channels,
                                 int length, int lanes, i64 share, C* room) {
  C mean[V], along[V], level[V];
  const Walk<V, last> own(units, channels, length, lanes, share);
#pragma unroll
  EACH(k) {
    mean[k] = statistics[own.channel(k)];
    along[k] = level[k] = 0;
  }
#pragma unroll 2
  for (WALK) {
    const i64 at = walk.at();
    C given[V], slope[V];
    load<V>(x + at, given);
    load<V>(g + at, slope);
#pragma unroll
    EACH(k) {
      level[k] += slope[k];
      along[k] += slope[k] * (given[k] - mean[k]);
    }
  }
  if (!last) {
    for (int k = 1; k < V; ++k) along[0] += along[k], level[0] += level[k];
    add_over_block<1>(along, level, 1, room);
  } else {
    add_over_block<V>(along, level, lanes, room);
  }
  leave<V, last>(along, level, parts, channels, lanes);
}

// parts: the sum of g * (x - mean) of each part, and of g
KERNEL channel_slopes(const T* g, const T* x, const C* statistics, C* parts, i64 units, int channels, int length,
                      int lanes, i64 share, int wide) {
  __shared__ C room[2 * WIDTH * MOST];
  BY_ORDER(slopes_of, g, x, statistics, parts, units, channels, length, lanes, share, room)
}

// sums[2, channels]: of all parts, the former scaled: the gradients of weight and bias. Eight channels a block.
KERNEL channel_sums(const C* parts, const C* statistics, C* sums, int channels, int number) {
  __shared__ C room[2 * MOST];
  const int c = blockIdx.x * 8 + threadIdx.x % 8;
  C along = 0, level = 0;
  if (c < channels)
    for (int p = threadIdx.x / 8; p < number; p += MOST / 8) {
      along += parts[2 * (i64)p * channels + c];
      level += parts[(2 * (i64)p + 1) * channels + c];
    }
  add_over_block<1>(&along, &level, 8, room);
  if (threadIdx.x < 8 && c < channels) {
    sums[c] = along * statistics[channels + c];
    sums[channels + c] = level;
  }
}

template <int V, bool last>
__device__ inline void sloped(const T* g, const T* x, const C* statistics, const C* w, const C* sums, T* dx, i64 units,
                              int channels, int length, int lanes, i64 share, C count) {
  C mean[V], factor[V], along[V], level[V];
  const Walk<V, last> own(units, channels, length, lanes, share);
#pragma unroll
  EACH(k) {
    const int c = own.channel(k);
    mean[k] = statistics[c];
    factor[k] = statistics[channels + c] * (w ? w[c] : (C)1);
    along[k] = count ? statistics[channels + c] * (sums[c] / count) : (C)0;
    level[k] = count ? sums[channels + c] / count : (C)0;
  }
#pragma unroll 2
  for (WALK) {
    const i64 at = walk.at();
    C given[V], slope[V];
    load<V>(g + at, slope);
    if (count) {
      load<V>(x + at, given);
#pragma unroll
      EACH(k) slope[k] = slope[k] - level[k] - (given[k] - mean[k]) * along[k];
    }
#pragma unroll
    EACH(k) slope[k] = slope[k] * factor[k];
    store<V>(dx + at, slope);
  }
}

// count: elements of a channel; 0 where the statistics are not x's.
KERNEL channel_backward(const T* g, const T* x, const C* statistics, const C* w, const C* sums, T* dx, i64 units,
                        int channels, int length, int lanes, i64 share, int wide, double count) {
  BY_ORDER(sloped, g, x, statistics, w, sums, dx, units, channels, length, lanes, share, (C)count)
}
