"""How long something takes on a CUDA device, and memory to try it on.

In: a function that enqueues work on the current stream. Out: microseconds by the device's clock. A measured choice is
worth something only beside others that were measured the same way: the shortest of ROUNDS, after one that warms up.
A device that had nothing to do runs slower at first (an H200's products by a fifth, for milliseconds): `shortest_each`
has it work before, and takes turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core.runtime.cuda import context

ROUNDS = 5
_ROUND_US = 300.0
_WARM_ROUNDS = 16  # some 5 ms
_MOST = 16  # times in a round
_BLOCK = 1 << 18  # numbers that are made on the host


def shortest_us(run: Callable[[], object]) -> float:
    """The time of one run: the shortest of the rounds' means. It is run once before."""
    repeats = _repeats(run)
    return min(_mean_us(run, repeats) for _ in range(ROUNDS))


def shortest_each(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The time of one run of each: of rounds in which all come in turn, on a device that is at work already."""
    repeats = [_repeats(run) for run in runs]
    for _ in range(_WARM_ROUNDS if runs else 0):
        _mean_us(runs[0], repeats[0])
    rounds = [[_mean_us(run, many) for run, many in zip(runs, repeats, strict=True)] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def _repeats(run: Callable[[], object]) -> int:
    """How often in a round."""
    return max(1, min(_MOST, int(_ROUND_US / max(_mean_us(run, 1), 1.0))))


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
