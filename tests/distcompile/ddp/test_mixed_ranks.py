"""Ranks that run one step in different ways: eager here, compiled there, by other plans.

Gradients are the joined batch's on all ranks, and after the first such step all reduce by one plan again; or a named
error comes on every rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from ddp_models import (
    Branched,
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
from collectives.errors import CollectiveMismatchError
from compiler_core.capture import compile
from compiler_core.config import config
from compiler_core.log import DistCompileWarning
from compiler_core.steps import compile_times
from compiler_core.tensor.tensor import Tensor
from distcompile import nn
from distcompile.ddp.books import ready_parameters
from distcompile.ddp.errors import LedgerError, ModelMismatchError, PlanError, RankDisagreementError
from distcompile.ddp.plan.bucket_plan import plan_from_groups
from distcompile.optim import SGD

pytestmark = pytest.mark.filterwarnings("ignore::compiler_core.log.DistCompileWarning")
TINY_MB = 1e-6
BACKENDS = ["aot_eager", "codegen"]


class Deep(Net):
    """Net with layers registered in another order than used: plans by graph and by registration differ."""

    def __init__(self, breaks: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self.last, self.first = nn.Parameter(wrap(np.full((3, 2), 0.5))), nn.Parameter(wrap(np.full((5,), 0.3)))
        object.__setattr__(self, "breaks", breaks)

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x * self.first) @ self.last
        if self.breaks():
            y = y * (1.0 if y.sum().item() < 1e9 else 0.0)
        return y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cap_mb", [None, TINY_MB])
@pytest.mark.parametrize("odd_rank", [0, 1, 2])
def test_a_graph_break_on_one_rank(odd_rank: int, cap_mb: float | None, backend: str) -> None:
    """From the very first step: that rank has two graphs; all reduce by one plan, by the gate after the first."""

    def step(communicator: Communicator) -> list[int]:
        ddp = DistributedDataParallel(Deep(lambda: communicator.rank == odd_rank), bucket_cap_mb=cap_mb)
        run = compile(ddp, backend=backend)
        words = []
        for seed in range(4):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed, 12), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Deep(), batch(seed, 12)))
            words.append(ddp._books.layout.word)
        assert len(set(words)) == 1  # adopted in the first step
        return words

    assert len({tuple(words) for words in on_ranks(3, step)}) == 1


def test_the_step_that_ranks_ran_differently_is_said_once() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = ddp if communicator.rank == 1 else compile(ddp, backend="aot_eager")
        loss_of(run(shard(batch(), communicator))).backward()

    with pytest.warns(
        DistCompileWarning, match=re.escape("rank(s) [1] ran a step eager that rank(s) [0] ran compiled")
    ):
        on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_break_that_comes_later_and_goes_again(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        now = {"step": 0}
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for seed in range(6):
            now["step"] = seed
            ddp.zero_grad()
            forward = ddp if seed in (2, 3) and communicator.rank == 0 else run
            loss_of(forward(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Deep(), batch(seed)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_recompile_limit_met_at_different_steps(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "recompile_limit", 2)

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for seed in range(6):
            sizes = (3 + seed, 4)  # rank 0 meets the limit in step 2, rank 1 never
            arrays = [batch(10 * seed + r, sizes[r]) for r in range(2)]
            ddp.zero_grad()
            loss_of(run(wrap(arrays[communicator.rank]))).backward()
            parts = [joined_gradients(Deep(), array) for array in arrays]
            check_close(gradients(ddp.module), {n: (parts[0][n] + parts[1][n]) / 2 for n in parts[0]})

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_accumulation_when_ranks_run_differently(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Deep(lambda: communicator.rank == 1), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for _ in range(2):
            ddp.zero_grad()
            with ddp.no_sync():
                loss_of(run(shard(batch(1), communicator))).backward()
            loss_of(run(shard(batch(2), communicator))).backward()
            loss_of(run(shard(batch(3), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Deep(), batch(1), batch(2), batch(3)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_that_differs_by_rank(backend: str) -> None:
    """Compiled on every rank, with another graph on each, of one plan."""

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Branched(), bucket_cap_mb=TINY_MB, find_unused_parameters=True)
        run = compile(ddp, backend=backend)
        alone = Branched()
        for _ in range(3):
            ddp.zero_grad()
            alone.zero_grad()
            loss_of(
                run(wrap(batch(communicator.rank, 4 + communicator.rank)), use_extra=communicator.rank == 1)
            ).backward()
            for rank in range(2):
                (loss_of(alone(wrap(batch(rank, 4 + rank)), use_extra=rank == 1)) * 0.5).backward()
            check_close(gradients(ddp.module), gradients(alone))

    on_ranks(2, step)


class Experts(Net):
    """Net with two parameters of one shape, of which a call uses one."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.odd = nn.Parameter(wrap(np.full((3,), 0.5))), nn.Parameter(wrap(np.full((3,), 0.3)))

    def forward(self, x: Tensor, number: int) -> Tensor:
        return super().forward(x) * (self.odd if number % 2 else self.even)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_use_other_parameters_of_one_shape(backend: str) -> None:
    """Batches of one size, an expert (or a layer not dropped) on each rank: graphs differ in parameters' names."""

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Experts(), bucket_cap_mb=TINY_MB, find_unused_parameters=True)
        run = compile(ddp, backend=backend)
        for count in range(4):
            alone = Experts()
            ddp.zero_grad()
            loss_of(run(wrap(batch(communicator.rank, 4)), communicator.rank + count)).backward()
            for rank in range(2):
                (loss_of(alone(wrap(batch(rank, 4)), rank + count)) * 0.5).backward()
            check_close(gradients(ddp.module), gradients(alone))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_skipped_backward_that_parts_the_ranks_is_named_on_all(backend: str | None) -> None:
    """Here the other rank accumulates, and this one steps."""

    def step(communicator: Communicator) -> str:
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend) if backend else ddp
        optimizer = SGD(ddp.parameters(), lr=0.1)

        def train() -> None:
            for seed in range(3):
                loss = loss_of(run(shard(batch(seed), communicator)))
                if (communicator.rank, seed) == (1, 1):
                    optimizer.step()
                    continue  # a caught exception, a NaN
                loss.backward()

        with pytest.raises(LedgerError) as caught:
            train()
        return str(caught.value)

    for text in on_ranks(2, step):
        assert "ranks hold different parameters" in text
        assert "rank(s) [0]: backward 2, of training forward 2" in text
        assert "rank(s) [1]: backward 2, of training forward 3" in text


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_forward_more_on_one_rank_does_no_harm(backend: str | None) -> None:
    """It is said, and the gradients are those of the batches that have a backward."""

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend) if backend else ddp
        for seed in range(4):
            ddp.zero_grad()
            if communicator.rank == 1 and seed in (0, 2):
                run(shard(batch(9), communicator))
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Deep(), batch(seed)))

    with pytest.warns(DistCompileWarning, match=r"rank\(s\) \[1\]: backward 1, of training forward 2"):
        on_ranks(2, step)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("ranks", [(0, 1), (1,)])
def test_after_an_exception_in_a_hook_no_steps_are_mixed(ranks: tuple[int, ...], backend: str | None) -> None:
    """On all ranks alike: the broken backward is dropped. On one: a named error, with both steps."""

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend) if backend else ddp
        broken = {"now": False}

        def hook(gradient: Tensor) -> None:
            if broken["now"] and communicator.rank in ranks:
                raise FloatingPointError("not finite")

        ddp.module.b1.register_hook(hook)
        for seed in range(4):
            ddp.zero_grad()
            broken["now"] = seed == 1
            try:
                loss_of(run(shard(batch(seed), communicator))).backward()
            except FloatingPointError:
                continue
            check_close(gradients(ddp.module), joined_gradients(Deep(), batch(seed)))

    if len(ranks) == 2:
        on_ranks(2, step)
    else:
        with pytest.raises((CollectiveMismatchError, LedgerError), match="step"):
            on_ranks(2, step)


def test_two_instances_in_another_order_are_named() -> None:
    def step(communicator: Communicator) -> None:
        models = [DistributedDataParallel(Net()), DistributedDataParallel(Net())]
        for model in models if communicator.rank else models[::-1]:
            loss_of(model(shard(batch(), communicator))).backward()

    with pytest.raises((LedgerError, CollectiveMismatchError), match=r"instances|different steps"):
        on_ranks(2, step)


# -- literals and configuration


class Scaled(Net):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.factor


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_literal_that_differs_is_named_on_all_ranks(backend: str, later: bool) -> None:
    def step(communicator: Communicator) -> str:
        model = Scaled(2.0)
        run = compile(DistributedDataParallel(model, bucket_cap_mb=TINY_MB), backend=backend)
        if later:
            loss_of(run(shard(batch(), communicator))).backward()
        model.factor = 2.0 + communicator.rank
        with pytest.raises(RankDisagreementError) as caught:
            loss_of(run(shard(batch(), communicator))).backward()
        return str(caught.value)

    for text in on_ranks(2, step):
        assert "3.0" in text
        assert "test_mixed_ranks.py:" in text


def test_configuration_of_library_modules_is_compared_when_wrapping() -> None:
    def wrapped(communicator: Communicator) -> None:
        DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1 + communicator.rank / 10)))

    with pytest.raises(ModelMismatchError, match=r"rank\(s\) \[0\] have `module 1: Dropout\(p=0.1"):
        on_ranks(2, wrapped)


def test_attributes_that_name_the_rank_are_not_refused() -> None:
    class Knows(Net):
        def __init__(self, rank: int) -> None:
            super().__init__()
            self.rank = rank

        def extra_repr(self) -> str:
            return f"rank={self.rank}"

        def forward(self, x: Tensor) -> Tensor:
            if self.rank == 0:
                x = x.reshape(-1, x.shape[-1])[:]
            return super().forward(x)

    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Knows(communicator.rank))
        loss_of(compile(ddp, backend="aot_eager")(shard(batch(), communicator))).backward()
        check_close(gradients(ddp.module), joined_gradients(Net(), batch()))

    on_ranks(2, step)


# -- plans that are proposed, parameters that are frozen


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.usefixtures("no_compile_times")
def test_a_proposed_plan_is_adopted_without_capturing_again(late: int, backend: str | None) -> None:
    """late: how many steps later rank 1 proposes it."""

    def step(communicator: Communicator) -> tuple[tuple[str, ...], ...]:
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend) if backend else ddp
        groups = [["w1", "last"], ["first", "w2", "b1"]]
        captures = 0
        for seed in range(5):
            if seed == 1:
                captures = sum(t.step == "capture" for t in compile_times())
            if seed == 2 + late * communicator.rank and (seed == 2 or ddp.bucket_plan.order != "by hand"):
                ready = ready_parameters(dict(ddp.module.named_parameters()))
                ddp.propose_plan(plan_from_groups(groups, ready, order="by hand"))
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(Deep(), batch(seed)))
        assert sum(t.step == "capture" for t in compile_times()) == captures
        assert ddp.bucket_plan.order == "by hand"
        assert len(ddp.overlap_report().rows) == 2
        return tuple(bucket.names for bucket in ddp.bucket_plan.buckets)

    assert set(on_ranks(2, step)) == {(("w1", "last"), ("first", "w2", "b1"))}


def test_a_plan_must_cover_the_trained_parameters() -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(Net())
        some = {"w1": ddp.module.w1}
        with pytest.raises(PlanError, match="exactly the trained parameters"):
            ddp.propose_plan(plan_from_groups([["w1"]], ready_parameters(some), order="by hand"))

    on_ranks(1, step)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_parameters_may_be_frozen_and_unfrozen_on_all_ranks(backend: str | None) -> None:
    def step(communicator: Communicator) -> None:
        model = Net()
        model.w2.requires_grad_(False)
        ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend) if backend else ddp
        for seed, frozen in enumerate([{"w2"}, set(), set(), {"b1"}, {"b1", "w1"}, set()]):
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name not in frozen)
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            expected = joined_gradients(Net(), batch(seed))
            check_close(gradients(model), {n: g for n, g in expected.items() if n not in frozen})

    on_ranks(2, step)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_a_parameter_unfrozen_on_one_rank_is_named_on_all(backend: str | None) -> None:
    def step(communicator: Communicator) -> str:
        model = Net()
        model.w2.requires_grad_(False)
        ddp = DistributedDataParallel(model)
        run = compile(ddp, backend=backend) if backend else ddp
        loss_of(run(shard(batch(), communicator))).backward()
        model.w2.requires_grad_(communicator.rank == 1)
        with pytest.raises(RankDisagreementError) as caught:
            loss_of(run(shard(batch(), communicator))).backward()
        return str(caught.value)

    for text in on_ranks(2, step):
        assert "'w2' on rank(s) [1] only" in text
