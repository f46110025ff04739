// Elements moved in eager code on a CUDA device, from memory in one order to memory in another.
//
// In: x and out, of which units of so many bytes are moved; a walk: for each dim its size, how far apart neighbours are
// in x and in out, in units. Before this text that of numbers.cu. Every unit of out's walk is written once.

#define DIMS 6

struct Walk {
  i64 from[DIMS];
  i64 to[DIMS];
  unsigned sizes[DIMS];
};

template <class U> __device__ inline void moved(const U* x, U* out, i64 n, int dims, const Walk& walk) {
  ALL(i, n) {
    unsigned rest = (unsigned)i;
    i64 from = 0, to = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const unsigned size = walk.sizes[d], next = d ? rest / size : 0, at = rest - next * size;
      from += at * walk.from[d];
      to += at * walk.to[d];
      rest = next;
    }
    out[to] = x[from];
  }
}

KERNEL move_1(const u8* x, u8* out, i64 n, int dims, Walk walk) { moved(x, out, n, dims, walk); }
KERNEL move_2(const unsigned short* x, unsigned short* out, i64 n, int dims, Walk walk) { moved(x, out, n, dims, walk); }
KERNEL move_4(const unsigned* x, unsigned* out, i64 n, int dims, Walk walk) { moved(x, out, n, dims, walk); }
KERNEL move_8(const u64* x, u64* out, i64 n, int dims, Walk walk) { moved(x, out, n, dims, walk); }
KERNEL move_16(const uint4* x, uint4* out, i64 n, int dims, Walk walk) { moved(x, out, n, dims, walk); }

// ---- rows of x, of so many units each, at the places of an index, which lie in [0, size)

template <class U>
__device__ inline void taken(const U* x, const i64* index, U* out, i64 n, i64 row, i64 size) {
  ALL(i, n) {
    const i64 one = i / row, place = index[one];
    if (place >= 0 && place < size) out[i] = x[place * row + (i - one * row)];
  }
}

KERNEL take_1(const u8* x, const i64* index, u8* out, i64 n, i64 row, i64 size) {
  taken(x, index, out, n, row, size);
}
KERNEL take_2(const unsigned short* x, const i64* index, unsigned short* out, i64 n, i64 row, i64 size) {
  taken(x, index, out, n, row, size);
}
KERNEL take_4(const unsigned* x, const i64* index, unsigned* out, i64 n, i64 row, i64 size) {
  taken(x, index, out, n, row, size);
}
KERNEL take_8(const u64* x, const i64* index, u64* out, i64 n, i64 row, i64 size) {
  taken(x, index, out, n, row, size);
}
KERNEL take_16(const uint4* x, const i64* index, uint4* out, i64 n, i64 row, i64 size) {
  taken(x, index, out, n, row, size);
}
