// The two kernels of an all-reduce by copy engines (copies.py): the sum of all ranks' shares, and the seal of a result.
//
// In: addresses and numbers; before this text the number of ranks, RANKS. Out: the arrays that are written.
// Method: ((r0 + r1) + r2) ..., element by element, in rank order, whoever adds: as reduce.py defines it. 16-bit floats
// are added in float32 and rounded once, a mean is the sum divided. 16 bytes of each rank are read at a time where this
// rank's share lies on such a boundary (slots always do); all reads of a place come before its sum, so that they wait
// for memory together.
// What is meant is tested on the host (tests/fake_cupy/raw.py); nothing here but plain CUDA C.

typedef unsigned long long u64;
typedef unsigned char u8;

#define KERNEL extern "C" __global__ void

union Bits { float number; unsigned word; };

struct F32 {
  typedef float Stored;
  typedef float Wide;
  static __device__ inline Wide widened(Stored x) { return x; }
  static __device__ inline Stored rounded(Wide x) { return x; }
};

struct F64 {
  typedef double Stored;
  typedef double Wide;
  static __device__ inline Wide widened(Stored x) { return x; }
  static __device__ inline Stored rounded(Wide x) { return x; }
};

struct F16 {
  typedef unsigned short Stored;
  typedef float Wide;
#ifdef DC_EMULATED
  static __device__ inline Wide widened(Stored x) { return half_to_float(x); }
  static __device__ inline Stored rounded(Wide x) { return float_to_half(x); }
#else
  static __device__ inline Wide widened(Stored x) { Wide r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
  static __device__ inline Stored rounded(Wide x) {
    Stored r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
  }
#endif
};

struct BF16 {
  typedef unsigned short Stored;
  typedef float Wide;
  static __device__ inline Wide widened(Stored x) {
    Bits b;
    b.word = (unsigned)x << 16;
    return b.number;
  }
  static __device__ inline Stored rounded(Wide x) {  // to the nearest, ties to even; NaN stays NaN
    Bits b;
    b.number = x;
    if (x != x) return (Stored)(b.word >> 16 | 64);
    return (Stored)((b.word + 0x7FFF + (b.word >> 16 & 1)) >> 16);
  }
};

// `lanes` elements that are read and written at once.
template <class K, int lanes> struct alignas(lanes * sizeof(typename K::Stored)) Group {
  typename K::Stored lane[lanes];
};

// The groups first, first + step, ... below `end`. own, slots: of ranks me and r; a slot every `stride` groups.
template <class K, int lanes>
__device__ inline void add_groups(Group<K, lanes>* own, const Group<K, lanes>* slots, Group<K, lanes>* out, u64 stride,
                                  u64 first, u64 end, unsigned me, unsigned divisor) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = first + (u64)blockIdx.x * blockDim.x + threadIdx.x; i < end; i += step) {
    Group<K, lanes> part[RANKS], sum;
#pragma unroll
    for (unsigned r = 0; r < RANKS; ++r) {
      const Group<K, lanes>* from = r == me ? own : slots + r * stride;
      part[r] = from[i];
    }
#pragma unroll
    for (int k = 0; k < lanes; ++k) {
      typename K::Wide total = K::widened(part[0].lane[k]);
#pragma unroll
      for (unsigned r = 1; r < RANKS; ++r) total += K::widened(part[r].lane[k]);
      sum.lane[k] = K::rounded(divisor > 1 ? total / (typename K::Wide)divisor : total);
    }
    own[i] = sum;
    out[i] = sum;
  }
}

// own: this rank's share of `count` elements, summed in place; slots: all ranks' slots, `stride` elements each, of
// which number `me` is where the sum goes as well, for the others. divisor: 1 for a sum.
template <class K>
__device__ inline void add_up(typename K::Stored* own, typename K::Stored* slots, u64 stride, u64 count, unsigned me,
                              unsigned divisor) {
  const int lanes = 16 / sizeof(typename K::Stored);
  typedef Group<K, lanes> Wide;
  typedef Group<K, 1> One;
  typename K::Stored* out = slots + me * stride;
  const u64 whole = (u64)own % 16 ? 0 : count / lanes;
  add_groups<K, lanes>((Wide*)own, (const Wide*)slots, (Wide*)out, stride / lanes, 0, whole, me, divisor);
  add_groups<K, 1>((One*)own, (const One*)slots, (One*)out, stride, whole * lanes, count, me, divisor);
}

KERNEL sum_float32(float* own, float* slots, u64 stride, u64 count, unsigned me, unsigned divisor) {
  add_up<F32>(own, slots, stride, count, me, divisor);
}

KERNEL sum_float64(double* own, double* slots, u64 stride, u64 count, unsigned me, unsigned divisor) {
  add_up<F64>(own, slots, stride, count, me, divisor);
}

KERNEL sum_float16(unsigned short* own, unsigned short* slots, u64 stride, u64 count,
                   unsigned me, unsigned divisor) {
  add_up<F16>(own, slots, stride, count, me, divisor);
}

KERNEL sum_bfloat16(unsigned short* own, unsigned short* slots, u64 stride, u64 count,
                    unsigned me, unsigned divisor) {
  add_up<BF16>(own, slots, stride, count, me, divisor);
}

// Where a rank has given up (`failed` is not 0), all bytes of the result are set: NaN in every float that there is.
KERNEL seal(const unsigned* failed, u8* result, u64 nbytes) {
  if (*(const volatile unsigned*)failed == 0) return;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < nbytes; i += (u64)gridDim.x * blockDim.x)
    result[i] = 255;
}
