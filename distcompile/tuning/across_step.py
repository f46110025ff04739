"""What a tuner must know beside the backward if communication is hidden across the step, and the answer in either case.

In: recorded steps and forwards, and where the forward first uses each parameter. Out: `StepNeeds`; the best plan of a
problem, with its launch order; what the simulator says of a plan. A problem whose forward_s is 0 is a backward alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from distcompile.ddp.overlap.times import StepTimes, overlap
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter, plan_from_groups
from distcompile.tuning.launch_order import best_step
from distcompile.tuning.observe import groups_of, plan_of, spread
from distcompile.tuning.optimum import best_groups
from distcompile.tuning.problem import Problem
from distcompile.tuning.simulate import SimulatedStep, simulate, simulate_step


@dataclass(frozen=True, slots=True)
class StepNeeds:
    """shares: parameter -> share of the forward that has run when it is first used. Seconds, waits left out:

    forward_s: of a forward. after_s: from one backward's end to the next one's begin. period_s, spread_s: of steps.
    """

    shares: Mapping[str, float]
    forward_s: float
    after_s: float
    period_s: float
    spread_s: float

    def need_s(self, name: str) -> float:
        """When `name` is needed, after the backward's end; what no forward uses is needed last."""
        return self.after_s - self.forward_s + self.shares.get(name, 1.0) * self.forward_s


def needs_of(
    steps: Sequence[StepTimes], forwards: Sequence[tuple[float, float]], first_use: Mapping[str, int]
) -> StepNeeds | None:
    """From steps that follow each other; None if there are no two. forwards: when each began and ended."""
    pairs = [(a, b) for a, b in pairwise(steps) if b.step == a.step + 1]
    if not pairs:
        return None
    periods = [b.began_s - a.began_s for a, b in pairs]
    after = [max(0.0, b.began_s - a.ended_s - a.exposed_s) for a, b in pairs]
    lengths = []
    for a, b in pairs:
        inside = [(begin, end) for begin, end in forwards if a.ended_s <= begin and end <= b.began_s]
        if inside:
            begin, end = inside[-1]
            lengths.append(end - begin - sum(overlap(begin, end, *wait) for wait in a.waited))
    whole = max(first_use.values(), default=0) or 1
    shares = {name: min(1.0, place / whole) for name, place in first_use.items()}
    after_s = median(after)
    forward_s = min(after_s, max(0.0, median(lengths))) if lengths else after_s
    return StepNeeds(shares, forward_s, after_s, median(periods), spread(periods))


def outcome_of(problem: Problem, plan: BucketPlan) -> SimulatedStep:
    """What the simulator says of a plan."""
    groups = groups_of(problem, plan)
    return simulate_step(problem, groups, plan.launch_order) if problem.forward_s else simulate(problem, groups)


def best_plan(problem: Problem, parameters: Sequence[ReadyParameter], now: BucketPlan, order: str) -> BucketPlan:
    """The best plan for a problem; `now` is considered too."""
    if not problem.forward_s:
        return plan_of(problem, best_groups(problem), parameters, order)
    found = best_step(problem, [groups_of(problem, now)])
    names = [[problem.gradients[i].name for i in group] for group in found.groups]
    return replace(plan_from_groups(names, parameters, order=order), launch=found.order)
