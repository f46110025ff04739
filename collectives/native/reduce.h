// Reductions in rank order, and conversions between 16-bit floats and float32.
//
// In: the ranks' pieces, by rank. Out: ((p0 op p1) op p2) ..., element by element; the result may be written over any of
// the pieces. 16-bit floats are accumulated in float32 and rounded once; `avg` divides the accumulated sum.
// Invariant: equal bit for bit to `reduce.reduce_in_rank_order` (NumPy), NaN payloads aside.
// Method: blocks of 4 KB stay in the first-level cache; loops are plain, for the compiler to vectorise.

enum Dtype { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, DTYPES };  // order of call.DTYPES
enum Op { SUM, AVG, MAX, MIN, PROD, BAND, BOR, BXOR };                                   // order of call.REDUCE_OPS

static const int ITEMSIZE[DTYPES] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};
static const i64 BLOCK_NBYTES = 4096;

// -- one operation on two arrays; z may be x or y

struct Add { template <class T> static T of(T x, T y) { return (T)(x + y); } };
struct Multiply { template <class T> static T of(T x, T y) { return (T)(x * y); } };
struct Largest { template <class T> static T of(T x, T y) { return (x >= y || x != x) ? x : y; } };  // NaN wins
struct Smallest { template <class T> static T of(T x, T y) { return (x <= y || x != x) ? x : y; } };
struct And { template <class T> static T of(T x, T y) { return (T)(x & y); } };
struct Or { template <class T> static T of(T x, T y) { return (T)(x | y); } };
struct Xor { template <class T> static T of(T x, T y) { return (T)(x ^ y); } };

typedef void (*Combine)(void *z, const void *x, const void *y, i64 n);

template <class T, class F> static void combine(void *z_, const void *x_, const void *y_, i64 n) {
  T *z = (T *)z_;
  const T *x = (const T *)x_, *y = (const T *)y_;
#pragma GCC ivdep
  for (i64 i = 0; i < n; i++) z[i] = F::of(x[i], y[i]);
}

template <class T> static Combine arithmetic(int op) {
  return op == SUM || op == AVG ? combine<T, Add> : op == PROD ? combine<T, Multiply> : (Combine)0;
}

template <class T> static Combine order(int op) {
  return op == MAX ? combine<T, Largest> : op == MIN ? combine<T, Smallest> : (Combine)0;
}

static Combine bitwise(int op) {  // of bytes
  return op == BAND ? combine<u8, And> : op == BOR ? combine<u8, Or> : op == BXOR ? combine<u8, Xor> : (Combine)0;
}

static bool is_bitwise(int dtype, int op) { return op >= BAND || dtype == BOOL; }

// The operation on elements of `dtype`, or on their bytes if `is_bitwise`. Sums wrap: the sign does not matter.
static Combine combination(int dtype, int op) {
  if (dtype == BOOL)  // 0 or 1: the sum is "any", the product "all"
    op = op == SUM || op == MAX || op == BOR ? BOR : op == BXOR ? BXOR : BAND;
  if (is_bitwise(dtype, op)) return bitwise(op);
  const bool compares = op == MAX || op == MIN;
  switch (dtype) {
    case F64: return compares ? order<double>(op) : arithmetic<double>(op);
    case F32: case F16: case BF16: return compares ? order<float>(op) : arithmetic<float>(op);
    case I64: return compares ? order<i64>(op) : arithmetic<u64>(op);
    case U64: return compares ? order<u64>(op) : arithmetic<u64>(op);
    case I32: return compares ? order<int32_t>(op) : arithmetic<u32>(op);
    case U32: return compares ? order<u32>(op) : arithmetic<u32>(op);
    case I16: return compares ? order<int16_t>(op) : arithmetic<u16>(op);
    case U16: return compares ? order<u16>(op) : arithmetic<u16>(op);
    case I8: return compares ? order<int8_t>(op) : arithmetic<u8>(op);
    case U8: return compares ? order<u8>(op) : arithmetic<u8>(op);
  }
  return 0;
}

// -- 16-bit floats

static inline float from_bits(u32 bits) { float f; __builtin_memcpy(&f, &bits, 4); return f; }
static inline u32 to_bits(float f) { u32 bits; __builtin_memcpy(&bits, &f, 4); return bits; }

static inline u16 to_bf16(float f) {  // to nearest, ties to even
  u32 bits = to_bits(f);
  u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
  return (u16)((f != f ? (bits | 0x400000) : rounded) >> 16);
}

static inline u16 to_f16(float f) {  // to nearest, ties to even; subnormals included
  u32 bits = to_bits(f), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  u32 normal = magnitude + 0xc8000fff + ((magnitude >> 13) & 1);             // exponent 127 -> 15, then round
  u32 small = to_bits(from_bits(magnitude) + from_bits(0x3f000000)) - 0x3f000000;  // adding 0.5 rounds to 2^-24
  u32 half = magnitude < 0x38800000 ? small : normal >> 13;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;                            // 65520 and above: infinity
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return (u16)(sign | half);
}

static inline float of_f16(u16 h) {
  u32 sign = (u32)(h & 0x8000) << 16, rest = (u32)(h & 0x7fff) << 13;
  float scaled = from_bits(rest) * from_bits(0x77800000);                    // 2^112: exponent 15 -> 127
  u32 bits = rest >= 0x0f800000 ? rest | 0x7f800000 : to_bits(scaled);       // infinity, NaN
  return from_bits(sign | bits);
}

// 16-bit to float32.
static void widen(float *to, const u16 *from, i64 n, int dtype) {
  if (dtype == BF16) for (i64 i = 0; i < n; i++) to[i] = from_bits((u32)from[i] << 16);
  else for (i64 i = 0; i < n; i++) to[i] = of_f16(from[i]);
}

// float32 to 16-bit.
static void narrow(u16 *to, const float *from, i64 n, int dtype) {
  if (dtype == BF16) for (i64 i = 0; i < n; i++) to[i] = to_bf16(from[i]);
  else for (i64 i = 0; i < n; i++) to[i] = to_f16(from[i]);
}

// -- all ranks' pieces

static void divide_all(void *z, i64 n, int dtype, int ranks) {
  if (dtype == F64) for (i64 i = 0; i < n; i++) ((double *)z)[i] /= (double)ranks;
  else for (i64 i = 0; i < n; i++) ((float *)z)[i] /= (float)ranks;
}

static void reduce_wide(u8 *target, const u8 *const *pieces, int ranks, i64 n, int dtype, int op) {
  Combine f = combination(dtype, op);
  const int size = ITEMSIZE[dtype];
  const int units = is_bitwise(dtype, op) ? size : 1;
  u8 block[BLOCK_NBYTES] __attribute__((aligned(64)));
  const i64 step = ranks == 2 && op != AVG ? n : BLOCK_NBYTES / size;  // two: one pass, no block in between
  for (i64 start = 0; start < n; start += step) {
    i64 m = n - start < step ? n - start : step, at = start * size;
    const void *sum = pieces[0] + at;
    for (int r = 1; r < ranks; r++) {
      void *to = r == ranks - 1 ? (void *)(target + at) : (void *)block;
      f(to, sum, pieces[r] + at, m * units);
      sum = to;
    }
    if (op == AVG) divide_all(target + at, m, dtype, ranks);
  }
}

static void reduce_narrow(u16 *target, const u8 *const *pieces, int ranks, i64 n, int dtype, int op) {
  Combine f = combination(dtype, op);
  const i64 step = BLOCK_NBYTES / 4;
  float sum[BLOCK_NBYTES / 4] __attribute__((aligned(64))), other[BLOCK_NBYTES / 4] __attribute__((aligned(64)));
  for (i64 start = 0; start < n; start += step) {
    i64 m = n - start < step ? n - start : step;
    widen(sum, (const u16 *)pieces[0] + start, m, dtype);
    for (int r = 1; r < ranks; r++) {
      widen(other, (const u16 *)pieces[r] + start, m, dtype);
      f(sum, sum, other, m);
    }
    if (op == AVG) divide_all(sum, m, F32, ranks);
    narrow(target + start, sum, m, dtype);
  }
}

// The reduction of `n` elements of every rank's piece. `target` may be one of them, or none.
static void reduce_pieces(void *target, const u8 *const *pieces, int ranks, i64 n, int dtype, int op) {
  if (ranks == 1) {
    if (target != (const void *)pieces[0]) memcpy(target, pieces[0], n * ITEMSIZE[dtype]);
  } else if (dtype == F16 || dtype == BF16) {
    reduce_narrow((u16 *)target, pieces, ranks, n, dtype, op);
  } else {
    reduce_wide((u8 *)target, pieces, ranks, n, dtype, op);
  }
}

// `n` elements of float32 or float64, rounded to the 16-bit `wire`; and back.
static void to_wire(u16 *to, const void *from, i64 n, int dtype, int wire) {
  if (dtype == F32) return narrow(to, (const float *)from, n, wire);
  float block[BLOCK_NBYTES / 4];
  for (i64 start = 0; start < n; start += BLOCK_NBYTES / 4) {
    i64 m = n - start < BLOCK_NBYTES / 4 ? n - start : BLOCK_NBYTES / 4;
    for (i64 i = 0; i < m; i++) block[i] = (float)((const double *)from)[start + i];
    narrow(to + start, block, m, wire);
  }
}

static void from_wire(void *to, const u16 *from, i64 n, int dtype, int wire) {
  if (dtype == F32) return widen((float *)to, from, n, wire);
  float block[BLOCK_NBYTES / 4];
  for (i64 start = 0; start < n; start += BLOCK_NBYTES / 4) {
    i64 m = n - start < BLOCK_NBYTES / 4 ? n - start : BLOCK_NBYTES / 4;
    widen(block, from + start, m, wire);
    for (i64 i = 0; i < m; i++) ((double *)to)[start + i] = (double)block[i];
  }
}
