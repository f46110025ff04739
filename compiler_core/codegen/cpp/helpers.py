"""The C++ that stands before the kernels: types without headers, libm declarations, and the helpers that are used.

In: the names of helpers and libm functions that the kernels of a unit use. Out: the prelude's text.
No header is included: a tiny unit then compiles in a few hundredths of a second. libm functions of which this machine's
libmvec has vector forms are declared with the `simd` attribute, so that vector loops call those (x86-64 vector ABI; GCC
only).
Sources: exp's polynomial is that of Cephes' expf (Moshier); f16 conversions after Fabian Giesen, "half to
float done quick" (2012); Philox4x32-10: Salmon et al., SC'11; floor division and remainder of floats as NumPy's
npy_divmod.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler_core.codegen.cpp import complex as complex_numbers
from compiler_core.ops.primitives import erf
from compiler_core.ops.random import box_muller
from compiler_core.runtime.toolchain import vector_functions

TYPES = """\
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef uint16_t dc_f16;   // bit patterns; arithmetic is done in float
typedef uint16_t dc_bf16;
typedef __complex__ float dc_c64;
typedef __complex__ double dc_c128;
#if defined(__GNUC__) && !defined(__clang__)
#define DC_SIMD __attribute__((simd("notinbranch"), const))
#define DC_APART __attribute__((noinline, noclone))  // compiled once, whatever the calls: a source is built sooner
#define DC_CALLS __attribute__((optimize("O1")))  // of what only calls others: there is nothing to gain
#else
#define DC_SIMD
#define DC_APART __attribute__((noinline))
#define DC_CALLS
#endif
#define DC_INLINE static inline __attribute__((always_inline))
// A truth value as a number, or a choice of two. GCC's gathers take a place that is computed of one for a vector of
// truth values, and read astray (12.2, of elements of 4 bytes by places of 8); they do not look through this.
#if defined(__clang__)
#define DC_HIDDEN(x) (x)
#elif __GNUC__ >= 12
#define DC_HIDDEN(x) __builtin_assoc_barrier(x)
#else
template <class T> DC_INLINE T dc_hidden(T x) { __asm__("" : "+r"(x)); return x; }
#define DC_HIDDEN(x) dc_hidden(x)
#endif
// f(from, to) for ranges that make up 0 to n, of multiples of `least`, some `shares` for every thread: runtime/pool.py.
// The same code, so the same bits, whatever the number of threads.
typedef void (*dc_body)(void* f, int64_t from, int64_t to);
extern "C" void (*dc_pool)(int64_t n, int64_t least, int64_t shares, dc_body run, void* f);
template <class F> static inline void dc_parallel(int64_t n, int64_t least, const F& f, int64_t shares = 4) {
  dc_pool(n, least, shares, [](void* with, int64_t from, int64_t to) { (*(const F*)with)(from, to); }, (void*)&f);
}
template <class C, class T> DC_INLINE C dc_complex(T re, T im) { C z; __real__ z = re; __imag__ z = im; return z; }
"""

_OFFER = """\
// The place of the first best of a block's values if it beats `best`, which it then becomes; else -1. NaN wins.
template <class T> static inline int32_t dc_offer_BEST(const T* x, int64_t n, T& best, bool none) {
  T found = x[0];
#pragma omp simd reduction(dc_BEST : found)
  for (int64_t i = 0; i < n; ++i) found = dc_BEST(found, x[i]);
  if (!(none | (found BEATS best) | ((found != found) & (best == best)))) return -1;
  best = found;
  int32_t at = (int32_t)n;
#pragma omp simd reduction(min : at)
  for (int32_t i = 0; i < (int32_t)n; ++i) {
    const int32_t here = (x[i] == found) | ((x[i] != x[i]) & (found != found)) ? i : (int32_t)n;
    at = here < at ? here : at;
  }
  return at;
}
"""

# name -> (names needed before it, text)
HELPERS: dict[str, tuple[tuple[str, ...], str]] = {
    "bits": ((), """\
DC_INLINE float dc_float_of(uint32_t bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
DC_INLINE uint32_t dc_bits_of(float x) { uint32_t bits; __builtin_memcpy(&bits, &x, 4); return bits; }
"""),
    "exp": (("bits",), """\
// exp in float, within 1.1 units in the last place, subnormal results included. libmvec's is as fast, but leaves its
// vector path for -inf, which every masked softmax feeds it. Adding 1.5 2^23 rounds n and leaves it in the low bits.
DC_INLINE float dc_exp(float x) {
  const float shifted = __builtin_fmaf(x, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float r = __builtin_fmaf(n, -1.42860677e-6f, __builtin_fmaf(n, -0.693145752f, x));  // x - n ln 2, in two parts
  float p = 1.9875691500e-4f;
  p = __builtin_fmaf(p, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r);
  const bool small = x < -80.0f;  // 2^(n-1) and twice, as n may be 128; where n nears -126, 2^(n+64) and the rest after
  const float scale = dc_float_of((dc_bits_of(shifted) << 23) + (small ? 0x5f800000u : 0x3f000000u));
  const float y = __builtin_fmaf(p, scale, scale) * (small ? 0x1p-64f : 2.0f);
  return x > 88.7228317f ? __builtin_inff() : x < -104.0f ? 0.0f : y;
}
"""),
    "erf": ((), erf.C_TEXT),
    "tanh": (("bits",), """\
// tanh in float, within 2.5 units in the last place: -e / (2 + e) with e = exp(-2 |x|) - 1, whose polynomial is exp's.
DC_INLINE float dc_tanh(float x) {
  float y = -2.0f * __builtin_fabsf(x);
  y = y < -20.0f ? -20.0f : y;  // from there on the result is 1; NaN stays
  const float shifted = __builtin_fmaf(y, 1.44269504f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float r = __builtin_fmaf(n, -1.42860677e-6f, __builtin_fmaf(n, -0.693145752f, y));
  float p = 1.9875691500e-4f;
  p = __builtin_fmaf(p, r, 1.3981999507e-3f);
  p = __builtin_fmaf(p, r, 8.3334519073e-3f);
  p = __builtin_fmaf(p, r, 4.1665795894e-2f);
  p = __builtin_fmaf(p, r, 1.6666665459e-1f);
  p = __builtin_fmaf(p, r, 5.0000001201e-1f);
  p = __builtin_fmaf(p, r * r, r);
  const float scale = dc_float_of((dc_bits_of(shifted) << 23) + 0x3f800000u);
  const float e = __builtin_fmaf(p, scale, scale - 1.0f);
  return __builtin_copysignf(e / (-2.0f - e), x);
}
"""),
    "bf16": (("bits",), """\
DC_INLINE float dc_from_bf16(dc_bf16 h) { return dc_float_of((uint32_t)h << 16); }
DC_INLINE dc_bf16 dc_to_bf16(float x) {  // to nearest even; NaN stays NaN
  const uint32_t u = dc_bits_of(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (dc_bf16)(x != x ? (u >> 16) | 0x40u : rounded);
}
"""),
    "f16": (("bits",), """\
DC_INLINE float dc_from_f16(dc_f16 h) {
  const uint32_t scaled = dc_bits_of(dc_float_of((uint32_t)(h & 0x7fffu) << 13) * 0x1p112f);
  const uint32_t finite_or_not = (h & 0x7c00u) == 0x7c00u ? scaled | 0x7f800000u : scaled;
  return dc_float_of(finite_or_not | (uint32_t)(h & 0x8000u) << 16);
}
DC_INLINE dc_f16 dc_to_f16(float x) {  // to nearest even; overflow to infinity; NaN stays NaN
  const uint32_t u = dc_bits_of(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  const uint32_t subnormal = dc_bits_of(dc_float_of(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t small_or_not = magnitude < 0x38800000u ? subnormal : normal;
  return (dc_f16)(sign | (magnitude >= 0x47800000u ? special : small_or_not));
}
"""),
    "max": ((), """\
template <class T> DC_INLINE T dc_max(T a, T b) { return (a > b) | (a != a) ? a : b; }  // NaN propagates
"""),
    "larger": ((), """\
// dc_max of elements: g++ vectorizes two of these in a row, but not two of dc_max, which is the quicker in reductions.
template <class T> DC_INLINE T dc_larger(T a, T b) {
  const T best = a > b ? a : b;
  return a != a ? a : best;
}
"""),
    "min": ((), """\
template <class T> DC_INLINE T dc_min(T a, T b) { return (a < b) | (a != a) ? a : b; }  // NaN propagates
"""),
    "smaller": ((), """\
// dc_min of elements: g++ vectorizes two of these in a row, but not two of dc_min, which is the quicker in reductions.
template <class T> DC_INLINE T dc_smaller(T a, T b) {
  const T best = a < b ? a : b;
  return a != a ? a : best;
}
"""),
    "reduce_max": (("max",), """\
#pragma omp declare reduction(dc_max : float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, \\
    uint64_t : omp_out = dc_max(omp_out, omp_in)) initializer(omp_priv = omp_orig)
"""),
    "reduce_min": (("min",), """\
#pragma omp declare reduction(dc_min : float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, \\
    uint64_t : omp_out = dc_min(omp_out, omp_in)) initializer(omp_priv = omp_orig)
"""),
    "offer_max": (("reduce_max",), _OFFER.replace("BEST", "max").replace("BEATS", ">")),
    "offer_min": (("reduce_min",), _OFFER.replace("BEST", "min").replace("BEATS", "<")),
    "turn": ((), """\
// to[c][r] = from[r][c] for a square of NBYTES a row; rows lie ldf and ldt apart.
template <class T, int NBYTES> static void dc_turn(const T* from, int64_t ldf, T* to, int64_t ldt) {
  enum { lanes = NBYTES / sizeof(T) };
#if defined(__clang__)
  for (int r = 0; r < lanes; ++r)
    for (int c = 0; c < lanes; ++c) __builtin_memcpy(to + c * ldt + r, from + r * ldf + c, sizeof(T));
#else
  typedef T vector __attribute__((vector_size(NBYTES)));
  typedef vector loose __attribute__((aligned(2), may_alias));
  typedef decltype(vector{} == vector{}) places;
  places low, high;
  for (int k = 0; k < lanes; ++k) {
    low[k] = k / 2 + k % 2 * lanes;
    high[k] = low[k] + lanes / 2;
  }
  vector rows[lanes], mixed[lanes];
#pragma GCC unroll 16
  for (int r = 0; r < lanes; ++r) rows[r] = *(const loose*)(from + r * ldf);
#pragma GCC unroll 4
  for (int done = 1; done < lanes; done *= 2) {
#pragma GCC unroll 8
    for (int r = 0; r < lanes / 2; ++r) {
      mixed[2 * r] = __builtin_shuffle(rows[r], rows[r + lanes / 2], low);
      mixed[2 * r + 1] = __builtin_shuffle(rows[r], rows[r + lanes / 2], high);
    }
#pragma GCC unroll 16
    for (int r = 0; r < lanes; ++r) rows[r] = mixed[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < lanes; ++r) *(loose*)(to + r * ldt) = rows[r];
#endif
}
"""),
    "sign": ((), """\
template <class T> DC_INLINE T dc_sign(T x) { return x > 0 ? (T)1 : x < 0 ? (T)-1 : (T)0; }
"""),
    "square": ((), "template <class T> DC_INLINE T dc_square(T x) { return x * x; }\n"),
    "cube": ((), "template <class T> DC_INLINE T dc_cube(T x) { return x * x * x; }\n"),
    "floor_div": ((), """\
// Integer division towards minus infinity; by zero: 0, as NumPy. The most negative value by -1 wraps.
template <class T> DC_INLINE T dc_floor_div(T a, T b) {
  if (b == 0) return 0;
  if (b == (T)-1 && (T)-1 < 0) return (T)(0 - (uint64_t)a);
  const T q = a / b;
  return (T)(q - ((a % b != 0) & ((a < 0) != (b < 0))));
}
DC_INLINE int64_t dc_floor_div(int64_t a, int b) { return dc_floor_div(a, (int64_t)b); }
"""),
    "floor_mod": ((), """\
// Remainder with the sign of the divisor; by zero: 0, as NumPy.
template <class T> DC_INLINE T dc_floor_mod(T a, T b) {
  if (b == 0 || (b == (T)-1 && (T)-1 < 0)) return 0;
  const T r = a % b;
  return (T)(r + ((r != 0) & ((r < 0) != (b < 0)) ? b : 0));
}
DC_INLINE int64_t dc_floor_mod(int64_t a, int b) { return dc_floor_mod(a, (int64_t)b); }
"""),
    "float_mod": ((), """\
DC_INLINE double dc_fmod(double a, double b) { return __builtin_fmod(a, b); }
DC_INLINE float dc_fmod(float a, float b) { return __builtin_fmodf(a, b); }
// Python's remainder on floats: exact fmod, then the divisor's sign; but 0 keeps the dividend's, as torch's.
template <class T> DC_INLINE T dc_float_mod(T a, T b) {
  const T r = dc_fmod(a, b);
  return b == b && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
"""),
    "float_floor_div": (("float_mod",), """\
DC_INLINE double dc_floor(double x) { return __builtin_floor(x); }
DC_INLINE float dc_floor(float x) { return __builtin_floorf(x); }
// Python's floor division on floats, as NumPy's npy_divmod.
template <class T> DC_INLINE T dc_float_floor_div(T a, T b) {
  if (b == 0) return a / b;
  const T r = dc_fmod(a, b);
  const T q = (a - r) / b - (r != 0 && (r < 0) != (b < 0) ? (T)1 : (T)0);
  const T whole = dc_floor(q);
  return q == 0 ? (T)0 * (a / b) : q - whole > (T)0.5 ? whole + 1 : whole;  // 0 has the quotient's sign
}
"""),
    "int_pow": ((), """\
template <class T> DC_INLINE T dc_int_pow(T base, T exponent) {  // wraps; a negative exponent gives 0, but for 1 and -1
  if (exponent < 0) return base == 1 ? 1 : base == (T)-1 ? ((exponent & 1) ? base : 1) : 0;
  uint64_t result = 1, square = (uint64_t)base;
  for (uint64_t left = (uint64_t)exponent; left; left >>= 1, square *= square)
    if (left & 1) result *= square;
  return (T)result;
}
"""),
    "shift_left": ((), """\
template <class T> DC_INLINE T dc_shift_left(T a, T b) {
  return (uint64_t)b < 8 * sizeof(T) ? (T)((uint64_t)a << b) : (T)0;
}
"""),
    "shift_right": ((), """\
template <class T> DC_INLINE T dc_shift_right(T a, T b) {
  return (uint64_t)b < 8 * sizeof(T) ? (T)(a >> b) : (T)(a < 0 ? -1 : 0);
}
"""),
    "philox": ((), """\
// Word 0 of Philox4x32-10 with key `seed` and counter (element, stream). Where there are vectors of 64-bit products,
// words lie in 64 bits from the first round to the last: half of the time went into moving them there and back.
#ifdef __AVX512DQ__
typedef uint64_t dc_word;
#else
typedef uint32_t dc_word;
#endif
DC_INLINE uint32_t dc_philox(uint64_t seed, uint64_t stream, uint64_t element) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  dc_word c0 = (uint32_t)element, c1 = (uint32_t)(element >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (uint32_t)c0;
}
"""),
    "normal32": ((), box_muller.c_text(box_muller.F32, "__builtin_sqrtf")),
    "normal64": ((), box_muller.c_text(box_muller.F64, "__builtin_sqrt")),
    **complex_numbers.HELPERS,
}  # fmt: skip


def helper_text(names: Iterable[str]) -> str:
    """The helpers `names` and all that they need, each once, in order of need."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        needs, text = HELPERS[name]
        for need in needs:
            add(need)
        done.setdefault(name, text)

    for name in sorted(names):
        add(name)
    return "".join(done.values())


def libm_declarations(names: Iterable[str]) -> str:
    """Declarations of libm functions by their C names (`expf`, `pow`), with vector forms where libmvec has them."""
    vector = vector_functions()
    lines = [_declaration(name, "DC_SIMD " if name in vector else "") for name in sorted(names)]
    return 'extern "C" {\n' + "".join(lines) + "}\n" if lines else ""


def _declaration(name: str, attribute: str) -> str:
    ctype = "float" if name.endswith("f") and name != "erf" else "double"
    operands = ", ".join([ctype] * (2 if name.startswith(("pow", "atan2")) else 1))
    return f"{attribute}{ctype} {name}({operands}) noexcept;\n"
