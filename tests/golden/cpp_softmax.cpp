DC_APART void k_softmax(const float* p0, float* out) {
  for (int64_t i0 = 0; i0 < 32; ++i0) {
    float a0 = (-__builtin_inff());
    #pragma omp simd reduction(dc_max:a0)
    for (int64_t i1 = 0; i1 < 128; ++i1) {
      a0 = dc_max(a0, p0[128*i0 + i1]);
    }
    alignas(64) float s0[128];
    float a1 = 0.0f;
    #pragma omp simd reduction(+:a1)
    for (int64_t i1 = 0; i1 < 128; ++i1) {
      const float t0 = dc_exp(p0[128*i0 + i1] - a0);
      s0[i1] = t0;
      a1 = a1 + t0;
    }
    #pragma omp simd
    for (int64_t i1 = 0; i1 < 128; ++i1) {
      out[128*i0 + i1] = s0[i1] / a1;
    }
  }
}
