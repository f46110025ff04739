// What nearly every script draws from torch's generator: numbers of floats, integers, orders.
//
// In: see mersenne.h, which stands before it. Out: 0.

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
  return uniform<float>(STATE(state), (Array*)out, (float)from, (float)to);
}

EXPORT dc_normals(void* state, void* out, double mean, double std, int64_t is_narrow) {
  return normals<float>(STATE(state), (Array*)out, (float)mean, (float)std, is_narrow);
}

EXPORT __attribute__((cold)) dc_normal(void* state, void* out, double mean, double std) {
  State* s = STATE(state);
  return each((Array*)out, [=] { return fused(normal(s), std, mean); });
}

// range 0: all of 64 bits. It waits for divisions, and gains nothing by being optimized at length.
EXPORT __attribute__((cold)) dc_integers(void* state, void* array, int64_t base, uint64_t range, int64_t is_wide) {
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
