// What CUDA C needs to run on the host: see raw.py. One block at a time, its threads as fibres.

#include <cmath>
#include <cstdint>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

#define DC_EMULATED 1
#define __global__
#define __device__
#define __shared__ static
#define __threadfence_system()

struct Three { unsigned x, y, z; };
static Three blockIdx, threadIdx, blockDim, gridDim;

struct alignas(16) uint4 { unsigned x, y, z, w; };

static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline float half_to_float(unsigned short bits) {
  _Float16 half;
  memcpy(&half, &bits, 2);
  return (float)half;
}
static inline unsigned short float_to_half(float x) {
  const _Float16 half = (_Float16)x;
  unsigned short bits;
  memcpy(&bits, &half, 2);
  return bits;
}

constexpr int FIBRES = 1024, STACK = 1 << 15;
static ucontext_t fibre_first[FIBRES];
static jmp_buf fibre_home, fibre_places[FIBRES];  // jumps cost no system call, as switches of contexts do
static bool fibre_is_made[FIBRES];
static char* fibre_stacks;
static int fibre_now = -1;
static bool fibre_waits, fibre_failed, fibre_misread;
static void (*fibre_body)();
static void** fibre_args;

// Called where an address is no multiple of what its type asks for, which a device refuses: see -fsanitize in raw.py.
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(void*, uintptr_t) {
  fibre_misread = true;
}

static void fibre_leave(int self) {
  if (!_setjmp(fibre_places[self])) _longjmp(fibre_home, 1);
}

static void __syncthreads() {
  if (fibre_now < 0) {  // a thread that was taken to meet no barrier, as the first did not
    fibre_failed = true;
    return;
  }
  fibre_waits = true;
  fibre_leave(fibre_now);
}

static void __syncwarp() { __syncthreads(); }

// A fibre runs one thread after the other, of one block after the other.
static void fibre_start() {
  for (;;) {
    fibre_body();
    fibre_waits = false;
    fibre_leave(fibre_now);
  }
}

// Runs thread t until it waits at a barrier (true), or ends.
static bool fibre_run(int t) {
  fibre_now = t;
  threadIdx.x = t;
  if (!_setjmp(fibre_home)) {
    if (fibre_is_made[t]) _longjmp(fibre_places[t], 1);
    fibre_is_made[t] = true;
    getcontext(&fibre_first[t]);
    fibre_first[t].uc_stack.ss_sp = fibre_stacks + (size_t)t * STACK;
    fibre_first[t].uc_stack.ss_size = STACK;
    makecontext(&fibre_first[t], fibre_start, 0);
    setcontext(&fibre_first[t]);
  }
  fibre_now = -1;
  return fibre_waits;
}

static void run_block(int threads) {
  if (!fibre_run(0)) {  // no barrier
    for (int other = 1; other < threads; ++other) {
      threadIdx.x = other;
      fibre_body();
    }
    return;
  }
  for (int t = 1; t < threads; ++t)
    if (!fibre_run(t)) fibre_failed = true;
  for (int phase = 1; !fibre_failed; ++phase) {
    int waiting = 0;
    for (int k = 0; k < threads; ++k) waiting += fibre_run(phase % 2 ? threads - 1 - k : k);
    if (!waiting) return;
    if (waiting != threads) fibre_failed = true;
  }
}

static int run_blocks(void (*body)(), unsigned x, unsigned y, unsigned threads) {
  if (!fibre_stacks) fibre_stacks = (char*)malloc((size_t)FIBRES * STACK);
  if (fibre_failed) memset(fibre_is_made, 0, sizeof fibre_is_made);  // some were left in the middle
  fibre_body = body;
  fibre_failed = fibre_misread = false;
  gridDim = {x, y, 1};
  blockDim = {threads, 1, 1};
  for (blockIdx.y = 0; blockIdx.y < y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < x && !fibre_failed; ++blockIdx.x) run_block((int)threads);
  return fibre_failed ? 1 : fibre_misread ? 2 : 0;
}
