"""Across the step: what recorded steps say of the time between backwards; plans that hold a launch order."""

from __future__ import annotations

import pytest
from problems import random_problem

from compiler_core.dtype import float32
from distcompile.ddp.overlap.times import BucketTimes, StepTimes
from distcompile.ddp.plan.bucket_plan import ReadyParameter, plan_from_groups
from distcompile.tuning.across_step import best_plan, needs_of, outcome_of


def step(number: int, began_s: float) -> StepTimes:
    """A backward of 1 s, then waits of 0.2 s in a period of 3 s."""
    row = BucketTimes(0, 0, 1, 64, began_s + 0.5, began_s + 0.5, began_s + 0.5, began_s + 1.4, 0.2)
    waits = ((began_s + 1.3, began_s + 1.5),)
    return StepTimes(0, began_s, began_s + 1.0, began_s + 1.5, (row,), number, waits)


def test_waits_are_left_out_of_what_lies_between_backwards() -> None:
    steps = [step(number, 3.0 * number) for number in (4, 5, 6)]
    forwards = [(3.0 * number + 1.1, 3.0 * number + 2.9) for number in (4, 5, 6)]
    needs = needs_of(steps, forwards, {"a": 0, "b": 5, "c": 10})
    assert needs is not None
    assert needs.period_s == pytest.approx(3.0)
    assert needs.after_s == pytest.approx(1.8)
    assert needs.forward_s == pytest.approx(1.6)
    assert needs.need_s("a") == pytest.approx(0.2)
    assert needs.need_s("b") == pytest.approx(1.0)
    assert needs.need_s("c") == needs.need_s("unused") == pytest.approx(1.8)


def test_steps_with_others_between_say_nothing() -> None:
    assert needs_of([step(1, 0.0), step(5, 12.0)], [], {}) is None
    assert needs_of([], [], {}) is None


@pytest.mark.parametrize("seed", range(12))
def test_the_best_plan_is_no_worse_than_the_one_in_use(seed: int) -> None:
    problem = random_problem(seed)
    parameters = [ReadyParameter(g.name, (g.nbytes // 4,), float32, place) for place, g in enumerate(problem.gradients)]
    now = plan_from_groups([[p.name for p in parameters]], parameters, order="one")
    plan = best_plan(problem, parameters, now, "best")
    assert sorted(plan.launch_order) == list(range(len(plan.buckets)))
    assert outcome_of(problem, plan).done_s <= outcome_of(problem, now).done_s * (1 + 1e-9)
