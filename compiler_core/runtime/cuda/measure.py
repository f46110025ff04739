"""How long something takes on a CUDA device, and memory to try it on.

In: a function that enqueues work on the current stream. Out: microseconds by the device's clock. A measured choice is
worth something only beside others that were measured the same way: the shortest of ROUNDS, after one that warms up.
`holding` takes some multiprocessors away meanwhile, as a collective does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from compiler_core.runtime.cuda import context

ROUNDS = 3
_ROUND_US = 300.0
_MOST = 16  # times in a round
_BLOCK = 1 << 18  # numbers that are made on the host


def shortest_us(run: Callable[[], object]) -> float:
    """The time of one run: the shortest of the rounds' means. It is run once before."""
    once_us = _mean_us(run, 1)
    repeats = max(1, min(_MOST, int(_ROUND_US / max(once_us, 1.0))))
    return min(_mean_us(run, repeats) for _ in range(ROUNDS))


def _mean_us(run: Callable[[], object], repeats: int) -> float:
    xp = context.cupy()
    begun, ended = xp.cuda.Event(), xp.cuda.Event()
    begun.record()
    for _ in range(repeats):
        run()
    ended.record()
    ended.synchronize()
    return float(xp.cuda.get_elapsed_time(begun, ended)) / repeats * 1e3


_HOLD = """
extern "C" __global__ void hold(volatile int* is_over, long long most) {
  extern __shared__ int all_of_it[];
  const long long began = clock64();
  if (!threadIdx.x) all_of_it[0] = 0;
  while (!*is_over && clock64() - began < most) __nanosleep(200);
}
"""
_THREADS = 640  # of a program of NCCL's
_TICKS = 10_000_000_000  # seconds, at a GPU's clock: it ends then if nobody ends it


@contextmanager
def holding(count: int) -> Iterator[None]:
    """A block in which a kernel that does nothing holds `count` multiprocessors of the current device, each alone."""
    xp = context.cupy()
    kernel = xp.RawKernel(_HOLD, "hold")
    kernel.max_dynamic_shared_size_bytes = shared = _most_shared(xp)
    aside, other = (xp.cuda.Stream(non_blocking=True) for _ in range(2))
    is_over = xp.zeros(1, np.int32)
    xp.cuda.get_current_stream().synchronize()
    with aside:
        kernel((count,), (_THREADS,), (is_over, np.int64(_TICKS)), shared_mem=shared)
    try:
        time.sleep(_BEGINS_S)
        yield
    finally:
        with other:
            is_over.fill(1)
        aside.synchronize()


_BEGINS_S = 1e-3


def _most_shared(xp: Any) -> int:
    """Bytes of shared memory that one program may have, nearly all: no other program fits beside it."""
    attributes = xp.cuda.Device().attributes
    return int(attributes["MaxSharedMemoryPerBlockOptin"]) - 1024


def normal_numbers(count: int, dtype: Any) -> Any:
    """Memory of `count` numbers: a block of normal ones, again and again. Power, so speed, depends on what they are."""
    xp = context.cupy()
    made = xp.empty(max(count, 1), dtype)
    block = np.random.default_rng(0).standard_normal(min(made.size, _BLOCK), np.float32).astype(dtype)
    made[: block.size] = xp.asarray(block)
    filled = block.size
    while filled < made.size:
        more = min(filled, made.size - filled)
        made[filled : filled + more] = made[:more]
        filled += more
    return made
