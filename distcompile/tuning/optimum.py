"""The best buckets: the recurrence over gradients in ready order, then the exact simulator has the last word.

In: a `Problem`. Out: `Groups` that make the backward end, with all buckets arrived, as early as possible.
Method: f(j, k) = min over i < j of max(f(i, k'), r_j + (k-1)*gamma) + t(bytes(i..j)), where k counts segments and
k' = k - 1 if the bucket needs a segment of its own, else k: O(L^2 K). t is the piecewise fit as it is, convex or not,
for every i is tried. With several dtypes (lanes, whose gradients never share a bucket) j is a position in each lane.
The linear model and the merging question are MG-WFBP's (Shi et al., INFOCOM 2019); its answer is greedy, this is not.
Without contention the recurrence is exact. With it, it is solved for the computation and the channel slowed wholly or
not at all, and the answers for every k are simulated, and the best improved by moving, merging and splitting buckets.
Limit: above MAX_STATES positions, neighbouring gradients are first merged, smallest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from distcompile.tuning.problem import Groups, Problem
from distcompile.tuning.simulate import simulate

MAX_SEGMENTS = 48
MAX_STATES = 1500  # positions of all lanes together, multiplied
MAX_ROUNDS = 40  # of local improvement


def best_groups(problem: Problem) -> Groups:
    """The buckets of the earliest end; of equal ones (to 0.01 %), those of fewest segments."""
    return improve(problem, choose(problem, candidates(problem)))


def choose(problem: Problem, groups: Sequence[Groups]) -> Groups:
    """The candidate of the earliest simulated end; of equal ones (to 0.01 %), the one of fewest buckets."""
    done_s = {g: simulate(problem, g).done_s for g in groups}
    limit_s = min(done_s.values()) * 1.0001
    return min((g for g in groups if done_s[g] <= limit_s), key=len)


def candidates(problem: Problem) -> list[Groups]:
    """The recurrence's answer for every number of segments, with each side slowed or not. No two are equal."""
    found: dict[Groups, None] = {}
    factors = problem.contention
    for compute, communication in product({1.0, factors.compute}, {1.0, factors.communication}):
        for groups in solve(problem.slowed(compute, communication)):
            found[groups] = None
    return list(found)


def solve(problem: Problem) -> list[Groups]:
    """For every number of segments that can be had, the buckets of the earliest end (contention left aside)."""
    return _Recurrence(problem).run()


def atoms(problem: Problem) -> list[tuple[int, ...]]:
    """Gradients in ready order, neighbours of a lane merged (smallest first) until the recurrence is affordable."""
    found: list[tuple[int, ...]] = [(i,) for i in range(len(problem.gradients))]
    while _states(problem, found) > MAX_STATES:
        lane_last: dict[str, int] = {}
        pairs = []
        for place, atom in enumerate(found):
            dtype = problem.gradients[atom[0]].dtype
            if dtype in lane_last:
                before = lane_last[dtype]
                pairs.append((problem.nbytes(found[before]) + problem.nbytes(atom), before, place))
            lane_last[dtype] = place
        _, first, second = min(pairs)
        found[second] = found[first] + found[second]
        del found[first]
    return found


def _states(problem: Problem, found: Sequence[tuple[int, ...]]) -> int:
    counts: dict[str, int] = {}
    for atom in found:
        dtype = problem.gradients[atom[0]].dtype
        counts[dtype] = counts.get(dtype, 1) + 1
    states = 1
    for count in counts.values():
        states *= count
    return states


class _Recurrence:
    """One run: f over (position in each lane, segments), filled in lexicographic order of positions."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        lanes: dict[str, list[tuple[int, ...]]] = {}
        for atom in atoms(problem):
            lanes.setdefault(problem.gradients[atom[0]].dtype, []).append(atom)
        self.lanes = list(lanes.values())
        self.ready_s = [[max(problem.gradients[i].ready_s for i in atom) for atom in lane] for lane in self.lanes]
        self.end_nbytes = [np.cumsum([0, *map(problem.nbytes, lane)]) for lane in self.lanes]
        self.shape = tuple(len(lane) + 1 for lane in self.lanes)
        distinct = len({r for lane in self.ready_s for r in lane})
        self.segments = min(MAX_SEGMENTS, distinct)
        self.end_s = np.full((*self.shape, self.segments + 1), np.inf)  # [..., k]: all moved, with k segments
        self.step: dict[tuple[tuple[int, ...], int], tuple[int, int, int]] = {}  # state -> lane, from, segments before
        self.cost_s = [self._lane_costs(ends) for ends in self.end_nbytes]
        self.latest_s = self._latest()

    def _lane_costs(self, ends: np.ndarray) -> np.ndarray:
        """[i, j]: the cost of a bucket of the lane's atoms i..j-1; [n+1, n+1], only i < j is meant."""
        fit = self.problem.fit
        return np.array([[fit.seconds(int(j - i)) if j > i else 0.0 for j in ends] for i in ends])

    def _latest(self) -> np.ndarray:
        """By positions, when the last of all gradients before them is ready; -inf at the start. [*shape]"""
        latest = np.full(self.shape, -np.inf)
        for axis, ready_s in enumerate(self.ready_s):
            line = np.maximum.accumulate([-np.inf, *ready_s])
            latest = np.maximum(latest, line.reshape([-1 if a == axis else 1 for a in range(len(self.shape))]))
        return latest

    def run(self) -> list[Groups]:
        """The best groups for each number of segments."""
        self.end_s[(*(0,) * len(self.shape), 0)] = 0.0
        for position in product(*map(range, self.shape)):
            if any(position):
                self._fill(position)
        last = tuple(n - 1 for n in self.shape)
        counts = [k for k in range(self.segments + 1) if np.isfinite(self.end_s[(*last, k)])]
        return [self._trace(last, k) for k in counts]

    def _fill(self, position: tuple[int, ...]) -> None:
        for lane, j in enumerate(position):
            if j == 0:
                continue
            before: tuple[int | slice, ...] = (*position[:lane], slice(0, j), *position[lane + 1 :])
            previous = self.end_s[before]  # [j, k]
            is_own = self.latest_s[before] < self.latest_s[position]  # [j]: needs a segment of its own
            shifted = np.full_like(previous, np.inf)
            shifted[:, 1:] = previous[:, :-1]
            reached = np.where(is_own[:, None], shifted, previous)
            ready_s = self.latest_s[position] + self.problem.gamma_s * np.maximum(np.arange(self.segments + 1) - 1, 0)
            ends = np.maximum(reached, ready_s) + self.cost_s[lane][:j, j][:, None]
            best = ends.argmin(axis=0)
            for k in range(self.segments + 1):
                end_s = ends[best[k], k]
                if end_s < self.end_s[(*position, k)]:
                    self.end_s[(*position, k)] = end_s
                    self.step[position, k] = (lane, int(best[k]), k - int(is_own[best[k]]))

    def _trace(self, position: tuple[int, ...], k: int) -> Groups:
        groups: list[tuple[int, ...]] = []
        while any(position):
            lane, start, before = self.step[position, k]
            members = self.lanes[lane][start : position[lane]]
            groups.append(tuple(sorted(i for atom in members for i in atom)))
            position, k = (*position[:lane], start, *position[lane + 1 :]), before
        return tuple(reversed(groups))


def improve(problem: Problem, groups: Groups) -> Groups:
    """Move, merge and split buckets for as long as the simulated end comes earlier (by more than 0.01 %)."""
    best_s = simulate(problem, groups).done_s
    for _ in range(MAX_ROUNDS):
        scored = [(simulate(problem, g).done_s, g) for g in neighbours(problem, groups)]
        done_s, candidate = min(scored, default=(best_s, groups))
        if done_s >= best_s * 0.9999:
            break
        best_s, groups = done_s, candidate
    return groups


def neighbours(problem: Problem, groups: Groups, splits: int | None = None) -> Iterator[Groups]:
    """Groups that differ in one boundary, by completion. splits: try at most so many places to split a bucket."""
    for k, group in enumerate(groups):
        for cut in range(1, len(group), max(1, len(group) // splits) if splits else 1):
            yield in_order(problem, (*groups[:k], group[:cut], group[cut:], *groups[k + 1 :]))
        dtype = problem.gradients[group[0]].dtype
        after = next((m for m in range(k + 1, len(groups)) if problem.gradients[groups[m][0]].dtype == dtype), None)
        if after is None:
            continue
        rest = tuple(g for m, g in enumerate(groups) if m not in (k, after))
        both = group + groups[after]
        yield in_order(problem, (*rest, both))
        for cut in (len(group) - 1, len(group) + 1):
            if 0 < cut < len(both):
                yield in_order(problem, (*rest, both[:cut], both[cut:]))


def in_order(problem: Problem, groups: Groups) -> Groups:
    """The same buckets by completion: the one whose last gradient comes first, first."""
    return tuple(sorted((tuple(sorted(g)) for g in groups), key=lambda g: g[-1]))
