"""`distcompile tune`: candidates measured in turn, a verdict that needs proof beyond noise, a file, a picture, JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ddp_models import DistributedDataParallel, on_ranks

import distcompile as dc
from collectives import Communicator
from compiler_core.dtype import float32
from distcompile import nn
from distcompile.cli import build_parser
from distcompile.ddp.plan.bucket_plan import ReadyParameter, plan_from_groups
from distcompile.tuning.command import keep
from distcompile.tuning.cost import CostPoint, fit_costs
from distcompile.tuning.errors import TuningError
from distcompile.tuning.observe import groups_of
from distcompile.tuning.plan_file import Place, load_plan
from distcompile.tuning.problem import Gradient, Problem
from distcompile.tuning.simulate import simulate
from distcompile.tuning.tune import TuneOptions, affordable, plan_of_shares, tune
from distcompile.tuning.tune_report import Candidate, Sample, TuneReport, is_won, make_rows

PARAMETERS = [ReadyParameter(f"p{i}", (1024,), float32, i) for i in range(4)]


def candidate(name: str, *sizes: int) -> Candidate:
    names, groups = [p.name for p in PARAMETERS], []
    for size in sizes:
        groups.append(names[:size])
        names = names[size:]
    return Candidate(name, plan_from_groups(groups, PARAMETERS, order=name), 10.0, 2.0)


def report(duel_ms: tuple[float, ...], faster_s: float = 0.004) -> TuneReport:
    samples = [
        [Sample(0.030 + 0.001 * r, 0.012, 0.003) for r in range(6)],
        [Sample(0.030 + 0.001 * r - faster_s, 0.010, 0.002) for r in range(6)],
    ]
    rows = make_rows([candidate("default", 4), candidate("optimum", 2, 2)], samples)
    fit = fit_costs([CostPoint(1 << k, 1e-5 + 1e-9 * (1 << k)) for k in range(10, 20)])
    problem = Problem(tuple(Gradient(p.name, "float32", p.nbytes, 1e-3 * (p.ready + 1)) for p in PARAMETERS), 5e-3, fit)
    return TuneReport(tuple(rows), problem, Place(2, "mpi", "2"), 6, duel_ms)


def test_a_gain_that_holds_in_fresh_rounds_is_recommended() -> None:
    found = report((4.0, 3.9, 4.1, 4.2, 3.8, 4.0))
    assert found.recommended.name == "optimum"
    assert "recommended: optimum, 2 buckets: less than the default by 4.00 ms (12.3%)" in found.verdict()
    assert "faster in 6 of 6 fresh comparisons" in found.verdict()
    assert found.rows[1].gain_ms == pytest.approx(4.0)
    assert found.rows[1].gain_spread_ms == pytest.approx(0.0)


@pytest.mark.parametrize(
    "duel_ms", [(4.0, -3.0, 5.0, -4.0, 3.0, -2.0), (0.1, 0.2, 0.1, -9.0, -8.0, 0.1), (1.0, 2.0, 3.0)]
)
def test_what_fresh_rounds_do_not_prove_is_not_recommended(duel_ms: tuple[float, ...]) -> None:
    found = report(duel_ms)
    assert found.recommended is found.default
    assert "keep the default: the gain of optimum is within the noise" in found.verdict()


def test_without_a_faster_candidate_the_default_stays() -> None:
    found = report((), faster_s=-0.002)
    assert found.recommended is found.default
    assert found.verdict() == "keep the default (32.50 ms a step): no candidate was faster"


def test_noise_alone_is_recommended_in_at_most_one_of_twenty() -> None:
    import random

    rng = random.Random(0)
    wrong = sum(is_won([rng.gauss(0, 1) for _ in range(12)]) for _ in range(2000))
    assert wrong < 100


def test_it_is_kept_as_file_picture_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    found = report((4.0,) * 12)
    plan, picture = tmp_path / "plan.json", tmp_path / "tuning.png"
    arguments = ["tune", "x:y", "--output", str(plan), "--picture", str(picture)]
    keep(found, build_parser().parse_args(arguments))
    shown = capsys.readouterr().out
    assert "optimum" in shown
    assert "recommended" in shown
    record = load_plan(plan)
    assert record.plan == found.recommended.candidate.plan
    assert record.predicted_exposed_ms == 2.0
    assert picture.read_bytes().startswith(b"\x89PNG")
    keep(found, build_parser().parse_args([*arguments, "--json"]))
    data = json.loads(capsys.readouterr().out)
    assert data["recommended"] == "optimum"
    assert [row["name"] for row in data["rows"]] == ["default", "optimum"]
    assert len(data["curve"]) > 3
    assert replace(found, duel_ms=()).accuracy() == pytest.approx(1 / 32.5, rel=0.1)


def test_where_steps_are_slow_those_predicted_best_are_measured() -> None:
    proposed = [replace(candidate(f"plan {k}", 4), backward_ms=ms) for k, ms in enumerate((9.0, 8.0, 5.0, 7.0, 6.0))]
    assert affordable(proposed, left_s=1e6, visit_s=1.0) == proposed
    assert [c.name for c in affordable(proposed, left_s=1.0, visit_s=1.0)] == ["plan 0", "plan 2", "plan 4"]
    left_s = 4 * 6 + 2 * 8 + 1.0
    assert [c.name for c in affordable(proposed, left_s, 1.0)] == ["plan 0", "plan 2", "plan 3", "plan 4"]
    found = replace(report((4.0,) * 6), left_out=(proposed[1],))
    assert "not measured, for want of time (--budget-s): plan 1 (predicted" in str(found)
    assert found.to_dict()["not_measured"] == ["plan 1"]
    assert "not measured" not in str(report((4.0,) * 6))


def test_equal_shares_of_the_backward() -> None:
    plan = plan_of_shares(candidate("x", 4).plan, PARAMETERS, [1.0, 1.0, 1.0, 1.0, 9.0], 2)
    assert [bucket.names for bucket in plan.buckets] == [("p0", "p1"), ("p2", "p3")]
    assert len(plan_of_shares(plan, PARAMETERS, [0.0] * 5, 3).buckets) == 1


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(48, 48) for _ in range(4)), nn.Linear(48, 1))

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        return self.layers(x).mean()


@pytest.mark.slow
def test_a_module_is_tuned_on_threads() -> None:
    options = TuneOptions(budget_s=0.3, caps_mb=(0.01, 25.0), optimizer="sgd")
    seen: list[str] = []

    def rank(communicator: Communicator) -> tuple[str, TuneReport]:
        dc.manual_seed(0)
        found = tune(Stack(), (dc.randn(64, 48),), None, options, lambda text, share: seen.append(text))
        return found.verdict(), found

    results = on_ranks(2, rank)
    assert results[0][0] == results[1][0]
    found = results[0][1]
    names = [row.name for row in found.rows]
    assert names[0] == "default"
    assert found.rounds >= 5
    assert any("round 2 of" in text for text in seen)
    for row in found.rows:
        assert row.step_ms > 0
        predicted = simulate(found.problem, groups_of(found.problem, row.candidate.plan))
        assert row.candidate.backward_ms == pytest.approx(1e3 * predicted.done_s)
    ready = [g.ready_s for g in found.problem.gradients]
    assert ready == sorted(ready)
    assert 0 < ready[0] < ready[-1] <= found.problem.backward_s
    assert found.problem.gamma_s >= 0
    assert found.cut_s >= 0


def test_a_module_whose_communication_crosses_the_step_is_sent_elsewhere() -> None:
    def rank(communicator: Communicator) -> None:
        with pytest.raises(TuningError, match="overlap='step' leaves none there"):
            tune(DistributedDataParallel(Stack(), overlap="step"), (dc.randn(4, 48),), None)

    on_ranks(2, rank)


def test_one_rank_alone_cannot_be_tuned() -> None:
    def rank(communicator: Communicator) -> None:
        with pytest.raises(TuningError, match="nothing to tune on one rank"):
            tune(Stack(), (dc.randn(4, 48),), None)

    on_ranks(1, rank)
