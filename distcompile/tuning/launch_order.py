"""Across the step: in which order buckets should leave, and which buckets, when the next forward waits for them.

In: a `Problem` with need_s, forward_s and the optimizer's cost. Out: `StepPlan`: groups and their launch order.
Buckets become ready from the last layer to the first, and are needed from the first to the last: the last to be ready
is the first to be needed. A bucket that moves is not interrupted; so whenever the channel is free, the ready bucket
that is needed first leaves (list scheduling by due date, Horn 1974: the preemptive form of it is optimal for the
greatest lateness). The order must be the same on all ranks, hence it is planned, by simulation, and not chosen when
buckets become ready. Then pairs are exchanged for as long as the exact simulation of the step ends earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distcompile.tuning.optimum import candidates, neighbours
from distcompile.tuning.problem import Groups, Problem
from distcompile.tuning.simulate import simulate, simulate_step

KEPT = 2  # candidates that are improved
ROUNDS = 6  # of improvement: a step takes ten times as long to simulate well as a backward
SPLITS = 4  # places to split a bucket that are tried


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Buckets (by completion), the order in which they leave, and the simulated end of the step in seconds."""

    groups: Groups
    order: tuple[int, ...]
    done_s: float


def best_step(problem: Problem, more: Sequence[Groups] = ()) -> StepPlan:
    """The best buckets and launch order for overlap across the step. more: groups to consider besides our own."""
    plans = sorted((order_of(problem, g) for g in [*candidates(problem), *more]), key=lambda p: p.done_s)
    return min((_improved(problem, plan) for plan in plans[:KEPT]), key=lambda p: (p.done_s, len(p.groups)))


def order_of(problem: Problem, groups: Groups) -> StepPlan:
    """The best launch order found for these buckets: as they become ready, or by first need, pairs exchanged."""
    due, fifo = by_due_date(problem, groups), tuple(range(len(groups)))
    done_s, order = min((simulate_step(problem, groups, o).done_s, o) for o in {due, fifo})
    for _ in range(ROUNDS):
        swapped = [_exchange(order, k) for k in range(len(order) - 1)]
        best = min(((simulate_step(problem, groups, o).done_s, o) for o in swapped), default=(done_s, order))
        if best[0] >= done_s * 0.9999:
            break
        done_s, order = best
    return StepPlan(groups, order, done_s)


def by_due_date(problem: Problem, groups: Groups) -> tuple[int, ...]:
    """Whenever the channel is free, of the buckets that are ready the one that is needed first."""
    ready_s = simulate(problem, groups).ready_s
    costs_s = problem.costs_s(groups)
    need_s = [min(problem.gradients[i].need_s for i in group) for group in groups]
    left, order, now_s = set(range(len(groups))), [], 0.0
    while left:
        ready = [k for k in left if ready_s[k] <= now_s]
        if not ready:
            now_s = min(ready_s[k] for k in left)
            continue
        k = min(ready, key=lambda k: (need_s[k], k))
        now_s += costs_s[k] * (problem.contention.communication if now_s < problem.backward_s else 1.0)
        left.remove(k)
        order.append(k)
    return tuple(order)


def _exchange(order: tuple[int, ...], k: int) -> tuple[int, ...]:
    return (*order[:k], order[k + 1], order[k], *order[k + 2 :])


def _improved(problem: Problem, plan: StepPlan) -> StepPlan:
    """Move, merge and split buckets for as long as the simulated step ends earlier."""
    for _ in range(ROUNDS):
        tried = [_quick_order(problem, groups) for groups in neighbours(problem, plan.groups, SPLITS)]
        best = min(tried, key=lambda p: (p.done_s, len(p.groups)), default=plan)
        if best.done_s >= plan.done_s * 0.9999:
            return plan
        plan = order_of(problem, best.groups)
    return plan


def _quick_order(problem: Problem, groups: Groups) -> StepPlan:
    order = by_due_date(problem, groups)
    return StepPlan(groups, order, simulate_step(problem, groups, order).done_s)
