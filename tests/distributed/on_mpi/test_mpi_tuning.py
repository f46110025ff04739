"""On MPI ranks: measured costs, plan files and the automatic tuner: ranks agree, and gradients are those of any plan.

Run by test_under_mpi.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator
from distcompile import nn
from distcompile.ddp import DistributedDataParallel
from distcompile.ddp.plan.bucket_plan import BucketPlan, plan_from_groups
from distcompile.distributed import use_communicator
from distcompile.tuning import auto
from distcompile.tuning.cost import linear
from distcompile.tuning.errors import PlanFileMismatchError
from distcompile.tuning.measure import HostBench, measure_contention, measure_costs
from distcompile.tuning.plan_file import PlanRecord, save_plan
from distcompile.tuning.tune import TuneOptions, tune
from distcompile.tuning.view import in_plan_order, place_of

pytestmark = pytest.mark.mpi(min_size=2)
WIDTH = 64


def make_model() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)), nn.Linear(WIDTH, 1))


def batch_of(communicator: Communicator) -> dc.Tensor:
    rows = np.random.default_rng(communicator.rank).standard_normal((16, WIDTH)).astype(np.float32)
    return dc.from_numpy(rows)


def gradients(communicator: Communicator, **options: object) -> tuple[DistributedDataParallel, list[bytes]]:
    """The gradients' bits after the last of 26 steps, compiled."""
    ddp = DistributedDataParallel(make_model(), process_group=communicator, **options)  # type: ignore[arg-type]
    run, x = dc.compile(ddp), batch_of(communicator)
    for _ in range(26):
        ddp.zero_grad()
        run(x).square().mean().backward()
    return ddp, [p.grad.numpy().tobytes() for p in ddp.parameters()]  # type: ignore[union-attr]


def test_measurements_are_the_same_on_all_ranks(world: Communicator) -> None:
    bench = HostBench(world)
    fit = measure_costs(bench, 1 << 18, budget_s=0.1)
    contention = measure_contention(bench, fit, 1 << 18, budget_s=0.1, rounds=1)
    assert len(set(world.all_gather_object((fit, contention)))) == 1
    assert 0 < fit.seconds(1 << 18) < 1


def test_auto_changes_the_plan_and_not_the_gradients(world: Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the gain is, every gradient gets a bucket of its own; the review takes that back."""

    def one_each(problem: object, parameters: object, now: BucketPlan, order: str) -> BucketPlan:
        return plan_from_groups([[name] for name in now.names], in_plan_order(now), order=order)

    monkeypatch.setattr(auto, "best_plan", one_each)
    monkeypatch.setattr(auto, "LEAST_GAIN", -1e9)
    monkeypatch.setattr(auto.AutoTuner, "_agreed", lambda self, *values: [-1e9, *values[1:]])
    _, expected = gradients(world, bucket_cap_mb=25)
    ddp, tuned = gradients(world, bucket_cap_mb=25, bucket_plan="auto")
    assert tuned == expected
    assert [tuning.changed for tuning in ddp.tuning] == [True, True]
    assert len({str([b.names for b in plan.buckets]) for plan in world.all_gather_object(ddp.bucket_plan)}) == 1


def test_a_plan_file_is_used_on_all_ranks(world: Communicator, tmp_path: Path) -> None:
    path = world.broadcast_object(str(tmp_path / "plan.json"))
    ddp, expected = gradients(world, bucket_cap_mb=0.01)
    place = place_of(world)
    if world.rank == 0:
        save_plan(path, PlanRecord(ddp.bucket_plan, place, linear(1e-5, 1e-9), 0.0, 1.0))
    world.barrier()
    loaded, found = gradients(world, bucket_plan=path)
    assert found == expected
    assert [b.names for b in loaded.bucket_plan.buckets] == [b.names for b in ddp.bucket_plan.buckets]
    with pytest.raises(PlanFileMismatchError, match="made for something else"):
        DistributedDataParallel(nn.Sequential(nn.Linear(3, 3)), process_group=world, bucket_plan=path)


def test_a_module_is_tuned(world: Communicator) -> None:
    with use_communicator(world):
        x = batch_of(world)
        report = tune(make_model(), (x,), None, TuneOptions(budget_s=0.2, caps_mb=(0.02, 25.0), optimizer="sgd"))
    assert len(set(world.all_gather_object(report.verdict()))) == 1
    assert report.rows[0].name == "default"
    assert report.place.world_size == world.world_size
