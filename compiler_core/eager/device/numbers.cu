// What the kernels of eager code on a CUDA device share: how an element is stored, and computed in.
//
// In: before this text T, the first (KIND: 0 f32, 1 f64, 2 f16, 3 bf16), and C, the second (float, or double for f64).
// Out: `in` and `as_stored`, from one to the other, rounded to the nearest; `load` and `store`, of V elements at once, which
// is one, or WIDTH on 16 bytes; ALL, a loop that a launch's threads share; Box, how arrays lie that are not dense.

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned char u8;

#define MOST 256  // threads of a block
#define KERNEL extern "C" __global__ void
#define ALL(i, n) for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

#if KIND == 2
#ifdef DC_EMULATED
__device__ inline C in(T x) { return half_to_float(x); }
__device__ inline T as_stored(C x) { return float_to_half(x); }
#else
__device__ inline C in(T x) { C r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
__device__ inline T as_stored(C x) { T r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
#endif
#elif KIND == 3
union Bits { float number; unsigned word; };
__device__ inline C in(T x) { Bits b; b.word = (unsigned)x << 16; return b.number; }
__device__ inline T as_stored(C x) {  // to the nearest, ties to even; NaN stays NaN
  Bits b;
  b.number = x;
  if (x != x) return (T)(b.word >> 16 | 64);
  return (T)((b.word + 0x7FFF + (b.word >> 16 & 1)) >> 16);
}
#else
__device__ inline C in(T x) { return x; }
__device__ inline T as_stored(C x) { return x; }
#endif

#define WIDTH (16 / (int)sizeof(T))

union Vector { uint4 whole; T each[WIDTH]; };

template <int V> __device__ inline void load(const T* from, C* to) {
  if (V > 1) {
    Vector piece;
    piece.whole = *(const uint4*)from;
#pragma unroll
    for (int k = 0; k < V; ++k) to[k] = in(piece.each[k]);
  } else {
    to[0] = in(*from);
  }
}

template <int V> __device__ inline void store(T* to, const C* from) {
  if (V > 1) {
    Vector piece;
#pragma unroll
    for (int k = 0; k < V; ++k) piece.each[k] = as_stored(from[k]);
    *(uint4*)to = piece.whole;
  } else {
    *to = as_stored(from[0]);
  }
}

// The dims of two arrays, outermost first, and how many elements apart each array's lie.
struct Box {
  i64 sizes[6], a[6], b[6];
};

// Where each has the i-th element, row-major, of that many dims.
template <class Index> __device__ inline void find_in(Index i, const Box& box, int dims, i64& a, i64& b) {
  for (int d = dims - 1; d > 0; --d) {
    const Index size = (Index)box.sizes[d], outer = i / size, own = i - outer * size;
    a += (i64)own * box.a[d];
    b += (i64)own * box.b[d];
    i = outer;
  }
  a += (i64)i * box.a[0];
  b += (i64)i * box.b[0];
}
