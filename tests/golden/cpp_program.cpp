DC_STEPS(two_step, 3);
extern "C" __attribute__((visibility("default")))
int32_t DC_CALLS two_step(void** args, char* arena, const void* const* lib, const dc_events* events) {
  DC_BEGIN
  // exp  model.py:7
  {
  const float* const x = (const float*)args[0];  // f32[8]
  float* const t = (float*)(arena + 64);  // f32[8]
  k_k(x + 2, t + 1);
  }
  DC_TICK(two_step, 0)
  // exp  model.py:8
  {
  float* const t = (float*)(arena + 64);  // f32[8]
  float* const u = (float*)(arena + 128);  // f32[6]
  k_k(t + 1, u);
  }
  DC_TICK(two_step, 1)
  // mul  model.py:9
  {
  float* const u = (float*)(arena + 128);  // f32[6]
  const float* const c = (const float*)args[1];  // f32[6]
  float* const y = (float*)args[2];  // f32[6]
  k_k_2(u, c, y);
  }
  DC_TICK(two_step, 2)
  return 0;
}
