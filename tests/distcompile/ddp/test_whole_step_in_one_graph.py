"""A whole step of a DistributedDataParallel as one graph: what it launches, where it is not one, ranks that differ."""

from __future__ import annotations

from typing import Any

import pytest
from ddp_models import DistributedDataParallel, on_ranks

import distcompile as dc
from collectives import Communicator
from collectives.errors import CollectiveError
from distcompile import distributed as dist
from distcompile import nn, optim
from distcompile.ddp.errors import DdpError, UnusedParameterError
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook


def net() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def step_of(ddp: Any, optimizer: optim.Optimizer) -> Any:
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ddp(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def batch(communicator: Communicator, seed: int) -> Any:
    dc.manual_seed(10 * seed + communicator.rank)
    return dc.randn(4, 5)


def parameters_after(communicator: Communicator, compiled: bool, prepare: Any = None, **options: Any) -> Any:
    """(parameters after four steps, entries)."""
    model = net()
    ddp = DistributedDataParallel(model, **options)
    if prepare is not None:
        prepare(ddp, model)
    step = step_of(ddp, optim.AdamW(model.parameters(), lr=0.05))
    run = dc.compile(step, fullgraph=True) if compiled else step
    for seed in range(4):
        run(batch(communicator, seed))
    return [p.tolist() for p in model.parameters()], len(run.explain().entries) if compiled else 0


def agree(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        assert dc.allclose(dc.tensor(a), dc.tensor(b), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_its_collectives_are_buckets_behind_which_updates_stand(ranks: int) -> None:
    def run(communicator: Communicator) -> None:
        model = net()
        ddp = DistributedDataParallel(model)
        compiled = dc.compile(step_of(ddp, optim.AdamW(model.parameters(), lr=0.05)), fullgraph=True)
        compiled(batch(communicator, 0))
        with dist.watch_collectives() as seen:
            compiled(batch(communicator, 1))
        assert [(row.collective, row.parts) for row in seen.rows] == [("all_reduce sum", 4)] * (ranks > 1)
        assert ddp._books.round == ddp._books.recorder.count == 2
        report = ddp.overlap_report()
        if ranks == 1:
            assert (report.steps, report.unseen) == (0, 2)
            assert "2 steps were not timed: each was one graph, on one rank" in str(report)
        else:
            (row,) = report.rows
            assert (report.steps, report.unseen, row.parameters) == (2, 0, 4)
            assert row.nbytes == sum(p.numel() * 4 for p in model.parameters())
            assert 0 < row.ready_ms <= row.start_ms <= row.end_ms < report.backward_ms
            assert 0 < row.wait_ms == report.exposed_ms < report.backward_ms
        ddp(batch(communicator, 2)).sum().backward()
        assert ddp.overlap_report().unseen == 0
        assert all(p.grad is not None for p in model.parameters())

    on_ranks(ranks, run)


def with_comm_hook(ddp: Any, model: nn.Module) -> None:
    ddp.register_comm_hook(None, allreduce_hook)


def with_a_hook(ddp: Any, model: nn.Module) -> None:
    next(model.parameters()).register_hook(lambda gradient: gradient * 2)


SEAMS: dict[str, dict[str, Any]] = {
    "communication hook": {"prepare": with_comm_hook},
    "hook on a parameter": {"prepare": with_a_hook},
    "unused parameters": {"find_unused_parameters": True},
    "across the step": {"overlap": "step"},
}


@pytest.mark.parametrize("name", SEAMS)
def test_where_the_reducer_must_see_the_backward_the_graph_ends_there(name: str) -> None:
    def run(communicator: Communicator, compiled: bool) -> Any:
        return parameters_after(communicator, compiled, **SEAMS[name])

    want = on_ranks(2, lambda c: run(c, False))
    for (got, entries), (expected, _) in zip(on_ranks(2, lambda c: run(c, True)), want, strict=True):
        agree(got, expected)
        assert entries > 1


def test_a_hook_that_comes_later_takes_the_graph_out_of_use() -> None:
    def run(communicator: Communicator, compiled: bool) -> Any:
        model = net()
        ddp = DistributedDataParallel(model)
        step = step_of(ddp, optim.SGD(model.parameters(), lr=0.1))
        call = dc.compile(step, fullgraph=True) if compiled else step
        for seed in range(4):
            if seed == 2:
                with_comm_hook(ddp, model)
            call(batch(communicator, seed))
        return [p.tolist() for p in model.parameters()]

    want = on_ranks(2, lambda c: run(c, False))
    for got, expected in zip(on_ranks(2, lambda c: run(c, True)), want, strict=True):
        agree(got, expected)


def test_steps_in_one_graph_and_eager_ones_take_turns() -> None:
    def run(communicator: Communicator, compiled: bool) -> Any:
        model = net()
        ddp = DistributedDataParallel(model)
        step = step_of(ddp, optim.AdamW(model.parameters(), lr=0.05))
        call = dc.compile(step, fullgraph=True) if compiled else step
        for seed in range(6):
            (step if seed % 2 else call)(batch(communicator, seed))
        return [p.tolist() for p in model.parameters()]

    want = on_ranks(3, lambda c: run(c, False))
    for got, expected in zip(on_ranks(3, lambda c: run(c, True)), want, strict=True):
        agree(got, expected)


def test_an_unused_parameter_is_still_an_error() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(5, 3), nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.used(x)

    def run(communicator: Communicator) -> None:
        model = Wasteful()
        step = step_of(DistributedDataParallel(model), optim.SGD(model.parameters(), lr=0.1))
        with pytest.raises(UnusedParameterError):
            dc.compile(step, fullgraph=True)(batch(communicator, 0))

    on_ranks(2, run)


def test_a_rank_that_runs_the_step_eager_is_told_on_both_sides() -> None:
    def run(communicator: Communicator) -> None:
        model = net()
        step = step_of(DistributedDataParallel(model), optim.SGD(model.parameters(), lr=0.1))
        call = dc.compile(step, fullgraph=True) if communicator.rank else step
        before = [p.tolist() for p in model.parameters()]
        try:
            call(batch(communicator, 0))
        except (DdpError, CollectiveError):
            assert [p.tolist() for p in model.parameters()] == before
            raise

    with pytest.raises(DdpError, match="as one graph, and other ranks did not"):
        on_ranks(2, run)
