"""Timing loops and the numbers kept of them. Times are wall-clock milliseconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(function: Callable[[], object]) -> float:
    """One call's time, in seconds."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def repeat_ms(
    function: Callable[[], object],
    repeats: int,
    *,
    warm_up: int = 3,
    inner: int = 1,
    before: Callable[[], None] | None = None,
) -> list[float]:
    """Times of `repeats` calls (each a mean over `inner`) after `warm_up` calls. `before` runs before each, untimed."""
    for _ in range(warm_up):
        function()
    times = []
    for _ in range(repeats):
        if before is not None:
            before()
        begun = time.perf_counter()
        for _ in range(inner):
            function()
        times.append((time.perf_counter() - begun) / inner * 1e3)
    return times


def train_ms(
    step: Callable[[], object],
    trains: int,
    length: int,
    *,
    done: Callable[[], object],
    before: Callable[[], object],
    warm_up: int,
) -> list[float]:
    """Mean time of a step in each of `trains` trains of `length` steps, after `warm_up` steps.

    before: runs before each train, untimed. done: returns when nothing of the train is on its way any more; timed.
    """
    for _ in range(warm_up):
        step()
    done()
    times = []
    for _ in range(trains):
        before()
        begun = time.perf_counter()
        for _ in range(length):
            step()
        done()
        times.append((time.perf_counter() - begun) / length * 1e3)
    return times


def summary(times: list[float], name: str) -> dict[str, float]:
    """Median, 10th and 90th percentile, under `name`."""
    ordered = sorted(times)
    last = len(ordered) - 1
    return {
        f"{name}_ms": round(statistics.median(ordered), 4),
        f"{name}_p10": round(ordered[int(0.1 * last)], 4),
        f"{name}_p90": round(ordered[int(0.9 * last + 0.5)], 4),
    }
