"""`distcompile tune`: measure what a plan is computed from, compute candidates, measure those too, recommend one.

In: a module, its inputs and loss on every rank. Out: a `TuneReport`, the same on all ranks.
Method: (1) all-reduce costs and contention on the live communicator; (2) segment times from passes inside no_sync,
with the backward divided finely and not at all: their difference is gamma; (3) the candidates: fixed caps, MG-WFBP's
merge, the recurrence's optimum and its neighbours in number of buckets; (4) all of them measured in turn, round by
round, so that drift hits them alike; medians, and the difference to the default within each round, which has a spread
of its own. Never on noise: the best must beat the default again, in fresh rounds, beyond spread and chance.
The forward is captured and compiled once; a candidate divides the backward anew. The module is trained meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from compiler_core.capture import compile
from distcompile import cuda
from distcompile.ddp import DistributedDataParallel
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter, plan_from_groups
from distcompile.nn.module import Module
from distcompile.optim import SGD, AdamW
from distcompile.optim.optimizer import Optimizer
from distcompile.parity.case import default_loss
from distcompile.showing.progress import Say, nothing
from distcompile.tuning.errors import TuningError
from distcompile.tuning.measure import bench_of, measure_contention, measure_costs
from distcompile.tuning.observe import (
    Sighting,
    all_parameters,
    costs_of,
    groups_of,
    joint_problem,
    marked,
    plan_of,
    sighting_of_passes,
)
from distcompile.tuning.optimum import best_groups, candidates
from distcompile.tuning.problem import Groups, Problem
from distcompile.tuning.rivals import fixed_caps, merged_greedily
from distcompile.tuning.simulate import simulate
from distcompile.tuning.tune_report import DEFAULT, Candidate, Row, Sample, TuneReport, best_of, make_rows
from distcompile.tuning.view import DdpView, place_of

CAPS_MB = (1.0, 2.0, 5.0, 10.0, 25.0)
BLOCKS, PASSES = 3, 4  # of passes inside no_sync, for each way to divide the backward
FINE_SEGMENTS = 12
LEAST_ROUNDS, MOST_ROUNDS = 5, 40
LEAST_DUEL, DUEL_ROUNDS = 8, 12
LEAST_CANDIDATES = 3
STEPS_IN_ROUND = 2  # measured, after one that is not
SLOW_S = 0.3  # of a step longer than this, one is measured
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "adamw": lambda parameters: AdamW(parameters, lr=1e-5),
    "sgd": lambda parameters: SGD(parameters, lr=1e-5, momentum=0.9),
}


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """budget_s: about how long all may take after the first compilation; where steps are slow, fewer candidates are
    measured, though never fewer than LEAST_CANDIDATES. caps_mb: caps to compare."""

    budget_s: float = 60.0
    caps_mb: tuple[float, ...] = CAPS_MB
    optimizer: str = "adamw"
    backend: str = "codegen"


@dataclass(slots=True)
class Subject:
    """What is tuned: the wrapped module, compiled, and how to take a step with it."""

    ddp: DistributedDataParallel
    compiled: Any
    inputs: tuple[Any, ...]
    loss: Callable[..., Any]
    optimizer: Optimizer
    steps_in_round: int = STEPS_IN_ROUND
    view: DdpView = field(init=False)

    def __post_init__(self) -> None:
        self.view = DdpView(self.ddp)

    def step(self, synchronise: bool = True) -> float:
        """One training step; its seconds."""
        began_s = time.perf_counter()
        self.optimizer.zero_grad()
        with nullcontext() if synchronise else self.ddp.no_sync():
            self.loss(self.compiled(*self.inputs), *self.inputs).backward()
        if synchronise:
            self.optimizer.step()
        self.finish()
        return time.perf_counter() - began_s

    def finish(self) -> None:
        """On a GPU: wait until it has done what it was told."""
        device = self.view.device
        if device.is_gpu:
            cuda.synchronize(device)


def tune(
    module: Module,
    inputs: tuple[Any, ...],
    loss: Callable[..., Any] | None,
    options: TuneOptions | None = None,
    say: Say = nothing,
) -> TuneReport:
    """Tune `module` on the default process group. Collective. Raises TuningError on one rank alone."""
    options = options or TuneOptions()
    subject = make_subject(module, inputs, loss, options)
    group = subject.ddp.process_group
    if group.world_size < 2:
        raise TuningError(
            "there is nothing to tune on one rank", remedy="distcompile-run -n 2 -m distcompile tune TARGET"
        )
    say("compiling", 0.0)
    subject.step()
    until_s = time.perf_counter() + options.budget_s
    step_s = group.broadcast_object(min(subject.step() for _ in range(2)))
    if step_s > SLOW_S:
        subject.steps_in_round = 1
    default = subject.view.plan
    say("measuring all-reduces", 0.1)
    nbytes = sum(bucket.nbytes for bucket in default.buckets)
    bench = bench_of(group, subject.view.device)
    fit = measure_costs(bench, nbytes, max(0.5, options.budget_s / 20))
    contention = measure_contention(bench, fit, nbytes)
    say("measuring segments", 0.2)
    mine, gamma_s, cut_s = sight(subject)
    cut_s = group.broadcast_object(cut_s)
    problem = group.broadcast_object(joint_problem(group, mine, fit, contention, gamma_s)[0])
    proposed = group.broadcast_object(propose(problem, default, options, mine) if group.rank == 0 else None)
    left_s = group.broadcast_object(until_s - time.perf_counter())
    chosen = affordable(proposed, left_s, (1 + subject.steps_in_round) * step_s)
    samples = measure(subject, chosen, until_s, say)
    rows = tuple(make_rows(chosen, samples))
    duel_ms = _duel_ms(subject, rows, len(samples[0]), say)
    subject.view.propose(default)
    left_out = tuple(c for c in proposed if c not in chosen)
    return TuneReport(rows, problem, place_of(group, subject.view.device), len(samples[0]), duel_ms, cut_s, left_out)


def _duel_ms(subject: Subject, rows: Sequence[Row], rounds: int, say: Say) -> tuple[float, ...]:
    """By how much the best is faster than the default in each of some fresh rounds; () where the default is best."""
    if best_of(rows) is rows[0]:
        return ()
    say(f"default against {best_of(rows).name}, once more", 0.9)
    duel = max(DUEL_ROUNDS, rounds) if subject.steps_in_round > 1 else LEAST_DUEL
    pair = measure_rounds(subject, [rows[0].candidate, best_of(rows).candidate], duel)
    return tuple(1e3 * (a.step_s - b.step_s) for a, b in zip(*pair, strict=True))


def make_subject(
    module: Module, inputs: tuple[Any, ...], loss: Callable[..., Any] | None, options: TuneOptions
) -> Subject:
    """The module wrapped (unless it is), compiled, with an optimizer."""
    ddp = module if isinstance(module, DistributedDataParallel) else DistributedDataParallel(module)
    if ddp._books.settings.overlap == "step":
        raise TuningError(
            "tune measures exposed time at the end of each backward, and overlap='step' leaves none there",
            remedy='tune with overlap="backward", or use bucket_plan="auto", which plans launch orders across the step',
        )
    optimizer = OPTIMIZERS[options.optimizer](ddp.parameters())
    return Subject(ddp, compile(ddp, backend=options.backend), inputs, loss or default_loss, optimizer)


def sight(subject: Subject) -> tuple[Sighting, float, float]:
    """When gradients are ready, computation alone; gamma in seconds, as boundaries are told here, and of a cut."""
    view = subject.view
    graph, ready = view.backward()
    if graph is None:
        raise TuningError(
            "the module's backward was not compiled as one graph",
            remedy="compile(fn, fullgraph=True) names the line that breaks the graph",
        )
    parameters = all_parameters(view.plan, ready)
    costs_s = costs_of(ready, graph)
    costs_s[len(ready) : len(ready)] = [0.0] * (len(parameters) - len(ready))
    fine, whole = (plan_of_shares(view.plan, parameters, costs_s, count) for count in (FINE_SEGMENTS, 1))
    cut = plan_from_groups([b.names[::-1] for b in fine.buckets], parameters, order="cut")  # no candidate is like it
    ways = ((fine, None), (whole, None), (cut, "cut"))
    seen: list[list[tuple[float, tuple[float, ...]]]] = [[] for _ in ways]
    for _ in range(BLOCKS):
        for which, (plan, boundary) in enumerate(ways):
            view.propose(plan)
            with view.boundaries_told_by(boundary):
                subject.step()  # perhaps compiles
            if plan is fine:
                told = marked(plan, view.steps()[-1], is_compiled=True)
            for _ in range(PASSES):
                subject.step(synchronise=False)
                seen[which].append(view.local_passes()[-1])
    mine = sighting_of_passes(told, seen[0], parameters, costs_s)
    told_s, whole_s, cut_s = (median(ends[-1] - began for began, ends in passes) for passes in seen)
    boundaries = max(1, len({bucket.segment for bucket in told.buckets}) - 1)
    return mine, max(0.0, told_s - whole_s) / boundaries, max(0.0, cut_s - whole_s) / boundaries


def plan_of_shares(
    plan: BucketPlan, parameters: Sequence[ReadyParameter], costs_s: Sequence[float], count: int
) -> BucketPlan:
    """A plan whose buckets complete after `count` equal shares of the backward's static cost, in each dtype."""
    whole = sum(costs_s[: len(parameters)]) or 1.0
    groups: dict[tuple[int, str], list[str]] = {}
    so_far = 0.0
    for parameter, cost_s in zip(parameters, costs_s):
        so_far += cost_s
        share = min(count - 1, int(count * (so_far - cost_s / 2) / whole))
        groups.setdefault((share, parameter.dtype.name), []).append(parameter.name)
    return plan_from_groups(list(groups.values()), parameters, order=f"{count} equal shares of the backward")


def propose(problem: Problem, default: BucketPlan, options: TuneOptions, mine: Sighting) -> list[Candidate]:
    """What to measure: the default, fixed caps, MG-WFBP's merge, the optimum, and with half or twice its buckets."""
    optimum = best_groups(problem)
    named: list[tuple[str, Groups]] = [(DEFAULT, groups_of(problem, default))]
    named += [(f"cap {cap:g} MiB", fixed_caps(problem, cap)) for cap in options.caps_mb]
    named += [("MG-WFBP", merged_greedily(problem)), ("optimum", optimum)]
    for name, wanted in (("optimum, fewer buckets", len(optimum) / 2), ("optimum, more buckets", len(optimum) * 2)):
        nearest = min(candidates(problem), key=lambda g: (abs(len(g) - wanted), simulate(problem, g).done_s))
        named.append((name, nearest))
    found: dict[tuple[frozenset[int], ...], Candidate] = {}
    for name, groups in named:
        outcome = simulate(problem, groups)
        plan = default if name == DEFAULT else plan_of(problem, groups, mine.parameters, name)
        key = tuple(frozenset(group) for group in groups)
        found.setdefault(key, Candidate(name, plan, 1e3 * outcome.done_s, 1e3 * outcome.exposed_s))
    return list(found.values())


def affordable(proposed: Sequence[Candidate], left_s: float, visit_s: float) -> list[Candidate]:
    """The default, and of the others those predicted best that there is time for. visit_s: one candidate's, a round."""
    each_s = (LEAST_ROUNDS + 1) * visit_s  # once to compile it
    count = max(LEAST_CANDIDATES, int((left_s - 2 * LEAST_DUEL * visit_s) / each_s))
    kept = sorted(proposed[1:], key=lambda candidate: candidate.backward_ms)[: count - 1]
    return [candidate for candidate in proposed if candidate is proposed[0] or candidate in kept]


def measure(subject: Subject, chosen: Sequence[Candidate], until_s: float, say: Say) -> list[list[Sample]]:
    """[candidate][round]: each candidate in each round, as many rounds as rank 0 has time for, a duel to come."""
    for number, candidate in enumerate(chosen):
        say(f"compiling: {candidate.name}", 0.3 + 0.3 * number / len(chosen))
        subject.view.propose(candidate.plan)
        subject.step()
    began_s = time.perf_counter()
    first = measure_rounds(subject, chosen, 1)
    round_s = time.perf_counter() - began_s
    rounds = int((until_s - time.perf_counter()) / round_s - 2 * LEAST_DUEL / len(chosen))
    rounds = subject.ddp.process_group.broadcast_object(max(LEAST_ROUNDS, min(MOST_ROUNDS, rounds)))

    def before(number: int) -> None:
        say(f"round {number + 2} of {rounds}", 0.6 + 0.3 * number / rounds)

    more = measure_rounds(subject, chosen, rounds - 1, before)
    return [[*a, *b] for a, b in zip(first, more, strict=True)]


def measure_rounds(
    subject: Subject, chosen: Sequence[Candidate], rounds: int, before: Callable[[int], None] = lambda number: None
) -> list[list[Sample]]:
    """[candidate][round]: the slowest rank's step. Another candidate comes first in each round."""
    mine: list[list[Sample]] = [[] for _ in chosen]
    for number in range(rounds):
        before(number)
        for place in range(len(chosen)):
            which = (place + number) % len(chosen)
            mine[which].append(_round(subject, chosen[which]))
    everyones = subject.ddp.process_group.all_gather_object(mine)
    return [[_slowest([ranks[c][r] for ranks in everyones]) for r in range(rounds)] for c in range(len(chosen))]


def _round(subject: Subject, candidate: Candidate) -> Sample:
    """Switch to the candidate, take one step that does not count and some that do; their medians."""
    subject.view.propose(candidate.plan)
    subject.step()
    steps_s = [subject.step() for _ in range(subject.steps_in_round)]
    recorded = subject.view.steps()[-subject.steps_in_round :]
    backward_s = median(step.done_s - step.began_s for step in recorded)
    return Sample(median(steps_s), backward_s, median(step.exposed_s for step in recorded))


def _slowest(samples: Sequence[Sample]) -> Sample:
    return max(samples, key=lambda sample: sample.step_s)
