// Arrays laid out anew in eager code on a CUDA device: the last two of three dims exchanged, elements perhaps converted;
// and arrays that lie in any other way, rolled.
//
// In: dense x[outer, rows, columns], or x as its steps say; before this text that of numbers.cu. Out:
// out[outer, columns, rows], or x row-major.
// A block moves a square of 32 by 32 through shared memory, so that both sides are read and written along rows.

#define SIDE 32

__device__ inline C value_of(T x) { return in(x); }
__device__ inline void put(T* at, C x) { *at = as_stored(x); }
#if KIND > 1
__device__ inline C value_of(C x) { return x; }
__device__ inline void put(C* at, C x) { *at = x; }
#endif

template <class From, class To>
__device__ inline void turned(const From* x, To* out, i64 rows, i64 columns, C (*room)[SIDE + 1]) {
  const unsigned across = (columns + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
  const unsigned strip = blockIdx.x / across, one = strip / down;
  const i64 place = one * rows * columns;
  const i64 left = (i64)(blockIdx.x - strip * across) * SIDE, top = (i64)(strip - one * down) * SIDE;
  const int x0 = threadIdx.x % SIDE, y0 = threadIdx.x / SIDE, levels = MOST / SIDE;
  for (int y = y0; y < SIDE; y += levels)
    if (top + y < rows && left + x0 < columns) room[y][x0] = value_of(x[place + (top + y) * columns + left + x0]);
  __syncthreads();
  for (int y = y0; y < SIDE; y += levels)
    if (left + y < columns && top + x0 < rows) put(out + place + (left + y) * rows + top + x0, room[x0][y]);
}

KERNEL turn(const T* x, T* out, i64 rows, i64 columns) {
  __shared__ C room[SIDE][SIDE + 1];
  turned(x, out, rows, columns, room);
}

template <class Index>
__device__ inline void rolled(const T* x, T* out, i64 n, const Box& box, int dims, int wide) {
  ALL(i, n) {
    Index rest = (Index)i;
    i64 at = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const Index size = (Index)box.sizes[d], outer = rest / size;
      i64 own = (i64)(rest - outer * size) + box.b[d];
      if (own >= box.sizes[d]) own -= box.sizes[d];
      at += own * box.a[d];
      rest = outer;
    }
    if (wide) ((uint4*)out)[i] = *(const uint4*)(x + at);
    else out[i] = x[at];
  }
}

// out: what x has, each place of which is box.b places further on, and from the end at the front again.
KERNEL roll(const T* x, T* out, i64 n, Box box, int dims, int wide) {
  if (n >> 31) rolled<i64>(x, out, n, box, dims, wide);
  else rolled<unsigned>(x, out, n, box, dims, wide);
}

// These are asked for of 16-bit floats alone.
KERNEL turn_narrow(const C* x, T* out, i64 rows, i64 columns) {
  __shared__ C room[SIDE][SIDE + 1];
  turned(x, out, rows, columns, room);
}

KERNEL turn_wide(const T* x, C* out, i64 rows, i64 columns) {
  __shared__ C room[SIDE][SIDE + 1];
  turned(x, out, rows, columns, room);
}
