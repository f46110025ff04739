"""Oracles: random problems, every way to solve a small one, and simulators that share no code with ours."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from distcompile.tuning.cost import CostFit, CostPiece
from distcompile.tuning.problem import Contention, Gradient, Groups, Problem


def random_problem(seed: int, most: int = 9, *, contended: bool = True, lanes: int = 1) -> Problem:
    """A problem of up to `most` gradients: milliseconds, kilobytes to megabytes, two protocols, gaps of no work."""
    rng = random.Random(seed)
    count, now_s, gradients = rng.randint(1, most), 0.0, []
    forward_s = 4e-3 * rng.random()
    for i in range(count):
        now_s += rng.choice([0.0, 2e-3 * rng.random()])
        need_s = forward_s * (count - 1 - i) / count if rng.random() < 0.8 else 0.0
        dtype = ("float32", "bfloat16", "float64")[rng.randrange(lanes)]
        gradients.append(Gradient(f"p{i}", dtype, 64 * rng.randint(1, 30000), now_s, need_s))
    fit = CostFit(
        (
            CostPiece(0, 3e-4 * rng.random(), 1e-9 * rng.random()),
            CostPiece(300_000, 6e-4 * rng.random(), 1e-9 * rng.random()),
        )
    )
    factors = (1 + rng.random(), 1 + rng.random()) if contended and rng.random() < 0.5 else (1.0, 1.0)
    gamma_s = rng.choice([0.0, 3e-4 * rng.random()])
    backward_s = now_s + 1e-3 * rng.random()
    return Problem(tuple(gradients), backward_s, fit, gamma_s, Contention(*factors), forward_s, 1e-11)


def partitions(indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to cut `indices` into neighbours."""
    for cuts in itertools.product((False, True), repeat=max(0, len(indices) - 1)):
        groups = [[indices[0]]]
        for index, cut in zip(indices[1:], cuts):
            if cut:
                groups.append([index])
            else:
                groups[-1].append(index)
        yield tuple(map(tuple, groups))


def every_groups(problem: Problem) -> Iterator[Groups]:
    """Every partition of every lane, buckets by completion."""
    lanes: dict[str, list[int]] = {}
    for i, gradient in enumerate(problem.gradients):
        lanes.setdefault(gradient.dtype, []).append(i)
    for choice in itertools.product(*(list(partitions(lane)) for lane in lanes.values())):
        yield tuple(sorted((g for groups in choice for g in groups), key=lambda g: g[-1]))


def closed_form_done_s(problem: Problem, groups: Groups) -> float:
    """The end of a backward without contention: end_k = max(end_{k-1}, ready_k) + t_k."""
    end_s, latest_s, cuts = 0.0, -1.0, -1
    for group in groups:
        ready_s = max(problem.gradients[i].ready_s for i in group)
        if ready_s > latest_s:
            cuts, latest_s = cuts + 1, ready_s
        cuts = max(cuts, 0)
        end_s = max(end_s, latest_s + cuts * problem.gamma_s)
        end_s += problem.fit.seconds(sum(problem.gradients[i].nbytes for i in group))
    return max(end_s, problem.backward_s + max(cuts, 0) * problem.gamma_s)


def integrated_done_s(problem: Problem, groups: Groups, steps: int = 20_000) -> float:
    """The same with contention, by small time steps: both sides advance at the rate they have at that moment."""
    costs_s = [problem.fit.seconds(sum(problem.gradients[i].nbytes for i in g)) for g in groups]
    latest_s, cuts, marks = 0.0, 0, []
    for k, group in enumerate(groups):
        ready_s = max(problem.gradients[i].ready_s for i in group)
        cuts += k > 0 and ready_s > latest_s
        latest_s = max(latest_s, ready_s)
        marks.append(latest_s + cuts * problem.gamma_s)  # computation done when bucket k may leave
    whole_s = max(problem.backward_s, latest_s) + cuts * problem.gamma_s
    dt = (whole_s + sum(costs_s)) * 2 / steps
    done_s = computed_s = 0.0
    k, moved_s = 0, 0.0
    while computed_s < whole_s or k < len(groups):
        is_computing = computed_s < whole_s
        is_moving = k < len(groups) and computed_s >= marks[k] - 1e-12
        if is_computing:
            computed_s = min(whole_s, computed_s + dt / (problem.contention.compute if is_moving else 1.0))
        if is_moving:
            moved_s += dt / (problem.contention.communication if is_computing else 1.0)
            while k < len(groups) and moved_s >= costs_s[k]:
                moved_s, k = moved_s - costs_s[k], k + 1
                if k < len(groups) and computed_s < marks[k] - 1e-12:
                    moved_s = 0.0
        done_s += dt
    return done_s
