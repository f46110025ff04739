// Torch's random numbers of the CPU, bit for bit: the words of mt19937, and what torch's kernels make of them.
//
// In: a generator's state, u8[5056] as torch.get_rng_state gives it; an array to fill, dense; parameters. Out: 0.
// Before it stands arrays.h.
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

// each(first element, numbers, how many) for blocks of `n` numbers of T
template <class T, class F> static void units(State* s, int64_t n, F each) {
  constexpr int64_t PER = (int64_t)sizeof(T) / 4, AT_ONCE = CHUNK / PER;
  uint32_t w[CHUNK];
  T u[AT_ONCE];
  for (int64_t first = 0; first < n; first += AT_ONCE) {
    const int64_t now = n - first < AT_ONCE ? n - first : AT_ONCE;
    words(s, w, now * PER);
    if constexpr (PER == 1) {
      for (int64_t k = 0; k < now; ++k) u[k] = unit_of(w[k]);
    } else {
      for (int64_t k = 0; k < now; ++k) u[k] = unit_of(joined(w[2 * k], w[2 * k + 1]));
    }
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

// At least sixteen, dense. What is left over after the last whole sixteen is drawn too, and dropped (is_narrow: not
// drawn); then the last sixteen are drawn anew.
template <class T> static int64_t normals(State* s, Array* a, T mean, T std, bool is_narrow) {
  T *out = (T*)a->data, last[16];
  const int64_t n = numel(a), whole = n & ~15ll;
  units<T>(s, whole, [=](int64_t first, const T* u, int64_t now) {
    for (int64_t k = 0; k < now; k += 16) sixteen(u + k, out + first + k, mean, std);
  });
  if (whole == n) return 0;
  if (!is_narrow) units<T>(s, n - whole, [](int64_t, const T*, int64_t) {});
  units<T>(s, 16, [&](int64_t, const T* u, int64_t) { sixteen(u, last, mean, std); });
  __builtin_memcpy(out + n - 16, last, sizeof last);
  return 0;
}

// ---- the others: numbers of double precision, one an element. Their branches gain nothing by being optimized at length

#define RARE __attribute__((cold)) static

template <class F> static int64_t each(Array* a, F make) {
  double* out = (double*)a->data;
  const int64_t n = numel(a);
  for (int64_t k = 0; k < n; ++k) out[k] = make();
  return 0;
}

RARE double poisson(State* s, double rate) {
  if (rate == 0) return 0;
  if (rate < 10) {
    const double limit = exp(-rate);
    double product = 1, count = 0;
    while ((product *= unit(s)) > limit) ++count;
    return count;
  }
  const double root = sqrt(rate), log_rate = log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), limit = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = unit(s) - 0.5, v = unit(s), us = 0.5 - __builtin_fabs(u);
    const double k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= limit) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v) + log(inverse_alpha) - log(a / (us * us) + b) <= -rate + k * log_rate - lgamma(k + 1)) return k;
  }
}

DC_INLINE double root_of(float x) { return __builtin_sqrtf(x); }
DC_INLINE double root_of(double x) { return sqrt(x); }
DC_INLINE double log1p_of(float x) { return log1pf(x); }
DC_INLINE double log1p_of(double x) { return log1p(x); }

// The parameter is T's, as are steps that have no double in them.
template <class T> RARE double gamma(State* s, T alpha) {
  double scale = 1;
  if (alpha < 1) {
    if (alpha == 0) return 0;
    scale = pow(1 - unit(s), 1.0f / alpha);
    alpha += 1.0f;
  }
  const double d = alpha - 1.0f / 3.0f, c = 1.0f / sqrt(9.0f * d);
  for (;;) {
    double x, y;
    do {
      x = normal(s);
      y = 1.0f + c * x;
    } while (y <= 0);
    const double v = y * y * y, u = 1 - unit(s), xx = x * x;
    if (u < 1.0f - 0.0331f * xx * xx || log(u) < 0.5f * xx + d * (1.0f - v + log(v))) return scale * d * v;
  }
}

RARE double stirling_rest(double k) {  // of log k!
  static const double REST[] = {
      0.0810614667953272,  0.0413406959554092,  0.0276779256849983,  0.02079067210376509, 0.0166446911898211,
      0.0138761288230707,  0.0118967099458917,  0.0104112652619720,  0.00925546218271273, 0.00833056343336287};
  if (k < 10) return REST[(int)k];
  const double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

template <class T> RARE T few_of(State* s, T count, T p) {
  const double log_failure = log1p_of(-p);
  double sum = 0;
  T found = 0;
  for (;; ++found) {
    sum += ceil(log(unit(s)) / log_failure);
    if (sum > count) return found;
  }
}

template <class T> RARE T many_of(State* s, T count, T p) {
  const double deviation = root_of(count * p * (1 - p)), b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double c = count * p + 0.5, limit = 0.92 - 4.2 / b, odds = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation;
  const double m = floor((count + 1) * p);
  for (;;) {
    const double u = unit(s) - 0.5, us = 0.5 - __builtin_fabs(u);
    double v = unit(s);
    const T k = (T)floor((2 * a / us + b) * u + c);
    if (k < 0 || k > count) continue;
    if (us >= 0.07 && v <= limit) return k;
    v = log(v * alpha / (a / (us * us) + b));
    const double bound = (m + 0.5) * log((m + 1) / (odds * (count - m + 1))) +
                         (count + 1) * log((count - m + 1) / (count - k + 1)) +
                         (k + 0.5) * log(odds * (count - k + 1) / (k + 1)) + stirling_rest(m) +
                         stirling_rest(count - m) - stirling_rest(k) - stirling_rest(count - k);
    if (v <= bound) return k;
  }
}

template <class T> RARE T binomial(State* s, T count, T p) {
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1) return count;
  if (p <= 0.5) return count * p >= 10 ? many_of(s, count, p) : few_of(s, count, p);
  if (!(p > 0.5)) return (T)__builtin_nan("");
  const T q = (T)(1.0 - p);
  return count - (count * q >= 10 ? many_of(s, count, q) : few_of(s, count, q));
}

// ---- what Python calls

#define IS_FLOAT(array) (((Array*)(array))->descr->number == FLOAT)

EXPORT dc_seed(void* state, uint64_t seed) {
  State* s = STATE(state);
  __builtin_memset(s, 0, sizeof *s);
  s->seed = seed, s->seeded = 1, s->left = 1;
  uint32_t w = (uint32_t)seed;
  s->words[0] = w;
  for (uint32_t k = 1; k < N; ++k) s->words[k] = w = 1812433253u * (w ^ (w >> 30)) + k;
  return 0;
}

EXPORT dc_word64(void* state) { return (int64_t)word64(STATE(state)); }

EXPORT dc_uniform(void* state, void* out, double from, double to) {
  if (IS_FLOAT(out)) return uniform<float>(STATE(state), (Array*)out, (float)from, (float)to);
  return uniform<double>(STATE(state), (Array*)out, from, to);
}

EXPORT dc_normals(void* state, void* out, double mean, double std, int64_t is_narrow) {
  if (IS_FLOAT(out)) return normals<float>(STATE(state), (Array*)out, (float)mean, (float)std, is_narrow);
  return normals<double>(STATE(state), (Array*)out, mean, std, is_narrow);
}

EXPORT dc_normal(void* state, void* out, double mean, double std) {
  State* s = STATE(state);
  return each((Array*)out, [=] { return fused(normal(s), std, mean); });
}

EXPORT dc_log_normal(void* state, void* out, double mean, double std) {
  State* s = STATE(state);
  return each((Array*)out, [=] { return exp(fused(normal(s), std, mean)); });
}

EXPORT dc_exponential(void* state, void* out, double rate) {
  State* s = STATE(state);
  return each((Array*)out, [=] { return -1.0 / rate * log1p(-unit(s)); });
}

EXPORT dc_cauchy(void* state, void* out, double median, double sigma) {
  State* s = STATE(state);
  return each((Array*)out, [=] { return fused(sigma, tan(3.14159265358979323846 * (unit(s) - 0.5)), median); });
}

EXPORT dc_geometric(void* state, void* out, double p) {
  State* s = STATE(state);
  return each((Array*)out, [=] { return ceil(log(unit(s)) / log1p(-p)); });
}

EXPORT dc_bernoulli(void* state, void* array, double p) {
  Array* a = (Array*)array;
  uint8_t* out = (uint8_t*)a->data;
  units<double>(STATE(state), numel(a), [=](int64_t first, const double* u, int64_t now) {
    for (int64_t k = 0; k < now; ++k) out[first + k] = u[k] < p;
  });
  return 0;
}

// range 0: all of 64 bits
EXPORT dc_integers(void* state, void* array, int64_t base, uint64_t range, int64_t is_wide) {
  State* s = STATE(state);
  Array* a = (Array*)array;
  int64_t* out = (int64_t*)a->data;
  const int64_t n = numel(a);
  uint32_t w[CHUNK];
  for (int64_t first = 0; first < n; first += CHUNK / 2) {
    const int64_t now = n - first < CHUNK / 2 ? n - first : CHUNK / 2;
    words(s, w, is_wide ? 2 * now : now);
    if (is_wide) {
      for (int64_t k = 0; k < now; ++k) {
        const uint64_t drawn = joined(w[2 * k], w[2 * k + 1]);
        out[first + k] = (int64_t)((range ? drawn % range : drawn) + (uint64_t)base);
      }
    } else {
      const uint32_t narrow = (uint32_t)range;  // at most 2^32, which is 0 here
      for (int64_t k = 0; k < now; ++k) out[first + k] = (int64_t)((narrow ? w[k] % narrow : w[k]) + (uint64_t)base);
    }
  }
  return 0;
}

EXPORT dc_permutation(void* state, void* array) {
  State* s = STATE(state);
  Array* a = (Array*)array;
  int64_t* out = (int64_t*)a->data;
  const int64_t n = numel(a);
  if (n < 0xffffffffll / 20) {
    for (int64_t k = 0; k < n; ++k) out[k] = k;
    for (int64_t k = 0; k < n - 1; ++k) {
      const int64_t other = k + word(s) % (uint32_t)(n - k), mine = out[k];
      out[k] = out[other], out[other] = mine;
    }
  } else {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t other = (int64_t)(word64(s) % (uint64_t)(k + 1));
      out[k] = k, out[k] = out[other], out[other] = k;
    }
  }
  return 0;
}

EXPORT dc_poisson(void* state, void* out, void* rates) {
  State* s = STATE(state);
  const double* rate = (const double*)((Array*)rates)->data;
  return each((Array*)out, [=]() mutable { return poisson(s, *rate++); });
}

template <class T> static int64_t gammas(State* s, Array* out, const T* alpha) {
  return each(out, [=]() mutable { return gamma(s, *alpha++); });
}

EXPORT dc_gamma(void* state, void* out, void* alpha) {
  if (IS_FLOAT(alpha)) return gammas(STATE(state), (Array*)out, (const float*)((Array*)alpha)->data);
  return gammas(STATE(state), (Array*)out, (const double*)((Array*)alpha)->data);
}

template <class T> static int64_t binomials(State* s, Array* out, const T* count, const T* p) {
  return each(out, [=]() mutable { return (double)binomial(s, *count++, *p++); });
}

EXPORT dc_binomial(void* state, void* out, void* count, void* p) {
  if (IS_FLOAT(p)) return binomials(STATE(state), (Array*)out, (const float*)((Array*)count)->data, (const float*)((Array*)p)->data);
  return binomials(STATE(state), (Array*)out, (const double*)((Array*)count)->data, (const double*)((Array*)p)->data);
}
