DC_APART void k_softmax(const float* p0, float* out) {
  for (int64_t i0_tile = 0; i0_tile < 32; i0_tile += 16) {
    alignas(64) float s0[10][16];
    alignas(64) float tile0[10][16];
    for (int64_t lane = 0; lane < 16; ++lane) {
      const int64_t i0 = i0_tile + lane;
      for (int64_t i1 = 0; i1 < 10; ++i1) tile0[i1][lane] = p0[10*i0 + i1];
    }
    alignas(64) float a0_lanes[16];
    #pragma omp simd
    for (int64_t lane = 0; lane < 16; ++lane) {
      float a0 = (-__builtin_inff());
      a0_lanes[lane] = a0;
    }
    {
      for (int64_t i1 = 0; i1 < 10; ++i1) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
          const int64_t i0 = i0_tile + lane;
          float a0 = a0_lanes[lane];
          a0 = dc_max(a0, tile0[i1][lane]);
          a0_lanes[lane] = a0;
        }
      }
    }
    alignas(64) float a1_lanes[16];
    #pragma omp simd
    for (int64_t lane = 0; lane < 16; ++lane) {
      float a1 = 0.0f;
      a1_lanes[lane] = a1;
    }
    {
      for (int64_t i1 = 0; i1 < 10; ++i1) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
          const int64_t i0 = i0_tile + lane;
          const float a0 = a0_lanes[lane];
          float a1 = a1_lanes[lane];
          const float t0 = dc_exp(tile0[i1][lane] - a0);
          s0[i1][lane] = t0;
          a1 = a1 + t0;
          a1_lanes[lane] = a1;
        }
      }
    }
    {
      alignas(64) float out0[10][16];
      for (int64_t i1 = 0; i1 < 10; ++i1) {
        #pragma omp simd
        for (int64_t lane = 0; lane < 16; ++lane) {
          const int64_t i0 = i0_tile + lane;
          const float a1 = a1_lanes[lane];
          out0[i1][lane] = s0[i1][lane] / a1;
        }
      }
      for (int64_t lane = 0; lane < 16; ++lane) {
        const int64_t i0 = i0_tile + lane;
        for (int64_t i1 = 0; i1 < 10; ++i1) out[10*i0 + i1] = out0[i1][lane];
      }
    }
  }
  for (int64_t i0 = 32; i0 < 40; ++i0) {
    float a0 = (-__builtin_inff());
    #pragma omp simd reduction(dc_max:a0)
    for (int64_t i1 = 0; i1 < 10; ++i1) {
      a0 = dc_max(a0, p0[10*i0 + i1]);
    }
    alignas(64) float s0[10];
    float a1 = 0.0f;
    #pragma omp simd reduction(+:a1)
    for (int64_t i1 = 0; i1 < 10; ++i1) {
      const float t0 = dc_exp(p0[10*i0 + i1] - a0);
      s0[i1] = t0;
      a1 = a1 + t0;
    }
    #pragma omp simd
    for (int64_t i1 = 0; i1 < 10; ++i1) {
      out[10*i0 + i1] = s0[i1] / a1;
    }
  }
}
