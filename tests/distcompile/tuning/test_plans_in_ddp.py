"""bucket_plan= of DistributedDataParallel: plans, files and "auto", eager and compiled; gradients as with any plan."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ddp_models import (
    DistributedDataParallel,
    Net,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    shard,
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.errors import PlanError, RankDisagreementError
from distcompile.ddp.plan.bucket_plan import BucketPlan, plan_from_groups
from distcompile.errors import ArgumentError
from distcompile.optim import SGD
from distcompile.tuning import auto
from distcompile.tuning.cost import linear
from distcompile.tuning.errors import PlanFileError, PlanFileMismatchError
from distcompile.tuning.plan_file import PlanRecord, save_plan
from distcompile.tuning.problem import Contention
from distcompile.tuning.view import in_plan_order, place_of

BACKENDS = [None, "eager", "codegen"]


def random_plan(ddp: DistributedDataParallel, seed: int) -> BucketPlan:
    """Any partition of the parameters, in any order."""
    rng = random.Random(seed)
    parameters = in_plan_order(ddp.bucket_plan)
    rng.shuffle(parameters)
    groups: list[list[str]] = [[]]
    for parameter in parameters:
        if groups[-1] and rng.random() < 0.5:
            groups.append([])
        groups[-1].append(parameter.name)
    return plan_from_groups(groups, parameters, order="random")


def train(ddp: DistributedDataParallel, run: object, communicator: Communicator, steps: int = 2) -> None:
    for seed in range(steps):
        ddp.zero_grad()
        loss_of(run(shard(batch(seed), communicator))).backward()  # type: ignore[operator]
        check_close(gradients(ddp.module), joined_gradients(Net(), batch(seed)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_any_plan_gives_the_gradients_of_the_joined_batch(backend: str | None) -> None:
    def rank(communicator: Communicator) -> list[str]:
        first = DistributedDataParallel(Net())
        hashes = []
        for seed in range(4):
            plan = random_plan(first, seed)
            ddp = DistributedDataParallel(Net(), bucket_plan=plan)
            train(ddp, ddp if backend is None else compile(ddp, backend=backend), communicator)
            assert [b.names for b in ddp.bucket_plan.buckets] == [b.names for b in plan.buckets]
            hashes.append(plan.hash)
        return hashes

    results = on_ranks(2, rank)
    assert results[0] == results[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_plans_change_between_steps_without_a_trace_in_the_gradients(backend: str | None) -> None:
    def rank(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        run = ddp if backend is None else compile(ddp, backend=backend)
        train(ddp, run, communicator)
        plans = [random_plan(ddp, seed) for seed in range(3)]
        for number in (0, 1, 0, 2, 1, 0):
            ddp.propose_plan(plans[number])
            train(ddp, run, communicator)
            assert [b.names for b in ddp.bucket_plan.buckets] == [b.names for b in plans[number].buckets]

    on_ranks(4, rank)


def test_a_file_is_read_by_rank_0_and_used_by_all(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"

    def rank(communicator: Communicator) -> tuple[tuple[str, ...], ...]:
        plan = random_plan(DistributedDataParallel(Net()), 7)
        place = place_of(communicator)
        if communicator.rank == 0:
            save_plan(path, PlanRecord(plan, place, linear(1e-5, 1e-9), 0.0, 1.0))
        communicator.barrier()
        ddp = DistributedDataParallel(Net(), bucket_plan=str(path))
        train(ddp, compile(ddp, backend="codegen"), communicator)
        assert [b.slots for b in ddp.bucket_plan.buckets] == [b.slots for b in plan.buckets]
        return tuple(b.names for b in ddp.bucket_plan.buckets)

    results = on_ranks(2, rank)
    assert results[0] == results[1]


def test_a_file_for_another_world_or_none_is_an_error_on_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"

    def write(communicator: Communicator) -> None:
        plan = random_plan(DistributedDataParallel(Net()), 7)
        record = PlanRecord(plan, place_of(communicator), linear(1e-5, 1e-9), 0.0, 1.0)
        if communicator.rank == 0:
            save_plan(path, record)

    on_ranks(3, write)

    def read(communicator: Communicator) -> str:
        with pytest.raises(PlanFileMismatchError) as caught:
            DistributedDataParallel(Net(), bucket_plan=path)
        with pytest.raises(PlanFileError, match="cannot be read"):
            DistributedDataParallel(Net(), bucket_plan=tmp_path / "none.json")
        return str(caught.value)

    for message in on_ranks(2, read):
        assert "world_size is 2 here and 3 in the file" in message


def test_plans_of_other_parameters_and_other_things_are_refused() -> None:
    def rank(communicator: Communicator) -> None:
        plan = random_plan(DistributedDataParallel(Net()), 1)
        short = BucketPlan("short", plan.caps, plan.buckets[:-1])
        with pytest.raises(PlanError, match="does not cover exactly"):
            DistributedDataParallel(Net(), bucket_plan=short)
        with pytest.raises(ArgumentError, match="bucket_plan"):
            DistributedDataParallel(Net(), bucket_plan=3)  # type: ignore[arg-type]

    on_ranks(2, rank)


def test_ranks_that_ask_for_different_plans_are_told() -> None:
    def rank(communicator: Communicator) -> None:
        with pytest.raises(RankDisagreementError, match="auto"):
            DistributedDataParallel(Net(), bucket_plan="auto" if communicator.rank else None)

    on_ranks(2, rank)


@pytest.mark.parametrize("backend", BACKENDS)
def test_auto_switches_all_ranks_at_one_step(backend: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured costs are pretended, so that a plan of several buckets looks better than one; then it is watched."""
    monkeypatch.setattr(auto, "measure_costs", lambda *_: linear(0.0, 1e-4))
    monkeypatch.setattr(auto, "measure_contention", lambda *_: Contention())
    monkeypatch.setattr(auto, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(auto.AutoTuner, "_agreed", lambda self, *values: [0.0, *values[1:]])

    def rank(communicator: Communicator) -> tuple[int, list[tuple[str, ...]], list[bool]]:
        ddp = DistributedDataParallel(Net(), bucket_plan="auto")
        run = ddp if backend is None else compile(ddp, backend=backend)
        before, changed_at = len(ddp.bucket_plan.buckets), -1
        for step in range(30):
            train(ddp, run, communicator, steps=1)
            if changed_at < 0 and len(ddp.bucket_plan.buckets) != before:
                changed_at = step
        return changed_at, [b.names for b in ddp.bucket_plan.buckets], [t.changed for t in ddp.tuning[:1]]

    results = on_ranks(2, rank)
    assert results[0] == results[1]
    changed_at, names, changed = results[0]
    assert changed_at == auto.WARM_UP + auto.WATCHED
    assert changed == [True]
    assert sum(map(len, names)) == 3


class Breaking(Net):
    """Net in two graphs."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = (x @ self.w1 + self.b1).tanh()
        print(end="")
        return (hidden @ self.w1).tanh() @ self.w2


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_auto_tunes_a_step_of_several_graphs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "measure_costs", lambda *_: linear(0.0, 1e-4))
    monkeypatch.setattr(auto, "measure_contention", lambda *_: Contention())
    monkeypatch.setattr(auto, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(auto.AutoTuner, "_agreed", lambda self, *values: [0.0, *values[1:]])

    def rank(communicator: Communicator) -> list[tuple[str, ...]]:
        ddp = DistributedDataParallel(Breaking(), bucket_plan="auto")
        run = compile(ddp, backend=backend)
        for seed in range(12):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Net(), batch(seed)))
        assert [t.changed for t in ddp.tuning[:1]] == [True]
        assert len(run.explain().entries) == 2
        return [bucket.names for bucket in ddp.bucket_plan.buckets]

    results = on_ranks(2, rank)
    assert results[0] == results[1]
    assert sorted(name for names in results[0] for name in names) == ["b1", "w1", "w2"]


@pytest.mark.parametrize("backend", [None, "codegen"])
def test_auto_across_the_step_plans_a_launch_order(backend: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "measure_costs", lambda *_: linear(0.0, 1e-5))
    monkeypatch.setattr(auto, "measure_contention", lambda *_: Contention())
    monkeypatch.setattr(auto, "LEAST_GAIN", -1e9)  # whatever is found is used
    monkeypatch.setattr(auto.AutoTuner, "_agreed", lambda self, *values: [-1e9, *values[1:]])
    planned: list[tuple[str, ...]] = []
    monkeypatch.setattr(auto, "best_plan", lambda p, ps, now, order: backwards(now, ps))

    def backwards(now: BucketPlan, parameters: object) -> BucketPlan:
        made = plan_from_groups([[name] for name in now.names], in_plan_order(now), order="one each")
        planned.append(made.names)
        return replace(made, launch=tuple(reversed(range(len(made.buckets)))))

    def rank(communicator: Communicator) -> tuple[list[bytes], tuple[int, ...], int]:
        ddp = DistributedDataParallel(Net(), bucket_plan="auto", overlap="step")
        optimizer = SGD(ddp.parameters(), lr=0.01)
        run = ddp if backend is None else compile(ddp, backend=backend)
        for step in range(16):
            optimizer.zero_grad()
            loss_of(run(shard(batch(step), communicator))).backward()
            optimizer.step()
        bits = [np.array(p.detach().numpy()).tobytes() for p in ddp.parameters()]
        return bits, ddp.bucket_plan.launch_order, len(ddp.tuning)

    results = on_ranks(2, rank)
    assert results[0] == results[1]
    assert results[0][1:] == ((2, 1, 0), 1)
    assert len(planned) == 1

    plain = Net()
    optimizer = SGD(plain.parameters(), lr=0.01)
    for step in range(16):
        optimizer.zero_grad()
        loss_of(plain(wrap(batch(step)))).backward()
        optimizer.step()
    for mine, theirs in zip(results[0][0], plain.parameters()):
        np.testing.assert_allclose(np.frombuffer(mine), theirs.detach().numpy().ravel(), rtol=1e-9)


def test_a_copy_of_a_tuned_module_is_not_tuned() -> None:
    def rank(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net(), bucket_plan="auto")
        assert copy.deepcopy(ddp).tuning == ()

    on_ranks(1, rank)
