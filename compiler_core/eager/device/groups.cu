// Kernels of group norm in eager code on a CUDA device: statistics of each group, what they normalise, gradients.
//
// In: x as rows of n elements, one for each sample and group: planes of `length`, one a channel, or, where the group has
// all channels and these lie last (`last`), `channels` of each place; what belongs to a channel in C; before this text
// those of numbers.cu and rows.cu. Out: the arrays that are written.
// A row is shared by `parts` blocks, of `chunk` elements each. A thread moves WIDTH elements at once where `wide` says
// that all lie so, and then a channel's elements are multiples of WIDTH, or the channels are. Of each part the mean and
// the squares of the distances to it are joined (Chan, Golub, LeVeque 1979).

#define ROW (blockIdx.x / parts)
#define BEGIN (blockIdx.x % parts * chunk)
#define END (BEGIN + chunk < n ? BEGIN + chunk : n)
#define STEPS(i) for (unsigned i = BEGIN + threadIdx.x * V; i < END; i += blockDim.x * V)
#define EACH(k) for (int k = 0; k < V; ++k)
#define BY_WIDTH(body, ...)         \
  if (wide) body<WIDTH>(__VA_ARGS__); \
  else body<1>(__VA_ARGS__);

template <int V> __device__ inline void parts_of(const T* x, C* means, C* squares, unsigned n, unsigned chunk, int parts,
                                                 C* room) {
  C given[V], total = 0, spread = 0;
  x += (i64)ROW * n;
  STEPS(i) {
    load<V>(x + i, given);
#pragma unroll
    EACH(k) total += given[k];
  }
  const C mean = SUM(total) / (C)(END - BEGIN);
  STEPS(i) {
    load<V>(x + i, given);
#pragma unroll
    EACH(k) spread += (given[k] - mean) * (given[k] - mean);
  }
  spread = SUM(spread);
  if (threadIdx.x == 0) {
    means[blockIdx.x] = mean;
    squares[blockIdx.x] = spread;
  }
}

KERNEL group_parts(const T* x, C* means, C* squares, unsigned n, unsigned chunk, int parts, int wide) {
  __shared__ C room[MOST];
  BY_WIDTH(parts_of, x, means, squares, n, chunk, parts, room)
}

template <int V> __device__ inline void norm(const T* x, const C* w, const C* b, T* out, C mean, C scale, unsigned n,
                                             unsigned chunk, int parts, unsigned length, int channels, int last,
                                             int groups) {
  const int first = ROW % groups * channels;
  x += (i64)ROW * n;
  out += (i64)ROW * n;
  STEPS(i) {
    C given[V];
    load<V>(x + i, given);
    const int channel = first + (last ? i % channels : i / length);
#pragma unroll
    EACH(k) {
      const int c = last ? channel + k : channel;
      given[k] = (given[k] - mean) * scale * (w ? w[c] : (C)1) + (b ? b[c] : (C)0);
    }
    store<V>(out + i, given);
  }
}

// means, squares: of the parts; mean, scale: what is kept, 1/std the latter. channels: of a group.
KERNEL group_norm(const T* x, const C* means, const C* squares, const C* w, const C* b, T* out, C* kept_mean,
                  C* kept_scale, unsigned n, unsigned chunk, int parts, unsigned length, int channels, int last,
                  int groups, int wide, double eps) {
  __shared__ C room[MOST];
  const i64 p = (i64)ROW * parts + threadIdx.x;
  const bool is_part = threadIdx.x < parts;
  const unsigned before = threadIdx.x * chunk;
  const C count = !is_part ? (C)0 : (C)(before + chunk < n ? chunk : n - before), own = is_part ? means[p] : (C)0;
  const C mean = SUM(count * own) / (C)n;
  const C variance = SUM(is_part ? squares[p] + count * (own - mean) * (own - mean) : (C)0) / (C)n;
  const C scale = 1 / root_of(variance + (C)eps);
  if (threadIdx.x == 0 && blockIdx.x % parts == 0) {
    kept_mean[ROW] = mean;
    kept_scale[ROW] = scale;
  }
  BY_WIDTH(norm, x, w, b, out, mean, scale, n, chunk, parts, length, channels, last, groups)
}

// ---- gradients: of each sample and channel the sums of g and of g times what is normalised

template <int V> __device__ inline void add_moments(const T* g, const T* x, C mean, C scale, C* along, C* level) {
  C slope[V], given[V];
  load<V>(g, slope);
  load<V>(x, given);
#pragma unroll
  EACH(k) {
    level[k] += slope[k];
    along[k] += slope[k] * ((given[k] - mean) * scale);
  }
}

template <int V> __device__ inline void moments(const T* g, const T* x, C mean, C scale, i64 plane, i64 begin, i64 end,
                                                int lanes, i64 length, C* along, C* level) {
  C a[V], b[V];
#pragma unroll
  EACH(k) a[k] = b[k] = 0;
  for (i64 i = begin + (i64)threadIdx.x % lanes * V; i < end; i += lanes * V)
    add_moments<V>(g + plane * length + i, x + plane * length + i, mean, scale, a, b);
#pragma unroll
  EACH(k) {
    *along += a[k];
    *level += b[k];
  }
}

// Of planes, of which a block has as many as it has levels of `lanes` threads, or of shares of them. sums: [2, planes,
// splits], of which the first are those along. planes_each: of a sample and group.
KERNEL plane_moments(const T* g, const T* x, const C* mean, const C* scale, C* sums, i64 planes, i64 length,
                     int planes_each, i64 splits, i64 share, int lanes, int wide) {
  __shared__ C room[MOST];
  const i64 piece = (i64)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes, plane = piece / splits;
  const i64 begin = piece % splits * share, end = begin + share < length ? begin + share : length;
  C along = 0, level = 0;
  if (plane < planes) {
    const C m = mean[plane / planes_each], s = scale[plane / planes_each];
    if (wide) moments<WIDTH>(g, x, m, s, plane, begin, end, lanes, length, &along, &level);
    else moments<1>(g, x, m, s, plane, begin, end, lanes, length, &along, &level);
  }
  along = over_lanes(along, room, lanes);
  if (threadIdx.x % lanes == 0 && plane < planes) sums[piece] = along;
  __syncthreads();
  level = over_lanes(level, room, lanes);
  if (threadIdx.x % lanes == 0 && plane < planes) sums[planes * splits + piece] = level;
}

template <int V> __device__ inline void levels_of(const T* g, const T* x, const C* mean, const C* scale, C* sums,
                                                  i64 samples, i64 rows, i64 channels, i64 splits, i64 share, i64 across,
                                                  int lanes, C* room) {
  const int levels = blockDim.x / lanes, width = lanes * V;
  const i64 from = blockIdx.x % across * width, column = from + (i64)threadIdx.x % lanes * V;
  const i64 group = blockIdx.x / across, sample = group / splits, begin = group % splits * share;
  const i64 end = begin + share < rows ? begin + share : rows, all = samples * splits * channels;
  const C m = mean[sample], s = scale[sample];
  C both[2][V];
#pragma unroll
  EACH(k) both[0][k] = both[1][k] = 0;
  if (column < channels)
    for (i64 row = begin + threadIdx.x / lanes; row < end; row += levels) {
      const i64 at = (sample * rows + row) * channels + column;
      add_moments<V>(g + at, x + at, m, s, both[0], both[1]);
    }
  for (int which = 0; which < 2; ++which) {
#pragma unroll
    EACH(k) room[threadIdx.x * V + k] = which ? both[1][k] : both[0][k];
    over_levels(room, levels, width);
    for (int i = threadIdx.x; i < width && from + i < channels; i += blockDim.x)
      sums[which * all + group * channels + from + i] = room[i];
    __syncthreads();
  }
}

// Of channels that lie last, [samples, rows, channels]: as sum_down of sums.cu. sums: [2, samples, splits,
// channels].
KERNEL last_moments(const T* g, const T* x, const C* mean, const C* scale, C* sums, i64 samples, i64 rows, i64 channels,
                    i64 splits, i64 share, i64 across, int lanes, int wide) {
  __shared__ C room[WIDTH * MOST];
  BY_WIDTH(levels_of, g, x, mean, scale, sums, samples, rows, channels, splits, share, across, lanes, room)
}

template <int V> __device__ inline void backward_of(const T* g, const T* x, const C* w, T* dx, C mean, C scale, C level,
                                                    C along, unsigned n, unsigned chunk, int parts, unsigned length,
                                                    int channels, int last, int groups) {
  const int first = ROW % groups * channels;
  const i64 row = (i64)ROW * n;
  STEPS(i) {
    C slope[V], given[V];
    load<V>(g + row + i, slope);
    load<V>(x + row + i, given);
    const int channel = first + (last ? i % channels : i / length);
#pragma unroll
    EACH(k) {
      const C factor = w ? w[last ? channel + k : channel] : (C)1;
      given[k] = (slope[k] * factor - level - (given[k] - mean) * scale * along) * scale;
    }
    store<V>(dx + row + i, given);
  }
}

// sums: [2, samples, channels of all groups], as plane_moments has them. samples_channels: how many of each kind.
KERNEL group_backward(const T* g, const T* x, const C* mean, const C* scale, const C* w, const C* sums, T* dx, unsigned n,
                      unsigned chunk, int parts, unsigned length, int channels, int last, int groups, int wide,
                      i64 samples_channels) {
  __shared__ C room[MOST];
  const C* const own = sums + (i64)ROW * channels;
  C level = 0, along = 0;
  ALONG(c, channels) {
    const C factor = w ? w[ROW % groups * channels + c] : (C)1;
    along += own[c] * factor;
    level += own[samples_channels + c] * factor;
  }
  along = SUM(along) / (C)n;
  level = SUM(level) / (C)n;
  BY_WIDTH(backward_of, g, x, w, dx, mean[ROW], scale[ROW], level, along, n, chunk, parts, length, channels, last, groups)
}
