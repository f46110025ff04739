// Arithmetic of 16-bit floats in eager code on a CUDA device: operands read once, computed in f32, rounded once.
//
// In: dense arrays, or such as a Box tells of; before this text that of numbers.cu. Out: the arrays that are written.
// Elements are moved eight at a time where `wide` says that all lie so (on 16 bytes, in multiples of eight).

union Eight { uint4 whole; T each[8]; };
union Floats { uint4 whole[2]; float each[8]; };

#define EACH(k) for (int k = 0; k < 8; ++k)

__device__ inline T joined(int op, T a, float y) {
  const C x = in(a);
  return as_stored(op == 0 ? x + y : op == 1 ? x - y : op == 2 ? x * y : x / y);
}

// Which element of b goes with element i of n of a: `near` that follow each other, each time after `run` elements of a the
// next ones of `period`; all of b where near is n.
template <class Index> __device__ inline i64 place_in(Index i, Index run, Index period, Index near) {
  return (i64)(period == 1 ? 0 : i / run % period) * near + (near == 1 ? 0 : i % near);
}
__device__ inline i64 place_of(i64 i, i64 n, i64 run, i64 period, i64 near) {
  if (near == n) return i;
  if (n >> 31) return place_in<i64>(i, run, period, near);
  return place_in<unsigned>((unsigned)i, (unsigned)run, (unsigned)period, (unsigned)near);
}

// out = a op b, of n elements, b as above; where it is null it is `number`, repeated. op: 0 +, 1 -, 2 *, 3 /.
// wide: 1 where WIDTH elements of b go with as many of a, 2 where it is one. Of f32, too.
KERNEL join(const T* a, const T* b, T* out, i64 n, i64 run, i64 period, i64 near, float number, int op, int wide) {
  if (wide) {
    ALL(i, n / WIDTH) {
      Vector x, y;
      C one = number;
      x.whole = ((const uint4*)a)[i];
      if (b) {
        const T* const at = b + place_of(WIDTH * i, n, run, period, near);
        if (wide == 1) y.whole = *(const uint4*)at;
        else one = in(*at);
      }
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) x.each[k] = joined(op, x.each[k], b && wide == 1 ? in(y.each[k]) : one);
      ((uint4*)out)[i] = x.whole;
    }
  } else {
    ALL(i, n) out[i] = joined(op, a[i], b ? in(b[place_of(i, n, run, period, near)]) : number);
  }
}

template <class Index>
__device__ inline void joined_any(const T* a, const T* b, T* out, i64 n, const Box& box, int dims, float number, int op,
                                  int wide) {
  ALL(i, n) {
    i64 at = 0, beside = 0;
    find_in<Index>((Index)i, box, dims, at, beside);
    if (wide) {
      Vector x, y;
      x.whole = *(const uint4*)(a + at);
      if (wide == 1) y.whole = *(const uint4*)(b + beside);
      const C one = wide == 1 ? (C)0 : b ? in(b[beside]) : (C)number;
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) x.each[k] = joined(op, x.each[k], wide == 1 ? in(y.each[k]) : one);
      ((uint4*)out)[i] = x.whole;
    } else {
      out[i] = joined(op, a[at], b ? in(b[beside]) : number);
    }
  }
}

// The same of arrays that lie as the box says: n times one element, or WIDTH of a, with as many of b (wide: 1) or one (2).
KERNEL join_any(const T* a, const T* b, T* out, i64 n, Box box, int dims, float number, int op, int wide) {
  if (n >> 31) joined_any<i64>(a, b, out, n, box, dims, number, op, wide);
  else joined_any<unsigned>(a, b, out, n, box, dims, number, op, wide);
}

// The rest is of 16-bit floats alone.

template <class Index> __device__ inline void widened(const T* x, float* out, i64 n, const Box& box, int dims) {
  ALL(i, n) {
    i64 at = 0, unused = 0;
    find_in<Index>((Index)i, box, dims, at, unused);
    out[i] = in(x[at]);
  }
}

template <class Index> __device__ inline void narrowed(const float* x, T* out, i64 n, const Box& box, int dims) {
  ALL(i, n) {
    i64 at = 0, unused = 0;
    find_in<Index>((Index)i, box, dims, at, unused);
    out[i] = as_stored(x[at]);
  }
}

KERNEL widen_any(const T* x, float* out, i64 n, Box box, int dims) {
  if (n >> 31) widened<i64>(x, out, n, box, dims);
  else widened<unsigned>(x, out, n, box, dims);
}

KERNEL narrow_any(const float* x, T* out, i64 n, Box box, int dims) {
  if (n >> 31) narrowed<i64>(x, out, n, box, dims);
  else narrowed<unsigned>(x, out, n, box, dims);
}

KERNEL widen(const T* x, float* out, i64 n, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Eight narrow;
      Floats made;
      narrow.whole = ((const uint4*)x)[i];
#pragma unroll
      EACH(k) made.each[k] = in(narrow.each[k]);
      ((uint4*)out)[2 * i] = made.whole[0];
      ((uint4*)out)[2 * i + 1] = made.whole[1];
    }
  } else {
    ALL(i, n) out[i] = in(x[i]);
  }
}

KERNEL add_wide(const float* x, const T* y, float* out, i64 n, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Floats sum;
      Eight narrow;
      sum.whole[0] = ((const uint4*)x)[2 * i];
      sum.whole[1] = ((const uint4*)x)[2 * i + 1];
      narrow.whole = ((const uint4*)y)[i];
#pragma unroll
      EACH(k) sum.each[k] += in(narrow.each[k]);
      ((uint4*)out)[2 * i] = sum.whole[0];
      ((uint4*)out)[2 * i + 1] = sum.whole[1];
    }
  } else {
    ALL(i, n) out[i] = x[i] + in(y[i]);
  }
}

KERNEL narrow(const float* x, T* out, i64 n, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      Floats given;
      Eight made;
      given.whole[0] = ((const uint4*)x)[2 * i];
      given.whole[1] = ((const uint4*)x)[2 * i + 1];
#pragma unroll
      EACH(k) made.each[k] = as_stored(given.each[k]);
      ((uint4*)out)[i] = made.whole;
    }
  } else {
    ALL(i, n) out[i] = as_stored(x[i]);
  }
}

// out[r, i] = x[r, i] of n columns where they are, which lie `step` elements apart, else 0; a part of a row each block.
KERNEL padded(const T* x, T* out, i64 rows, i64 n, i64 step, i64 columns) {
  const i64 r = blockIdx.x;
  const T* const from = x + r * step;
  T* const to = out + r * columns;
  const i64 last = r < rows ? n : 0;
#pragma unroll 4
  for (i64 i = blockIdx.y * (i64)blockDim.x + threadIdx.x; i < columns; i += (i64)gridDim.y * blockDim.x)
    to[i] = i < last ? from[i] : as_stored((C)0);
}

// ---- products of f32 and 16-bit floats

__device__ inline float wide_of(float x) { return x; }
__device__ inline float wide_of(unsigned short x) { return in(x); }
__device__ inline void put(float x, float* to) { *to = x; }
__device__ inline void put(float x, unsigned short* to) { *to = (unsigned short)as_stored(x); }

__device__ inline void get_eight(const float* from, float* to) {
  Floats given;
  given.whole[0] = ((const uint4*)from)[0];
  given.whole[1] = ((const uint4*)from)[1];
#pragma unroll
  EACH(k) to[k] = given.each[k];
}
__device__ inline void get_eight(const unsigned short* from, float* to) {
  Eight given;
  given.whole = *(const uint4*)from;
#pragma unroll
  EACH(k) to[k] = in(given.each[k]);
}
__device__ inline void put_eight(const float* x, float* to) {
  Floats made;
#pragma unroll
  EACH(k) made.each[k] = x[k];
  ((uint4*)to)[0] = made.whole[0];
  ((uint4*)to)[1] = made.whole[1];
}
__device__ inline void put_eight(const float* x, unsigned short* to) {
  Eight made;
#pragma unroll
  EACH(k) made.each[k] = as_stored(x[k]);
  *(uint4*)to = made.whole;
}

// out = a * b, of n elements, b repeated as in `join`. wide: 1 where 8 elements of b go with as many of a, 2 where one.
template <class A, class B, class O>
__device__ inline void multiplied(const A* a, const B* b, O* out, i64 n, i64 run, i64 period, i64 near, int wide) {
  if (wide) {
    ALL(i, n / 8) {
      float x[8], y[8];
      const B* const at = b + place_of(8 * i, n, run, period, near);
      get_eight(a + 8 * i, x);
      if (wide == 1) get_eight(at, y);
      const float one = wide == 1 ? 0.0f : wide_of(*at);
#pragma unroll
      EACH(k) x[k] *= wide == 1 ? y[k] : one;
      put_eight(x, out + 8 * i);
    }
  } else {
    ALL(i, n) put(wide_of(a[i]) * wide_of(b[place_of(i, n, run, period, near)]), out + i);
  }
}

KERNEL scale_up(const T* a, const float* b, float* out, i64 n, i64 run, i64 period, i64 near, int wide) {
  multiplied(a, b, out, n, run, period, near, wide);
}

KERNEL scale_down(const float* a, const float* b, T* out, i64 n, i64 run, i64 period, i64 near, int wide) {
  multiplied(a, b, out, n, run, period, near, wide);
}

KERNEL scale_wide(const float* a, const T* b, float* out, i64 n, i64 run, i64 period, i64 near, int wide) {
  multiplied(a, b, out, n, run, period, near, wide);
}
