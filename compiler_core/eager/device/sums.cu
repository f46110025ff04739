// Sums in eager code on a CUDA device: elements added in the dtype that is computed in, always in the same order.
//
// In: dense arrays; before this text those of numbers.cu and rows.cu. Out: the arrays that are written.
// A block has MOST threads: `lanes` side by side (a power of two), in levels. A thread reads WIDTH elements at once
// where `wide` says that all lie so (on 16 bytes, in multiples of WIDTH), else one. What is written to `out` is divided
// before it is rounded; parts are not.

template <int V> __device__ inline void add_from(const T* at, C* sums) {
  C given[V];
  load<V>(at, given);
#pragma unroll
  for (int k = 0; k < V; ++k) sums[k] += given[k];
}

template <int V>
__device__ inline void down(const T* x, C* parts, T* out, i64 rows, i64 n, i64 step, i64 splits, i64 share, i64 across,
                            int lanes, C divisor, C* room) {
  const int levels = blockDim.x / lanes, width = lanes * V;
  const i64 from = blockIdx.x % across * width, column = from + (i64)threadIdx.x % lanes * V;
  const i64 group = blockIdx.x / across, begin = group % splits * share;
  const i64 end = begin + share < rows ? begin + share : rows;
  C sums[V];
#pragma unroll
  for (int k = 0; k < V; ++k) sums[k] = 0;
  if (column < n) {
    const T* at = x + group / splits * rows * step + column;
#pragma unroll 4
    for (i64 row = begin + threadIdx.x / lanes; row < end; row += levels) add_from<V>(at + row * step, sums);
  }
#pragma unroll
  for (int k = 0; k < V; ++k) room[threadIdx.x * V + k] = sums[k];
  over_levels(room, levels, width);
  for (int i = threadIdx.x; i < width && from + i < n; i += blockDim.x) {
    if (out) out[group * n + from + i] = as_stored(room[i] / divisor);
    else parts[group * n + from + i] = room[i];
  }
}

// Down the columns of x, [outer, rows, n], whose rows begin `step` elements apart: a block has `across`-th of them, and `share` rows. Either parts, [outer,
// splits, n], or out, where one split is all.
KERNEL sum_down(const T* x, C* parts, T* out, i64 rows, i64 n, i64 step, i64 splits, i64 share, i64 across, int lanes,
                int wide, C divisor) {
  __shared__ C room[WIDTH * MOST];
  if (wide) down<WIDTH>(x, parts, out, rows, n, step, splits, share, across, lanes, divisor, room);
  else down<1>(x, parts, out, rows, n, step, splits, share, across, lanes, divisor, room);
}

template <int V>
__device__ inline C along(const T* x, i64 n, i64 begin, i64 share, int lanes) {
  const i64 end = begin + share < n ? begin + share : n;
  C sums[V], total = 0;
#pragma unroll
  for (int k = 0; k < V; ++k) sums[k] = 0;
#pragma unroll 4
  for (i64 i = begin + (i64)threadIdx.x % lanes * V; i < end; i += lanes * V) add_from<V>(x + i, sums);
#pragma unroll
  for (int k = 0; k < V; ++k) total += sums[k];
  return total;
}

// Along the rows of x, [rows, n]: each level of a block has `share` elements of one. Either parts, [rows, splits], or
// out, where one split is all.
KERNEL sum_along(const T* x, C* parts, T* out, i64 rows, i64 n, i64 splits, i64 share, int lanes, int wide, C divisor) {
  __shared__ C room[MOST];
  const i64 piece = (i64)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes, begin = piece % splits * share;
  C total = 0;
  if (piece < rows * splits) {
    const T* row = x + piece / splits * n;
    total = wide ? along<WIDTH>(row, n, begin, share, lanes) : along<1>(row, n, begin, share, lanes);
  }
  total = over_lanes(total, room, lanes);
  if (threadIdx.x % lanes == 0 && piece < rows * splits) {
    if (out) out[piece] = as_stored(total / divisor);
    else parts[piece] = total;
  }
}

// Of parts, [outer, rows, n], down the columns: a block has `lanes` of them.
KERNEL add_down(const C* parts, T* out, i64 outer, i64 rows, i64 n, int lanes, C divisor) {
  __shared__ C room[MOST];
  const i64 own = (i64)blockIdx.x * lanes + threadIdx.x % lanes;
  const int levels = blockDim.x / lanes;
  C total = 0;
  if (own < outer * n)
    for (i64 row = threadIdx.x / lanes; row < rows; row += levels) total += parts[(own / n * rows + row) * n + own % n];
  room[threadIdx.x] = total;
  over_levels(room, levels, lanes);
  if ((int)threadIdx.x < lanes && own < outer * n) out[own] = as_stored(room[threadIdx.x] / divisor);
}

// Of parts, [outer, n, inner], over the first and the last dim: a level each.
KERNEL add_around(const C* parts, T* out, i64 outer, i64 n, i64 inner, int lanes, C divisor) {
  __shared__ C room[MOST];
  const i64 own = (i64)blockIdx.x * (blockDim.x / lanes) + threadIdx.x / lanes;
  C total = 0;
  if (own < n)
    for (i64 i = threadIdx.x % lanes; i < outer * inner; i += lanes)
      total += parts[(i / inner * n + own) * inner + i % inner];
  total = over_lanes(total, room, lanes);
  if (threadIdx.x % lanes == 0 && own < n) out[own] = as_stored(total / divisor);
}
