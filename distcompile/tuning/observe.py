"""What one rank saw of its steps, and what all ranks make of it: the `Problem`.

In: recorded steps (or passes inside no_sync) of one DistributedDataParallel, cut by a known plan. Out: when each
gradient is ready, in computation alone; then, over all ranks, a Problem in which a gradient is ready when the slowest
rank has it, for only then its bucket moves. Sightings are exchanged, and rank 0's order of gradients is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from collectives import Communicator
from compiler_core.graph.ir import Graph
from distcompile.ddp.overlap.times import StepTimes, overlap
from distcompile.ddp.plan.bucket_plan import ALIGNMENT_NBYTES, BucketPlan, ReadyParameter, plan_from_groups
from distcompile.tuning.cost import CostFit
from distcompile.tuning.optimum import in_order
from distcompile.tuning.problem import Contention, Gradient, Groups, Problem
from distcompile.tuning.profile import median_ends, spread_over_segments, static_costs_s


@dataclass(frozen=True, slots=True)
class Sighting:
    """One rank's view. parameters: in ready order; ready_s: of each, seconds of computation alone. backward_s: whole.

    step_s: median from the backward's begin until all buckets are there. spread_s: half its interquartile distance.
    exposed_s: median. Across the step, step_s is the whole period, and need_s tells when, after the backward's end, the
    next forward needs each parameter; after_s: how long it is, waits left out, until the next backward.
    """

    parameters: tuple[ReadyParameter, ...]
    ready_s: tuple[float, ...]
    backward_s: float
    step_s: float = 0.0
    spread_s: float = 0.0
    exposed_s: float = 0.0
    need_s: tuple[float, ...] = ()
    after_s: float = 0.0


def all_parameters(plan: BucketPlan, ready: Sequence[ReadyParameter]) -> list[ReadyParameter]:
    """`ready`, then the planned parameters it lacks (unused ones), as if ready with the last."""
    from compiler_core import dtype as dtypes

    known = {p.name for p in ready}
    last, place = max(((p.ready, p.place) for p in ready), default=(0, 0))
    missing = [(slot, bucket) for bucket in plan.buckets for slot in bucket.slots if slot.name not in known]
    return [*ready, *(ReadyParameter(s.name, s.shape, dtypes.by_name(b.dtype), last, place) for s, b in missing)]


def costs_of(parameters: Sequence[ReadyParameter], backward: Graph | None) -> list[float]:
    """What each gradient costs, and the tail: static costs of the graph; without one, by bytes."""
    if backward is None:
        return [*(float(p.nbytes + 1) for p in parameters), 0.0]
    return static_costs_s(backward, parameters)


def marked(plan: BucketPlan, step: StepTimes, is_compiled: bool) -> BucketPlan:
    """The plan with the segment of each bucket as `step` saw it. Eager, each bucket is a segment of its own."""
    seen = {row.bucket: row.segment for row in step.buckets}
    count = range(len(plan.buckets))
    return plan.with_segments([seen.get(k, 0) for k in count] if is_compiled else list(count))


def segments_of(plan: BucketPlan, parameters: Sequence[ReadyParameter]) -> list[int]:
    """The number of the mark (distinct segment, in order) by which each gradient is surely ready; never falling."""
    numbers = {segment: k for k, segment in enumerate(sorted({b.segment for b in plan.buckets}))}
    of_name = {name: numbers[bucket.segment] for bucket in plan.buckets for name in bucket.names}
    found = [of_name[p.name] for p in parameters]
    for k in range(len(found) - 2, -1, -1):
        found[k] = min(found[k], found[k + 1])
    return found


def sighting_of_steps(
    plan: BucketPlan,
    steps: Sequence[StepTimes],
    parameters: Sequence[ReadyParameter],
    costs_s: Sequence[float],
    contention: Contention,
) -> Sighting:
    """From synchronised steps, all cut by `plan`: buckets' ready times, less what moving buckets slowed."""
    lengths = [lengths_alone(plan, step, contention) for step in steps]
    ends_s = median_ends(lengths)
    ready_s = spread_over_segments(costs_s, segments_of(plan, parameters), ends_s[:-1], ends_s[-1])
    took = [step.done_s - step.began_s for step in steps]
    exposed_s = median(step.exposed_s for step in steps)
    return Sighting(tuple(parameters), tuple(ready_s), ends_s[-1], median(took), spread(took), exposed_s)


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    if len(values) < 2:
        return 0.0
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return (upper - lower) / 2


def lengths_alone(plan: BucketPlan, step: StepTimes, contention: Contention) -> list[float]:
    """The computation alone between the marks at which each segment's buckets were ready; the last: to the end."""
    marks: dict[int, float] = {}
    for row in step.buckets:
        segment = plan.buckets[row.bucket].segment
        marks[segment] = max(marks.get(segment, step.began_s), row.ready_s)
    lost = 1.0 - 1.0 / contention.compute
    lengths = []
    for began_s, ended_s in pairwise([step.began_s, *(marks[s] for s in sorted(marks)), step.ended_s]):
        busy_s = sum(overlap(began_s, ended_s, b.started_s, b.ended_s) for b in step.buckets)
        lengths.append(max(0.0, ended_s - began_s - lost * busy_s))
    return lengths


def sighting_of_passes(
    plan: BucketPlan,
    passes: Iterable[tuple[float, tuple[float, ...]]],
    parameters: Sequence[ReadyParameter],
    costs_s: Sequence[float],
) -> Sighting:
    """From passes inside no_sync: (when it began, when each of its segments ended), nothing to subtract."""
    lengths = [[b - a for a, b in pairwise([began_s, *ends_s])] for began_s, ends_s in passes]
    ends_s = median_ends(lengths)
    marks = [ends_s[segment] for segment in sorted({b.segment for b in plan.buckets})]
    ready_s = spread_over_segments(costs_s, segments_of(plan, parameters), marks, ends_s[-1])
    took = [sum(row) for row in lengths]
    return Sighting(tuple(parameters), tuple(ready_s), ends_s[-1], median(took), spread(took))


def joint_problem(
    communicator: Communicator, mine: Sighting, fit: CostFit, contention: Contention, gamma_s: float
) -> tuple[Problem, list[Sighting]]:
    """The problem of all ranks, equal on all; and every rank's sighting. Collective."""
    sightings = communicator.all_gather_object(mine)
    slowest: dict[str, float] = {}
    needed: dict[str, float] = {}
    for sighting in sightings:
        needs_s = sighting.need_s or (0.0,) * len(sighting.parameters)
        for parameter, ready_s, need_s in zip(sighting.parameters, sighting.ready_s, needs_s, strict=True):
            slowest[parameter.name] = max(slowest.get(parameter.name, 0.0), ready_s)
            needed[parameter.name] = min(needed.get(parameter.name, need_s), need_s)
    at_s, gradients = 0.0, []
    for parameter in sightings[0].parameters:
        at_s = max(at_s, slowest[parameter.name])
        nbytes = -(-parameter.nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        gradients.append(Gradient(parameter.name, parameter.dtype.name, nbytes, at_s, needed[parameter.name]))
    backward_s = max(*(s.backward_s for s in sightings), at_s)
    after_s = max(s.after_s for s in sightings)
    return Problem(tuple(gradients), backward_s, fit, gamma_s, contention, after_s), sightings


def groups_of(problem: Problem, plan: BucketPlan) -> Groups:
    """A plan's buckets as groups of the problem's gradients, in plan order."""
    place = {gradient.name: i for i, gradient in enumerate(problem.gradients)}
    return tuple(tuple(sorted(place[name] for name in bucket.names)) for bucket in plan.buckets)


def plan_of(problem: Problem, groups: Groups, parameters: Sequence[ReadyParameter], order: str) -> BucketPlan:
    """The groups as a plan; buckets by completion where that costs nothing, else as they stand."""
    sorted_groups = in_order(problem, groups)
    kept = groups if problem.segments(groups) != problem.segments(sorted_groups) else sorted_groups
    names = [[problem.gradients[i].name for i in group] for group in kept]
    return plan_from_groups(names, parameters, order=order)
