// Torch's random numbers of the CPU, bit for bit: the words of mt19937, and what torch's kernels make of them.
//
// In: a generator's state, u8[5056] as torch.get_rng_state gives it; an array to fill, dense; parameters. Out: 0.
// Before it stands arrays.h; after it what Python calls: mersenne_often.h or mersenne_seldom.h, each a library, as what
// a training script draws is to be there soon.
// Rounding: torch's kernels for vectors are compiled with fused products and sums where the text has x * y + z, as gcc
// does of itself; here each is written out. `log`, `sin`, ... of doubles are the C library's, as there.
// The normal numbers of floats are by Cephes' polynomials (Moshier), in lanes of eight, cosines before sines. Poisson:
// Hörmann 1993, PTRS; binomial: Hörmann 1993, BTRS; Gamma: Marsaglia and Tsang 2000.

constexpr int N = 624, M = 397, CHUNK = 512;  // words of the state; the distance of its recurrence; words made at once

struct State {
  uint64_t seed;
  int32_t left, seeded;  // left: one more than words that are not used yet
  uint64_t next, words[N];
  double unused_x, spare, unused_rho;  // spare: the second of a pair of normal numbers, if has_spare
  int32_t has_spare;
  float float_spare;
  uint8_t has_float_spare;
};
static_assert(sizeof(State) == 5056, "torch's layout");

#define STATE(array) ((State*)((Array*)(array))->data)

// ---- words

DC_INLINE uint32_t twisted(uint32_t upper, uint32_t lower, uint32_t far) {
  const uint32_t mixed = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return far ^ (mixed >> 1) ^ (-(lower & 1u) & 0x9908b0dfu);
}

static void refill(State* s) {
  uint32_t w[N + 1];
  for (int k = 0; k < N; ++k) w[k] = (uint32_t)s->words[k];
#pragma GCC ivdep
  for (int k = 0; k < N - M; ++k) w[k] = twisted(w[k], w[k + 1], w[k + M]);
  w[N] = w[0];
#pragma omp simd safelen(227)
  for (int k = N - M; k < N; ++k) w[k] = twisted(w[k], w[k + 1], w[k + M - N]);
  for (int k = 0; k < N; ++k) s->words[k] = w[k];
  s->left = N + 1, s->next = 0;
}

DC_INLINE uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

DC_INLINE uint32_t word(State* s) {
  if (s->left == 1) refill(s);
  --s->left;
  return tempered((uint32_t)s->words[s->next++]);
}

static void words(State* s, uint32_t* out, int64_t n) {
  while (n > 0) {
    if (s->left == 1) refill(s);
    const int64_t now = n < s->left - 1 ? n : s->left - 1;
    const uint64_t* from = s->words + s->next;
    for (int64_t k = 0; k < now; ++k) out[k] = tempered((uint32_t)from[k]);
    s->left -= (int32_t)now, s->next += (uint64_t)now, out += now, n -= now;
  }
}

DC_INLINE uint64_t joined(uint32_t high, uint32_t low) { return (uint64_t)high << 32 | low; }

DC_INLINE uint64_t word64(State* s) {
  const uint32_t high = word(s);
  return joined(high, word(s));
}

// ---- uniform numbers in [0, 1), one after the other and many at once

DC_INLINE float unit_of(uint32_t w) { return (float)(int32_t)(w & 0xffffffu) * 0x1p-24f; }
DC_INLINE double unit_of(uint64_t w) { return (double)(int64_t)(w & ((1ull << 53) - 1)) * 0x1p-53; }
DC_INLINE double unit(State* s) { return unit_of(word64(s)); }

// `now` numbers of T, at most as many as CHUNK words make
template <class T> DC_APART static void draw(State* s, T* u, int64_t now) {
  constexpr int64_t PER = (int64_t)sizeof(T) / 4;
  uint32_t w[CHUNK];
  words(s, w, now * PER);
  if constexpr (PER == 1) {
    for (int64_t k = 0; k < now; ++k) u[k] = unit_of(w[k]);
  } else {
    for (int64_t k = 0; k < now; ++k) u[k] = unit_of(joined(w[2 * k], w[2 * k + 1]));
  }
}

// each(first element, numbers, how many) for blocks of `n` numbers of T
template <class T, class F> static void units(State* s, int64_t n, F each) {
  constexpr int64_t AT_ONCE = CHUNK * 4 / (int64_t)sizeof(T);
  T u[AT_ONCE];
  for (int64_t first = 0; first < n; first += AT_ONCE) {
    const int64_t now = n - first < AT_ONCE ? n - first : AT_ONCE;
    draw(s, u, now);
    each(first, u, now);
  }
}

DC_INLINE float fused(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
DC_INLINE double fused(double x, double y, double z) { return __builtin_fma(x, y, z); }

template <class T> static int64_t uniform(State* s, Array* a, T from, T to) {
  T* out = (T*)a->data;
  units<T>(s, numel(a), [=](int64_t first, const T* u, int64_t now) {
    for (int64_t k = 0; k < now; ++k) {
      const T value = fused(u[k], to - from, from);
      out[first + k] = value == to ? from : value;
    }
  });
  return 0;
}

// ---- normal numbers

// The second of a pair is kept for the next call, of whatever dtype.
static double normal(State* s) {
  if (s->has_spare) {
    const double kept = s->spare;
    s->has_spare = 0, s->spare = 0;
    return kept;
  }
  const double u = unit(s), v = unit(s);
  const double radius = sqrt(-2.0 * log1p(-v)), angle = 2.0 * 3.14159265358979323846 * u;
  s->spare = radius * sin(angle), s->has_spare = 1;
  return radius * cos(angle);
}

DC_INLINE float from_bits(uint32_t bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
DC_INLINE uint32_t to_bits(float x) { uint32_t bits; __builtin_memcpy(&bits, &x, 4); return bits; }

DC_INLINE float cephes_log(float x) {  // of 2^-24 to 1
  const uint32_t bits = to_bits(x);
  float part = from_bits((bits & 0x807fffffu) | 0x3f000000u), e = (float)((int32_t)(bits >> 23) - 126);
  const bool is_low = part < 0.707106781186547524f;
  e -= is_low ? 1.0f : 0.0f;
  const float t = (part - 1.0f) + (is_low ? part : 0.0f), z = t * t;
  float y = 7.0376836292e-2f;
  y = fused(y, t, -1.1514610310e-1f);
  y = fused(y, t, 1.1676998740e-1f);
  y = fused(y, t, -1.2420140846e-1f);
  y = fused(y, t, 1.4249322787e-1f);
  y = fused(y, t, -1.6668057665e-1f);
  y = fused(y, t, 2.0000714765e-1f);
  y = fused(y, t, -2.4999993993e-1f);
  y = fused(y, t, 3.3333331174e-1f);
  y = fused(y * t, z, e * -2.12194440e-4f) - z * 0.5f;
  return fused(e, 0.693359375f, t + y);
}

DC_INLINE void cephes_sincos(float x, float* sine, float* cosine) {  // of 0 to 2 pi
  const int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
  const float j = (float)octant;
  x = fused(j, -0.78515625f, x);
  x = fused(j, -2.4187564849853515625e-4f, x);
  x = fused(j, -3.77489497744594108e-8f, x);
  const float z = x * x;
  float c = fused(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = fused(c, z, 4.166664568298827e-2f) * z;
  c = fused(c, z, -(z * 0.5f)) + 1.0f;
  float s = fused(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = fused(s, z, -1.6666654611e-1f) * z;
  s = fused(s, x, x);
  const bool is_turned = octant & 2;
  const float first = is_turned ? c : s, second = is_turned ? s : c;
  *sine = octant & 4 ? -first : first;
  *cosine = (octant + 2) & 4 ? -second : second;
}

// sixteen uniform numbers -> sixteen normal ones
DC_INLINE void sixteen(const float* u, float* out, float mean, float std) {
#pragma omp simd
  for (int k = 0; k < 8; ++k) {
    float sine, cosine;
    const float radius = __builtin_sqrtf(-2.0f * cephes_log(1.0f - u[k]));
    cephes_sincos(6.283185307179586f * u[k + 8], &sine, &cosine);
    out[k] = fused(radius * cosine, std, mean);
    out[k + 8] = fused(radius * sine, std, mean);
  }
}

DC_INLINE void sixteen(const double* u, double* out, double mean, double std) {
  for (int k = 0; k < 8; ++k) {
    const double radius = sqrt(-2.0 * log(1.0 - u[k])), angle = 2.0 * 3.14159265358979323846 * u[k + 8];
    const double cosine = cos(angle), sine = sin(angle);
    out[k] = fused(radius * cosine, std, mean);
    out[k + 8] = fused(radius * sine, std, mean);
  }
}

template <class T> DC_APART static void sixteens(const T* u, T* out, int64_t now, T mean, T std) {
  for (int64_t k = 0; k < now; k += 16) sixteen(u + k, out + k, mean, std);
}

// At least sixteen, dense. What is left over after the last whole sixteen is drawn too, and dropped (is_narrow: not
// drawn); then the last sixteen are drawn anew.
template <class T> static int64_t normals(State* s, Array* a, T mean, T std, bool is_narrow) {
  T *out = (T*)a->data, u[16];
  const int64_t n = numel(a), whole = n & ~15ll;
  units<T>(s, whole, [=](int64_t first, const T* u, int64_t now) { sixteens(u, out + first, now, mean, std); });
  if (whole == n) return 0;
  if (!is_narrow) draw(s, u, n - whole);
  draw(s, u, 16);
  sixteens(u, out + n - 16, 16, mean, std);
  return 0;
}

// ---- numbers of double precision, one an element

template <class F> static int64_t each(Array* a, F make) {
  double* out = (double*)a->data;
  const int64_t n = numel(a);
  for (int64_t k = 0; k < n; ++k) out[k] = make();
  return 0;
}
