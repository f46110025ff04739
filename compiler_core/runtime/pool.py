"""The threads that generated code computes with: one pool a process, of our own.

In: `config.num_threads`. Out: `give(library)`, for every generated shared object, and `resize`. With one thread there
is no pool: a library runs its loops where they stand.

A loop of n iterations is a job of chunks. The caller works on it, and so do the pool's threads as they come: each takes
the next chunk by one compare-and-swap. The caller waits for chunks that somebody has begun, never for a thread that has
not come, so a thread that another process keeps from its core costs one chunk, not a barrier. Threads wait by spinning
for some microseconds (`SPINS`), which is the time between two loops of one program, and then sleep: an idle pool takes
nothing from the cores. Products of matrices are split into such chunks too and OpenBLAS stays in the thread that calls
it, so no two pools meet on one core.
Invariants: one job at a time; a loop inside of a loop, or beside one of another thread, runs where it stands. Who runs
a chunk never changes what is computed. A forked child has no threads of its parent's and runs all loops itself.
The C++ uses pthreads alone, and is built once a machine like any artefact.
Method: dynamic self-scheduling of loops (Polychronopoulos and Kuck 1987, "Guided self-scheduling", section 2), with
chunks of one size.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

from compiler_core.config import config
from compiler_core.runtime.build import build_library
from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import Toolchain, find_toolchain

LIBRARY = "pool.so"
SPINS = 4000  # looks at the job before a thread sleeps: 50 to 150 microseconds

SOURCE = """\
#include <atomic>
#include <cstdint>
#include <pthread.h>

namespace {

typedef void (*Body)(void* context, int64_t from, int64_t to);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The job. `ticket` is its number, times 2^32, plus the next chunk: who swaps it for the next ticket owns the chunk.
// The other fields change only after the ticket was closed, when all chunks are done: who reads one of the next job's,
// and still holds an open ticket, fails to swap.
const uint64_t closed = 0xffffffffu;
std::atomic<uint64_t> ticket{0};
std::atomic<int64_t> extent{0}, grain{1}, chunks{0}, done{0};
std::atomic<Body> body{nullptr};
std::atomic<void*> context{nullptr};

std::atomic<bool> busy{false};       // somebody runs a job
std::atomic<int> workers{0};         // threads that there are
std::atomic<int> wanted{0};          // threads that may work
std::atomic<int> sleepers{0};
thread_local bool inside = false;    // this thread runs a chunk
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t work = PTHREAD_COND_INITIALIZER, end = PTHREAD_COND_INITIALIZER;

// Takes chunks of job `number` until there are none.
void take(uint64_t number) {
  for (;;) {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    const int64_t chunk = (int64_t)(seen & closed), all = chunks.load(std::memory_order_acquire);
    if (seen >> 32 != number || chunk >= all) return;
    const int64_t n = extent.load(std::memory_order_acquire), step = grain.load(std::memory_order_acquire);
    const Body run = body.load(std::memory_order_acquire);
    void* const with = context.load(std::memory_order_acquire);
    if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
    const int64_t from = chunk * step, to = chunk + 1 < all ? from + step : n;
    inside = true;
    run(with, from, to);
    inside = false;
    if (done.fetch_add(1) + 1 == all) {
      pthread_mutex_lock(&lock);
      pthread_cond_broadcast(&end);
      pthread_mutex_unlock(&lock);
    }
  }
}

void* worker(void* position) {
  const int place = (int)(intptr_t)position;
  uint64_t last = 0;
  for (;;) {
    uint64_t number = ticket.load(std::memory_order_acquire) >> 32;
    for (int spin = 0; number == last && spin < DC_SPINS; ++spin) {
      pause();
      number = ticket.load(std::memory_order_acquire) >> 32;
    }
    if (number == last || place >= wanted.load()) {
      pthread_mutex_lock(&lock);
      sleepers.fetch_add(1);
      while ((number = ticket.load() >> 32) == last || place >= wanted.load()) {
        pthread_cond_wait(&work, &lock);
        if (place >= wanted.load()) last = ticket.load() >> 32;
      }
      sleepers.fetch_sub(1);
      pthread_mutex_unlock(&lock);
    }
    last = number;
    take(number);
  }
  return nullptr;
}

void forked() {  // in the child: the threads are gone, and whoever held the lock with them
  ticket = ticket | closed;  // another thread's job is not the child's
  workers = wanted = sleepers = 0;
  busy = false;
  lock = PTHREAD_MUTEX_INITIALIZER;
  work = end = PTHREAD_COND_INITIALIZER;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int32_t dc_pool_resize(int32_t threads) {
  static bool registered = pthread_atfork(nullptr, nullptr, forked) == 0;
  if (!registered) return 1;
  pthread_mutex_lock(&lock);
  while (workers < threads - 1) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread, &attributes, worker, (void*)(intptr_t)workers.load());
    pthread_attr_destroy(&attributes);
    if (failed) break;
    workers.fetch_add(1);
  }
  const int most = threads - 1 < workers ? threads - 1 : workers.load();
  wanted = most < 0 ? 0 : most;
  pthread_mutex_unlock(&lock);
  return wanted + 1;
}

// run(with, from, to) for ranges that make up 0 to n: multiples of `least`, the last with what is over; about `shares`
// of them for every thread: the more, the less is waited for a thread that has lost its core.
extern "C" __attribute__((visibility("default"))) void dc_pool_run(int64_t n, int64_t least, int64_t shares,
                                                                   Body run, void* with) {
  const int helpers = wanted.load(std::memory_order_relaxed);
  bool free = false;
  if (!helpers || n < 2 * least || inside || !busy.compare_exchange_strong(free, true)) return run(with, 0, n);
  const int64_t share = n / (shares * (helpers + 1));
  const int64_t step = share <= least ? least : share / least * least;
  const int64_t all = n / step;
  const uint64_t number = ticket.load() >> 32;
  ticket.store(number << 32 | closed);
  extent.store(n, std::memory_order_release);
  grain.store(step, std::memory_order_release);
  chunks.store(all, std::memory_order_release);
  body.store(run, std::memory_order_release);
  context.store(with, std::memory_order_release);
  done.store(0, std::memory_order_release);
  ticket.store((number + 1) << 32);
  if (sleepers.load()) {
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&lock);
  }
  take((number + 1) & closed);
  for (int spin = 0; done.load(std::memory_order_acquire) != all && spin < DC_SPINS; ++spin) pause();
  if (done.load(std::memory_order_acquire) != all) {
    pthread_mutex_lock(&lock);
    while (done.load() != all) pthread_cond_wait(&end, &lock);
    pthread_mutex_unlock(&lock);
  }
  busy.store(false);
}
"""


_given: list[ctypes.CDLL] = []  # every generated library of this process; none is ever unloaded


def give(library: ctypes.CDLL) -> None:
    """Let a generated library compute with `config.num_threads` threads. Raises what building the pool does."""
    if not hasattr(library, "dc_pool"):
        return
    _given.append(library)
    if config.num_threads > 1:
        _attach(library)
        if not _Forks.is_child:
            _pool().dc_pool_resize(config.num_threads)


def resize(threads: int) -> None:
    """Compute with this many threads from now on, the caller's included, in all that is loaded too."""
    if threads > 1:
        for library in _given:
            _attach(library)
    if threads > 1 or _pool.cache_info().currsize:
        _pool().dc_pool_resize(threads)


def _attach(library: ctypes.CDLL) -> None:
    ctypes.c_void_p.in_dll(library, "dc_pool").value = ctypes.cast(_pool().dc_pool_run, ctypes.c_void_p).value


@cache
def _pool() -> ctypes.CDLL:
    toolchain = find_toolchain()
    key = make_key({"pool": SOURCE, "spins": str(SPINS), "toolchain": toolchain.key()})
    return ctypes.CDLL(str(load_or_build(key, lambda folder: _build(folder, toolchain)).file(LIBRARY)))


def _build(folder: Path, toolchain: Toolchain) -> Manifest:
    defines = [f"DC_SPINS={SPINS}"]
    build_library({"pool": SOURCE}, folder / LIBRARY, toolchain, defines=defines)
    return {"library": LIBRARY}


class _Forks:
    """Whether this process is a fork of another: such children are many, and leave the cores to the parent."""

    is_child = False

    @classmethod
    def forked(cls) -> None:
        cls.is_child = True


os.register_at_fork(after_in_child=_Forks.forked)
