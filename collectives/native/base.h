// What the rest stands on: integer names, the clock, futexes, sleeping. Linux only.

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

#define EXPORT extern "C" __attribute__((visibility("default")))

static const i64 US = 1000, MS = 1000000, FOREVER = INT64_MAX;

// Nanoseconds of CLOCK_MONOTONIC, which is Python's perf_counter.
static inline i64 now_ns() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (i64)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_ns(i64 ns) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
}

static inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("" ::: "memory");
#endif
}

// Sleep while *word == seen, for at most `ns`. shared: the word lies in memory that other processes map too.
static void futex_wait(u32 *word, u32 seen, i64 ns, bool shared) {
  struct timespec t = {ns / 1000000000, ns % 1000000000};
  syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, seen, &t, 0, 0);
}

static void futex_wake(u32 *word, bool shared) {
  syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
}

template <class T> static inline T load(const T *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
template <class T> static inline void store(T *p, T value) { __atomic_store_n(p, value, __ATOMIC_SEQ_CST); }
