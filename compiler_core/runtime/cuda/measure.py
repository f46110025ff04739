"""How long something takes on a CUDA device, and memory to try it on.

In: a function that enqueues work on the current stream. Out: microseconds by the device's clock. A measured choice is
worth something only beside others that were measured the same way: the shortest of ROUNDS, after one that warms up.
"""

from __future__ import annotations

from collections.abc import Callable
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
