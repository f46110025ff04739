"""Clocks: how far each rank's clock is from rank 0's, with a bound that holds, not an estimate that may.

In: times at which ranks entered and left collectives that nobody leaves before all entered. Out: `Clock` a rank.
Method: Cristian's (Distributed Computing 3, 1989) with barriers for messages: rank r leaves after rank 0 entered, so
offset <= left_r - entered_0, and >= entered_r - left_0. In turn every rank comes late on purpose: then its entry and
the others' exits are one message apart, the tightest pair of rounds is the minimum round trip, and half of what is left
between the bounds is the uncertainty. Every recorded all-reduce is such a collective too: the buckets of past steps
bound how fast the clocks drift (offset(t) = offset + drift * (t - at)), without any traffic.
Limit: drift is taken as constant over the recorded steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from collectives import Communicator
from distcompile.ddp.overlap.times import Interval, StepTimes

ROUNDS_PER_RANK = 8
LATE_S = 300e-6  # how late the late rank comes: the others are at the barrier by then
SHORTEST_BASE_S = 0.05  # steps nearer to the measurement than this say nothing about drift


@dataclass(frozen=True, slots=True)
class Clock:
    """One rank's clock: it shows rank 0's time + offset_s + drift * (t - at_s), within uncertainty_s at at_s.

    drift: seconds a second, 0 where the recorded steps are compatible with none; drift_range: what they allow.
    """

    offset_s: float
    uncertainty_s: float
    at_s: float
    drift: float = 0.0
    drift_range: Interval = (-math.inf, math.inf)

    def on_rank_0(self, local_s: float) -> float:
        """What rank 0's clock showed when this rank's showed `local_s`."""
        return local_s - self.offset_s - self.drift * (local_s - self.at_s)


def measure(
    communicator: Communicator, *, rounds: int = ROUNDS_PER_RANK, clock: Callable[[], float] = time.perf_counter
) -> list[Interval]:
    """Enter and leave `rounds` barriers a rank. Collective; takes about 0.5 ms a round."""
    passages = []
    for number in range(rounds * communicator.world_size):
        if number % communicator.world_size == communicator.rank:
            until_s = time.perf_counter() + LATE_S
            while time.perf_counter() < until_s:
                time.sleep(0)
        entered_s = clock()
        communicator.barrier(label="clock")
        passages.append((entered_s, clock()))
    return passages


def offset_bounds(mine: Iterable[Interval], zero: Iterable[Interval]) -> Interval:
    """Least and greatest offset of my clock to rank 0's, by what both saw of the same collectives."""
    low_s, high_s = -math.inf, math.inf
    for (entered_s, left_s), (entered_0_s, left_0_s) in zip(mine, zero):
        low_s, high_s = max(low_s, entered_s - left_0_s), min(high_s, left_s - entered_0_s)
    return low_s, high_s


def make_clock(
    mine: Sequence[Interval], zero: Sequence[Interval], my_steps: Sequence[StepTimes], zero_steps: Sequence[StepTimes]
) -> Clock:
    """My clock against rank 0's, from the barriers just passed and the steps recorded before."""
    if mine is zero:
        return Clock(0.0, 0.0, 0.0, 0.0, (0.0, 0.0))
    low_s, high_s = offset_bounds(mine, zero)
    now = Clock((low_s + high_s) / 2, abs(high_s - low_s) / 2, mine[-1][1])
    low, high = drift_bounds(now, my_steps, zero_steps)
    if low <= 0.0 <= high:
        drift = 0.0
    elif math.isfinite(low) and math.isfinite(high):
        drift = (low + high) / 2
    else:
        drift = low if low > 0 else high
    return Clock(now.offset_s, now.uncertainty_s, now.at_s, drift, (low, high))


def drift_bounds(now: Clock, my_steps: Sequence[StepTimes], zero_steps: Sequence[StepTimes]) -> Interval:
    """The drifts under which no bucket of a step ended on one rank before it began on the other."""
    of_zero = {step.step: step for step in zero_steps}
    slowest, fastest = -math.inf, math.inf
    for step in my_steps:
        base_s = now.at_s - step.done_s
        if step.step not in of_zero or base_s < SHORTEST_BASE_S:
            continue
        low_s, high_s = offset_bounds(_passages(step), _passages(of_zero[step.step]))
        slowest = max(slowest, (now.offset_s - now.uncertainty_s - high_s) / base_s)
        fastest = min(fastest, (now.offset_s + now.uncertainty_s - low_s) / base_s)
    return slowest, fastest


def _passages(step: StepTimes) -> list[Interval]:
    return [(bucket.launched_s, bucket.ended_s) for bucket in step.buckets]
