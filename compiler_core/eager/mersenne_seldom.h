// What is drawn of torch's generator seldom: doubles, truth values, and what is drawn by rejection.
//
// In: see mersenne.h, which stands before it. Out: 0.

#define RARE __attribute__((cold)) static  // branches that gain nothing by being optimized at length

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

EXPORT dc_uniform(void* state, void* out, double from, double to) {
  return uniform<double>(STATE(state), (Array*)out, from, to);
}

EXPORT dc_normals(void* state, void* out, double mean, double std, int64_t is_narrow) {
  return normals<double>(STATE(state), (Array*)out, mean, std, is_narrow);
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
