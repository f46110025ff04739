"""bucket_plan="auto": all ranks change at the same step, only for a gain beyond the noise, and go back if it was none.

The steps are played by the simulator from a problem that the tuner does not see; it sees times, with noise.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from collectives import Communicator
from collectives.threaded import run_ranks
from compiler_core.device import cpu
from compiler_core.dtype import float32
from compiler_core.graph.ir import Graph
from distcompile.ddp.overlap.times import BucketTimes, StepTimes
from distcompile.ddp.plan.bucket_plan import BucketPlan, Caps, ReadyParameter, make_plan
from distcompile.tuning import auto
from distcompile.tuning.across_step import StepNeeds
from distcompile.tuning.auto import AutoTuner
from distcompile.tuning.cost import CostFit, linear
from distcompile.tuning.observe import groups_of
from distcompile.tuning.problem import Contention, Gradient, Problem
from distcompile.tuning.simulate import simulate

COUNT, NUMEL = 24, 1 << 18


class Played:
    """A DDP whose steps come from `problem`. noise: of each step's time, relative; lie: factor on the chosen plan's."""

    def __init__(self, communicator: Communicator, problem: Problem, noise: float, lie: float = 1.0) -> None:
        self.communicator, self.problem, self.noise, self.lie = communicator, problem, noise, lie
        self.rng, self.device = random.Random(communicator.rank), cpu
        self.parameters = [ReadyParameter(g.name, (NUMEL,), float32, i) for i, g in enumerate(problem.gradients)]
        self.plan = self.first = make_plan(self.parameters, Caps.from_mb(25), order="default")
        self.synchronised = 0
        self.recorded: list[StepTimes] = []
        self.changes: list[tuple[int, str]] = []

    def steps(self) -> list[StepTimes]:
        return self.recorded

    def backward(self) -> tuple[Graph | None, Sequence[ReadyParameter]]:
        return None, self.parameters

    def needs(self, steps: Sequence[StepTimes]) -> StepNeeds | None:
        return None

    def propose(self, plan: BucketPlan) -> None:
        self.plan, self.recorded = plan, []
        self.changes.append((self.synchronised, plan.hash))

    def step(self) -> None:
        out = simulate(self.problem, groups_of(self.problem, self.plan))
        factor = (1 + self.noise * self.rng.uniform(-1, 1)) * (1.0 if self.plan is self.first else self.lie)
        rows = tuple(
            BucketTimes(k, 0, 1, b.nbytes, *(factor * t for t in (out.ready_s[k], out.ready_s[k], s, e)), 0.0)
            for k, (b, s, e) in enumerate(zip(self.plan.buckets, out.started_s, out.ended_s, strict=True))
        )
        self.recorded.append(StepTimes(0, 0.0, factor * out.backward_s, factor * out.done_s, rows, self.synchronised))
        self.synchronised += 1


def problem(fit: CostFit) -> Problem:
    gradients = tuple(Gradient(f"p{i}", "float32", 4 * NUMEL, 2e-3 * (i + 1)) for i in range(COUNT))
    return Problem(gradients, 2e-3 * COUNT, fit)


def run(
    monkeypatch: pytest.MonkeyPatch, fit: CostFit, noise: float, lie: float = 1.0
) -> list[tuple[AutoTuner, Played]]:
    monkeypatch.setattr(auto, "measure_costs", lambda *_: fit)
    monkeypatch.setattr(auto, "measure_contention", lambda *_: Contention())

    def rank(communicator: Communicator) -> tuple[AutoTuner, Played]:
        subject = Played(communicator, problem(fit), noise, lie)
        tuner = AutoTuner(subject)
        for _ in range(40):
            tuner.before_forward()
            subject.step()
        return tuner, subject

    return run_ranks(2, rank)


SLOW = linear(1e-4, 2e-9)  # 0.5 GB/s: 2 ms for a gradient, as long as computing it


def test_a_better_plan_is_adopted_at_the_same_step_on_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    results = run(monkeypatch, SLOW, noise=0.01)
    assert len({tuple(subject.changes) for _, subject in results}) == 1
    tuner, subject = results[0]
    assert len(subject.changes) == 1
    first, second = tuner.history
    assert first.changed
    assert first.gain_ms > 5
    assert not second.changed
    assert "the new plan stays" in str(second)
    assert second.measured_exposed_ms == pytest.approx(second.predicted_exposed_ms, rel=0.15)
    before, after = (simulate(problem(SLOW), groups_of(problem(SLOW), p)).done_s for p in (subject.first, subject.plan))
    assert before - after == pytest.approx(1e-3 * first.gain_ms, rel=0.15)


def test_nothing_is_changed_on_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for tuner, subject in run(monkeypatch, SLOW, noise=0.9):
        assert not subject.changes
        assert "within the spread" in str(tuner.history[0])
        assert tuner.due == -1


def test_nothing_is_changed_where_nothing_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    for tuner, subject in run(monkeypatch, linear(1e-6, 1e-12), noise=0.0):
        assert not subject.changes
        assert len(tuner.history) == 1


def test_a_plan_that_turns_out_slower_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for tuner, subject in run(monkeypatch, SLOW, noise=0.01, lie=2.0):
        assert subject.plan.hash == subject.first.hash
        assert len(subject.changes) == 2
        assert "back to the former plan" in str(tuner.history[-1])


def test_it_goes_on_comparing_and_says_when_things_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "measure_costs", lambda *_: SLOW)
    monkeypatch.setattr(auto, "measure_contention", lambda *_: Contention())
    monkeypatch.setattr(auto, "COMPARED_EVERY", 30)

    def rank(communicator: Communicator) -> list[str]:
        subject = Played(communicator, problem(SLOW), 0.01)
        tuner = AutoTuner(subject)
        for step in range(100):
            if step == 65:
                subject.problem = problem(linear(1e-4, 2e-8))  # the network became ten times slower
            tuner.before_forward()
            subject.step()
        return [t.verdict for t in list(tuner.history)[2:]]

    for verdicts in run_ranks(2, rank):
        assert verdicts == ["backward 52: as predicted", "backward 82: no longer as predicted: tune again"]


def test_one_rank_alone_has_nothing_to_tune() -> None:
    def rank(communicator: Communicator) -> int:
        subject = Played(communicator, problem(SLOW), 0.0)
        tuner = AutoTuner(subject)
        for _ in range(20):
            tuner.before_forward()
            subject.step()
        return len(tuner.history)

    assert run_ranks(1, rank) == [0]
