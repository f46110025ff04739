DC_APART void k_transpose(const float* p0, float* out) {
  for (int64_t i0_tile = 0; i0_tile < 32; i0_tile += 16) {
    for (int64_t i1_tile = 0; i1_tile < 50; i1_tile += 16) {
      alignas(64) float tile0[16][17];
      for (int64_t i1 = i1_tile; i1 < (i1_tile + 16 < 50 ? i1_tile + 16 : 50); ++i1) {
        #pragma omp simd
        for (int64_t i0 = i0_tile; i0 < i0_tile + 16; ++i0) {
          tile0[i1 - i1_tile][i0 - i0_tile] = p0[32*i1 + i0];
        }
      }
      for (int64_t i0 = i0_tile; i0 < i0_tile + 16; ++i0) {
        #pragma omp simd
        for (int64_t i1 = i1_tile; i1 < (i1_tile + 16 < 50 ? i1_tile + 16 : 50); ++i1) {
          out[50*i0 + i1] = tile0[i1 - i1_tile][i0 - i0_tile];
        }
      }
    }
  }
}
