"""`bucket_plan="auto"`: in the first steps of a job measure, compute, propose; then watch, and go back if it was worse.

In: one DistributedDataParallel and the news that a synchronised forward is about to begin. Out: at most one change of
plan, on all ranks before the same step, and a `Tuning` that says why, predicted beside measured.
States: watching the default plan -> (measure on the idle communicator, decide) -> keeping it, or watching the new one
-> keeping it, or back; from then on, every COMPARED_EVERY backwards and without talking to other ranks, predicted
beside measured, which says when network or model are no longer what was measured. Every decision is rank 0's, from all
ranks' sightings, and broadcast; *when* is decided by the number of synchronised backwards begun, the same on all ranks.
Never on noise: a plan is changed only if the predicted gain exceeds the measured spread, and back only if the measured
loss does.
Limits: inside join() it waits; a job shorter than its first steps is never tuned.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from collectives import Communicator
from compiler_core import log
from compiler_core.device import Device
from compiler_core.graph.ir import Graph
from distcompile.ddp.overlap.times import StepTimes
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter
from distcompile.tuning.across_step import StepNeeds, best_plan, outcome_of
from distcompile.tuning.measure import bench_of, measure_contention, measure_costs
from distcompile.tuning.observe import (
    Sighting,
    all_parameters,
    costs_of,
    joint_problem,
    marked,
    sighting_of_steps,
    spread,
)
from distcompile.tuning.problem import Problem

WARM_UP = 3  # steps that compile, fill caches and touch buffers
WATCHED = 8  # steps from which medians are taken
LEAST_WATCHED, MOST_DELAYS = 4, 6
LEAST_GAIN = 0.01  # of the step: below this nothing is changed, however quiet the machine
GAMMA_S = 40e-6  # one more segment: a native call, its Python, and a cut through fusion; `distcompile tune` measures it
COMPARED_EVERY = 200  # synchronised backwards, once all is decided
SURPRISE = 0.15  # of the step: a difference of exposed time that is worth a word
KEPT = 64  # of what it said
BUDGET_S = 0.6  # for measuring all-reduces
ORDER = "measured optimum"


class Tunable(Protocol):
    """What is needed of a DistributedDataParallel."""

    @property
    def communicator(self) -> Communicator: ...
    @property
    def device(self) -> Device:
        """Where the parameters are."""

    @property
    def plan(self) -> BucketPlan:
        """The plan in use."""

    @property
    def synchronised(self) -> int:
        """Synchronised backwards begun since it was made: the same on all ranks."""

    def steps(self) -> list[StepTimes]:
        """The last steps by the plan in use, the oldest first."""

    def backward(self) -> tuple[Graph | None, Sequence[ReadyParameter]]:
        """The compiled backward and its gradients in ready order; eager: None, and the plan's order."""

    def needs(self, steps: Sequence[StepTimes]) -> StepNeeds | None:
        """Where the next forward waits for buckets; None if the backward does."""

    def propose(self, plan: BucketPlan) -> None:
        """Use `plan` from the next synchronised step on; called on all ranks alike."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was decided, and on what grounds; the same on all ranks but for `measured`. Milliseconds.

    gain_ms: by how much the backward with its buckets should end earlier. spread_ms: of the measured steps.
    """

    verdict: str
    changed: bool
    gain_ms: float
    spread_ms: float
    predicted_exposed_ms: float
    measured_exposed_ms: float

    def __str__(self) -> str:
        return (
            f"{self.verdict} (predicted gain {self.gain_ms:.2f} ms, spread {self.spread_ms:.2f} ms; exposed: predicted "
            f"{self.predicted_exposed_ms:.2f} ms, measured {self.measured_exposed_ms:.2f} ms)"
        )


class AutoTuner:
    """Tunes one DistributedDataParallel. history: the decisions so far."""

    def __init__(self, subject: Tunable, gamma_s: float = GAMMA_S) -> None:
        self.subject, self.gamma_s = subject, gamma_s
        self.history: deque[Tuning] = deque(maxlen=KEPT)
        self._compare_at: float = math.inf
        self.due = WARM_UP + WATCHED  # synchronised backwards at which the next decision falls; -1: none
        self.delays = 0
        self._before: tuple[BucketPlan, Sighting] | None = None
        self._expected: Problem | None = None

    def before_forward(self) -> None:
        """A synchronised forward is about to begin. Collective when a decision is due."""
        if self.due < 0 or self.subject.synchronised < self.due:
            if self.due < 0 and self.subject.synchronised >= self._compare_at:
                self._compare()
            return
        self.due = -1
        if self.subject.communicator.world_size == 1:
            return
        self._compare_at = self.subject.synchronised + COMPARED_EVERY
        if min(self.subject.communicator.all_gather_object(len(self._steps()))) < LEAST_WATCHED:
            self._put_off()
        elif self._before is None:
            self._decide()
        else:
            self._review()

    def _steps(self) -> list[StepTimes]:
        """The last steps that went by the plan in use."""
        count = len(self.subject.plan.buckets)
        return [step for step in self.subject.steps() if len(step.buckets) == count][-WATCHED:]

    def _put_off(self) -> None:
        """Some rank has not recorded enough steps by this plan: ranks were finding a plan, or recompiling."""
        self.delays += 1
        if self.delays <= MOST_DELAYS:
            self.due = self.subject.synchronised + WATCHED
        else:
            log.emit("tuning", "bucket plan: not tuned, as some rank hardly ever finishes a step by the plan")

    def _see(self, problem: Problem | None = None) -> tuple[Sighting, Problem]:
        """This rank's sighting of the last steps, and all ranks' problem. Costs: `problem`'s, else measured."""
        subject = self.subject
        graph, ready = subject.backward()
        parameters = all_parameters(subject.plan, ready)
        costs_s = costs_of(ready, graph)
        costs_s[len(ready) : len(ready)] = [0.0] * (len(parameters) - len(ready))
        if problem is None:
            nbytes = sum(bucket.nbytes for bucket in subject.plan.buckets)
            bench = bench_of(subject.communicator, subject.device)
            fit = measure_costs(bench, nbytes, BUDGET_S)
            contention = measure_contention(bench, fit, nbytes)
        else:
            fit, contention = problem.fit, problem.contention
        steps = self._steps()
        plan = marked(subject.plan, steps[-1], graph is not None)
        mine = sighting_of_steps(plan, steps, parameters, costs_s, contention)
        needs = subject.needs(steps)
        if needs is not None:
            need_s = tuple(needs.need_s(p.name) for p in mine.parameters)
            mine = replace(mine, need_s=need_s, after_s=needs.after_s, step_s=needs.period_s, spread_s=needs.spread_s)
        gamma_s = self.gamma_s if graph is not None else 0.0
        return mine, joint_problem(subject.communicator, mine, fit, contention, gamma_s)[0]

    def _decide(self) -> None:
        """Propose the optimum if its predicted gain exceeds the spread."""
        subject = self.subject
        mine, problem = self._see()
        problem = subject.communicator.broadcast_object(problem)
        best = best_plan(problem, mine.parameters, subject.plan, ORDER) if subject.communicator.rank == 0 else None
        plan = subject.communicator.broadcast_object(best)
        self._expected = problem
        now, then = outcome_of(problem, subject.plan), outcome_of(problem, plan)
        gain_s = now.done_s - then.done_s
        spread_s, step_s = self._agreed(mine.spread_s, mine.step_s)
        is_worth_it = gain_s > max(spread_s, LEAST_GAIN * step_s)
        if not is_worth_it:
            why = "within the spread" if gain_s <= spread_s else "not worth a change"
            self._say(f"keeping the plan: the gain is {why}", False, gain_s, spread_s, now.exposed_s, mine.exposed_s)
            return
        self._before = subject.plan, mine
        self.due = subject.synchronised + WARM_UP + WATCHED
        verdict = f"{len(subject.plan.buckets)} buckets become {len(plan.buckets)}"
        subject.propose(plan)
        self._say(verdict, True, gain_s, spread_s, then.exposed_s, mine.exposed_s)

    def _review(self) -> None:
        """Compare the new plan's steps with the old one's; go back if they are slower by more than the spread."""
        assert self._before is not None
        plan, before = self._before
        mine, problem = self._see(self._expected)
        predicted = outcome_of(problem, self.subject.plan)
        spread_s, before_s, after_s = self._agreed(max(before.spread_s, mine.spread_s), before.step_s, mine.step_s)
        is_worse = after_s - before_s > max(spread_s, LEAST_GAIN * before_s)
        if is_worse:
            self.subject.propose(plan)
        verdict = "back to the former plan: the new one is slower" if is_worse else "the new plan stays"
        verdict += f", {1e3 * before_s:.2f} ms before, {1e3 * after_s:.2f} ms now"
        self._say(verdict, is_worse, before_s - after_s, spread_s, predicted.exposed_s, mine.exposed_s)

    def _compare(self) -> None:
        """Predicted beside measured, of this rank's last steps. Not collective."""
        self._compare_at = self.subject.synchronised + COMPARED_EVERY
        steps = self._steps()
        if self._expected is None or len(steps) < LEAST_WATCHED:
            return
        predicted_s = outcome_of(self._expected, self.subject.plan).exposed_s
        exposed = [step.exposed_s for step in steps]
        took_s, spread_s = median(step.done_s - step.began_s for step in steps), spread(exposed)
        is_off = abs(median(exposed) - predicted_s) > max(spread_s, SURPRISE * took_s)
        verdict = "no longer as predicted: tune again" if is_off else "as predicted"
        self._say(
            f"backward {self.subject.synchronised}: {verdict}", False, 0.0, spread_s, predicted_s, median(exposed)
        )

    def _agreed(self, *values: float) -> list[float]:
        """The greatest of all ranks' values, each."""
        return [max(column) for column in zip(*self.subject.communicator.all_gather_object(values))]

    def _say(
        self, verdict: str, changed: bool, gain_s: float, spread_s: float, predicted_s: float, measured_s: float
    ) -> None:
        tuning = Tuning(verdict, changed, 1e3 * gain_s, 1e3 * spread_s, 1e3 * predicted_s, 1e3 * measured_s)
        self.history.append(tuning)
        log.emit("tuning", f"bucket plan: {tuning}")
