// What kernels that work row by row share: a block a row, and sums over it.
//
// In: before this text that of numbers.cu. Out: SUM and LARGEST of the threads' values, ALONG, a loop that they
// share. A block has a power of two of threads, at most MOST, which stride along its row. Sums are of each thread's
// elements, then of neighbours in a tree: the same bits at every call.

__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline C infinity() { return -log_of((C)0); }

// Whichever is larger; NaN where either is.
__device__ inline C larger(C a, C b) { return a != a || a > b ? a : b; }

// The sum, or the largest, over the block, for each of its threads. room: MOST elements.
template <bool sums> __device__ inline C over_block(C value, C* room) {
  room[threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = blockDim.x / 2; width; width /= 2) {
    if (threadIdx.x < width) {
      const C other = room[threadIdx.x + width];
      room[threadIdx.x] = sums ? room[threadIdx.x] + other : larger(room[threadIdx.x], other);
    }
    __syncthreads();
  }
  const C result = room[0];
  __syncthreads();  // before the room is used again
  return result;
}

// The same over a row, of which a block has as many as it has `lanes` (a power of two) of threads.
template <bool sums> __device__ inline C over_row(C value, C* room, int lanes) {
  room[threadIdx.x] = value;
  if (lanes > 32) __syncthreads();
  else __syncwarp();
  for (int width = lanes / 2; width; width /= 2) {
    if ((int)threadIdx.x % lanes < width) {
      const C other = room[threadIdx.x + width];
      room[threadIdx.x] = sums ? room[threadIdx.x] + other : larger(room[threadIdx.x], other);
    }
    if (width > 32) __syncthreads();
    else __syncwarp();
  }
  if (lanes > 32) __syncthreads();
  const C result = room[threadIdx.x / lanes * lanes];
  if (lanes > 32) __syncthreads();
  else __syncwarp();
  return result;
}
#define ROW_SUM(value) over_row<true>(value, room, lanes)
#define ROW_LARGEST(value) over_row<false>(value, room, lanes)
// The elements of a row for its threads; none where there is no row.
#define ALONG_ROW(i, n) for (i64 i = own < rows ? threadIdx.x % lanes : (n); i < (n); i += lanes)

#define SUM(value) over_block<true>(value, room)
#define LARGEST(value) over_block<false>(value, room)
#define ALONG(i, n) for (i64 i = threadIdx.x; i < (n); i += blockDim.x)

__device__ inline float root_of(float x) { return sqrtf(x); }
__device__ inline double root_of(double x) { return sqrt(x); }

// A block whose threads lie side by side in `lanes` (a power of two), in levels.

// The sums over the levels, of `width` each, in the first of them.
__device__ inline void over_levels(C* room, int levels, int width) {
  __syncthreads();
  for (int half = levels / 2; half; half /= 2) {
    for (int i = threadIdx.x; i < half * width; i += blockDim.x) room[i] += room[i + half * width];
    __syncthreads();
  }
}

// The sum over the lanes, for the first of each level.
__device__ inline C over_lanes(C value, C* room, int lanes) {
  room[threadIdx.x] = value;
  __syncthreads();
  for (int half = lanes / 2; half; half /= 2) {
    if ((int)threadIdx.x % lanes < half) room[threadIdx.x] += room[threadIdx.x + half];
    __syncthreads();
  }
  return room[threadIdx.x];
}
