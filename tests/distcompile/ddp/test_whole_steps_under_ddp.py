"""Whole steps with DistributedDataParallel in them, under fullgraph=True: those of the joined batch, on 1 to 3 ranks.

A step is one graph, in which gradients are reduced, where that is all there is to it; else graphs end at seams
(`backward()`, `no_sync()`, the step where gradients are on their way), at nothing else.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, on_ranks, wrap

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile import amp, nn, optim
from distcompile.ddp.errors import RankDisagreementError

Step = Callable[..., Any]
Told = Callable[[], Sequence[float]]
Program = Callable[[Any, optim.Optimizer], tuple[Step, Told]]
OVERLAPS: dict[str, dict[str, Any]] = {
    "backward": {"bucket_cap_mb": 1e-4},
    "one bucket": {},
    "step": {"bucket_cap_mb": 1e-4, "overlap": "step"},
}
PROGRAMS: dict[str, tuple[Program, int]] = {}  # and the graphs that it has, if no gradient is on its way


def program(graphs: int) -> Callable[[Program], Program]:
    def keep(made: Program) -> Program:
        PROGRAMS[made.__name__] = made, graphs
        return made

    return keep


def net(seed: int = 0) -> nn.Module:
    rng = np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    with no_grad():
        for parameter in model.parameters():
            parameter.copy_(wrap(rng.standard_normal(tuple(parameter.shape))))
    return model


def part(communicator: Communicator, seed: int, *, overflows: bool = False) -> Tensor:
    """This rank's part of a batch of twelve."""
    x = np.random.default_rng(100 + seed).standard_normal((12, 5))
    if overflows:
        x[0, 0] = np.inf
    size = 12 // communicator.world_size
    return wrap(x[communicator.rank * size : (communicator.rank + 1) * size])


def loss_of(y: Tensor) -> Tensor:
    return y.square().mean()


def nothing() -> Sequence[float]:
    return ()


@program(2)
def plain(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    def step(x: Tensor, *_: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(ddp(x)).backward()
        optimizer.step()

    return step, nothing


@program(2)
def clipped_and_scheduled(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)

    def step(x: Tensor, *_: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(ddp(x))
        loss.backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        return loss.detach()

    return step, schedule.get_last_lr


@program(2)
def scaled(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    scaler = amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x: Tensor, *_: Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale(loss_of(ddp(x))).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()

    return step, lambda: (scaler.get_scale(), scaler._get_growth_tracker())


@program(2)
def edited(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    def step(x: Tensor, *_: Tensor) -> list[Tensor | None]:
        optimizer.zero_grad()
        loss_of(ddp(x)).backward()
        for p in ddp.parameters():
            p.grad.mul_(2)
            p.grad = p.grad.clamp(-1, 1)
        optimizer.step()
        return [p.grad for p in ddp.parameters()]

    return step, nothing


@program(8)
def accumulated(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    def step(*xs: Tensor) -> None:
        optimizer.zero_grad()
        for i, x in enumerate(xs):
            with ddp.no_sync() if i < len(xs) - 1 else nullcontext():
                (loss_of(ddp(x)) / len(xs)).backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 0.5)
        optimizer.step()

    return step, nothing


@program(3)
def zeroed(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    """The first step has no `.grad` to put zeros in."""

    def step(x: Tensor, *_: Tensor) -> None:
        optimizer.zero_grad(set_to_none=False)
        loss_of(ddp(x)).backward()
        optimizer.step()

    return step, nothing


@program(2)
def penalised_and_looked_at_again(ddp: Any, optimizer: optim.Optimizer) -> tuple[Step, Told]:
    """Parameters are used outside of the forward, too; a second forward has no backward."""

    def step(x: Tensor, *_: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(ddp(x)) + sum(p.square().sum() for p in ddp.parameters()) * 0.01
        loss.backward()
        optimizer.step()
        with no_grad():
            return loss_of(ddp(x))

    return step, nothing


def trained(communicator: Communicator, made: Program, around: Any, **options: Any) -> tuple[list[Any], Any]:
    """(parameters, and what the program tells, after each of six steps; what ran)."""
    model = net()
    ddp = DistributedDataParallel(model, **options)
    optimizer = optim.AdamW(ddp.parameters(), lr=0.05)
    step, tell = made(ddp, optimizer)
    run, seen = around(step), []
    for i in range(6):
        overflows = made is scaled and i == 2
        run(*(part(communicator, 10 * i + k, overflows=overflows) for k in range(3)))
        seen.append([*(p.detach().clone().numpy() for p in model.parameters()), np.array(tell())])
    return seen, run


def check(got: list[Any], want: list[Any], tolerance: float = 1e-13) -> None:
    for a, b in zip(got, want, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager_ranks_and_as_the_joined_batch(name: str, overlap: str, world_size: int) -> None:
    made, graphs = PROGRAMS[name]
    options = OVERLAPS[overlap]
    travels = overlap == "step" and world_size > 1 and name != "scaled"  # there all are waited for before the step

    def run(communicator: Communicator) -> list[Any]:
        seen, ran = trained(communicator, made, compile(fullgraph=True), **options)
        explained = ran.explain()
        assert not explained.breaks
        is_one = overlap != "step" and name not in ("accumulated", "zeroed")
        assert len(explained.entries) == (1 if is_one else graphs + travels)
        return seen

    joined = on_ranks(1, lambda c: trained(c, made, lambda step: step)[0])[0]
    want = on_ranks(world_size, lambda c: trained(c, made, lambda step: step, **options)[0])
    got = on_ranks(world_size, run)
    for mine, eager in zip(got, want, strict=True):
        check(mine, eager)
        check(mine, joined)
        check(mine, got[0], 0.0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_by_the_backends_that_are_oracles(backend: str) -> None:
    for name in ("scaled", "accumulated"):
        made, _ = PROGRAMS[name]
        want = on_ranks(2, lambda c, made=made: trained(c, made, lambda step: step)[0])  # type: ignore[misc]
        got = on_ranks(2, lambda c, made=made: trained(c, made, compile(backend=backend, fullgraph=True))[0])  # type: ignore[misc]
        for mine, eager in zip(got, want, strict=True):
            check(mine, eager)


def test_accumulation_outside_of_the_function_is_of_one_graph() -> None:
    def run(communicator: Communicator, around: Any) -> tuple[list[Any], Any]:
        model = net()
        ddp = DistributedDataParallel(model)
        optimizer = optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
        micro = around(lambda x: (loss_of(ddp(x)) / 2).backward())
        seen = []
        for i in range(4):
            optimizer.zero_grad()
            with ddp.no_sync():
                micro(part(communicator, i))
            micro(part(communicator, i + 50))
            optimizer.step()
            seen.append([p.detach().clone().numpy() for p in model.parameters()])
        return seen, micro

    def compiled(communicator: Communicator) -> list[Any]:
        seen, micro = run(communicator, compile(fullgraph=True))
        assert not micro.explain().breaks
        return seen

    want = on_ranks(1, lambda c: run(c, lambda step: step)[0])[0]
    for mine in on_ranks(2, compiled):
        check(mine, want)


def test_two_models_each_with_its_own_backward_and_step() -> None:
    def run(communicator: Communicator, around: Any) -> list[Any]:
        models = net(0), net(1)
        maker, critic = (DistributedDataParallel(model, bucket_cap_mb=1e-4) for model in models)
        first, second = optim.Adam(maker.parameters(), lr=0.05), optim.SGD(critic.parameters(), lr=0.05)

        def step(x: Tensor, y: Tensor) -> None:
            first.zero_grad()
            loss_of(maker(x)).backward()
            first.step()
            second.zero_grad()
            loss_of(critic(y) + maker(y).detach()).backward()
            second.step()

        ran, seen = around(step), []
        for i in range(4):
            ran(part(communicator, i), part(communicator, i + 30))
            seen.append([p.detach().clone().numpy() for model in models for p in model.parameters()])
        return seen

    want = on_ranks(1, lambda c: run(c, lambda step: step))[0]
    for mine in on_ranks(3, lambda c: run(c, compile(fullgraph=True))):
        check(mine, want)


def test_sizes_that_change_and_parameters_that_a_step_does_not_use() -> None:
    class Either(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = net(0), net(1)

        def forward(self, x: Tensor, second: bool) -> Tensor:
            return self.second(x) if second else self.first(x)

    def run(communicator: Communicator, around: Any) -> list[Any]:
        model = Either()
        ddp = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=1e-4)
        optimizer = optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)

        def step(x: Tensor, second: bool) -> None:
            optimizer.zero_grad()
            loss_of(ddp(x, second)).backward()
            optimizer.step()

        ran, seen = around(step), []
        for i in range(8):
            parts = part(communicator, i)
            ran(parts[: len(parts) // (1 + i // 2 % 2)], i % 3 == 1)
            seen.append([p.detach().clone().numpy() for p in model.parameters()])
        return seen

    want = on_ranks(2, lambda c: run(c, lambda step: step))
    for mine, eager in zip(on_ranks(2, lambda c: run(c, compile(fullgraph=True))), want, strict=True):
        check(mine, eager)


@pytest.mark.parametrize("accumulates", [False, True])
def test_ranks_whose_steps_differ_are_told_so(accumulates: bool) -> None:
    def run(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(net())
        optimizer = optim.SGD(ddp.parameters(), lr=0.1)

        @compile(fullgraph=True)
        def step(x: Tensor) -> None:
            optimizer.zero_grad()
            if accumulates:
                with ddp.no_sync():
                    loss_of(ddp(x)).backward()
            y = ddp(x)
            loss_of(y if communicator.rank == 0 else y.tanh()).backward()
            optimizer.step()

        before = [p.tolist() for p in ddp.parameters()]
        with pytest.raises(RankDisagreementError):
            step(part(communicator, 0))
        assert before == [p.tolist() for p in ddp.parameters()]

    on_ranks(2, run)


@pytest.mark.parametrize("behind", [False, True])
def test_what_breaks_the_graph_is_an_error_all_the_same(behind: bool) -> None:
    def run(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(net())

        @compile(fullgraph=True)
        def step(x: Tensor) -> None:
            loss = loss_of(ddp(x))
            if not behind:
                print(end="")
            loss.backward()
            print(end="")

        with pytest.raises(GraphBreak, match="print"):
            step(part(communicator, 0))
        assert all(p.grad is None for p in ddp.parameters())  # nothing has happened

    on_ranks(2, run)


def test_nothing_grows() -> None:
    def run(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(net(), bucket_cap_mb=1e-4)
        made, _ = PROGRAMS["scaled"]
        step, _ = made(ddp, optim.AdamW(ddp.parameters(), lr=0.01))
        ran, x = compile(fullgraph=True)(step), part(communicator, 0)
        for _ in range(40):  # the reports keep the last 32
            ran(x)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(260):
            ran(x)
        gc.collect()
        assert len(gc.get_objects()) <= before + 40
        assert len(ran.explain().entries) == 1

    on_ranks(1, run)
