"""Module hooks under DistributedDataParallel: each rank's see its own gradients, at every backward, between segments.

Gradients equal those of one rank on the joined batch; buckets that are complete travel while later hooks run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, check_close, gradients, on_ranks, wrap

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.config import config
from compiler_core.tensor.tensor import Tensor
from distcompile import nn

pytestmark = pytest.mark.filterwarnings("ignore::compiler_core.log.DistCompileWarning")
BACKENDS = [None, "eager", "aot_eager", "codegen"]
TINY_MB = 1e-6


def deep() -> nn.Module:
    layers: list[nn.Module] = []
    for k in range(3):
        linear = nn.Linear(4, 4).double()
        for parameter in linear.parameters():
            shape = tuple(parameter.shape)
            parameter.data = wrap(np.random.default_rng(k + len(shape)).standard_normal(shape))
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers)


def batch(step: int) -> np.ndarray:
    return np.random.default_rng(100 + step).standard_normal((6, 4))


def shard(step: int, world: Communicator) -> Tensor:
    return wrap(np.array_split(batch(step), world.world_size)[world.rank]).requires_grad_()


def hook_all(module: nn.Module, log: list[Any], which: Callable[[int], bool] = lambda k: True) -> None:
    """Hooks that log, double and branch by data on the layers chosen."""
    for k, part in enumerate(module):
        if not which(k):
            continue
        part.register_full_backward_pre_hook(lambda m, go, k=k: log.append(("pre", k, go[0].tolist())))

        def full(m: Any, gi: Any, go: Any, k: int = k) -> Any:
            log.append(("full", k, float(gi[0].sum())))
            return (gi[0] * 2,) if float(gi[0].abs().max()) > 1e-9 and k % 2 else None

        part.register_full_backward_hook(full)


def alone(step: int, rank: int, world_size: int) -> tuple[dict[str, np.ndarray], list[Any]]:
    """Gradients and hooks' story of one rank's shard, uncompiled, without DDP."""
    module, log = deep(), list[Any]()
    hook_all(module, log)
    x = wrap(np.array_split(batch(step), world_size)[rank]).requires_grad_()
    module(x).sum().backward()
    return gradients(module), log


def stories_agree(ours: list[Any], theirs: list[Any]) -> None:
    assert [entry[:2] for entry in ours] == [entry[:2] for entry in theirs]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a[2], b[2], rtol=1e-9)


@pytest.mark.parametrize("boundary", ["cut", "notification"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_see_this_ranks_gradients_and_averages_are_right(backend: str | None, boundary: str) -> None:
    def train(world: Communicator) -> None:
        module, log = deep(), list[Any]()
        hook_all(module, log)
        ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend, fullgraph=True) if backend else ddp
        for step in range(3):
            log.clear()
            ddp.zero_grad()
            run(shard(step, world)).sum().backward()
            expected = [alone(step, rank, world.world_size) for rank in range(world.world_size)]
            mean = {name: sum(part[name] for part, _ in expected) / world.world_size for name in expected[0][0]}
            check_close(gradients(module), mean)
            stories_agree(log, expected[world.rank][1])

    with config.patch(boundary=boundary):
        on_ranks(2, train)


@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_hooks_on_one_rank_only(backend: str) -> None:
    """Ranks compare graphs as they are without hooks."""

    def train(world: Communicator) -> None:
        module, log = deep(), list[Any]()
        if world.rank == 0:
            for part in module:
                part.register_full_backward_hook(lambda m, gi, go: log.append(float(go[0].sum())))
        ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend, fullgraph=True)
        for step in range(3):
            ddp.zero_grad()
            run(shard(step, world)).sum().backward()
            plain = deep()
            plain(wrap(batch(step))).sum().backward()
            check_close(gradients(module), {name: g / world.world_size for name, g in gradients(plain).items()})
        assert len(log) == (18 if world.rank == 0 else 0)

    on_ranks(2, train)


@pytest.mark.parametrize("boundary", ["cut", "notification"])
@pytest.mark.parametrize("backend", ["aot_eager", "codegen"])
def test_a_complete_bucket_travels_while_a_later_hook_runs(backend: str, boundary: str) -> None:
    """The hook itself waits for buckets of later layers; if they left after the backward it would find none."""

    def train(world: Communicator) -> None:
        module, waited = deep(), list[int]()
        ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB)

        def hook(m: Any, go: Any) -> None:
            assert ddp._books.current is not None
            works = ddp._books.current.flight.works  # type: ignore[union-attr]
            for work in works:
                work.wait(30.0)
            waited.append(len(works))

        module[1].register_full_backward_pre_hook(hook)
        run = compile(ddp, backend=backend, fullgraph=True)
        for step in range(2):
            run(shard(step, world)).sum().backward()
        assert waited == [4, 4]  # weights and biases of two of three layers
        segments = [row.segment for row in ddp.overlap_report().rows]
        assert segments == sorted(segments)

    with config.patch(boundary=boundary):
        on_ranks(2, train)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_hook_raises_comes_out_and_nobody_hangs(backend: str | None) -> None:
    def train(world: Communicator) -> None:
        module, fails = deep(), [True]

        def hook(m: Any, gi: Any, go: Any) -> None:
            if fails[0]:
                raise ZeroDivisionError("in the hook")

        module[2].register_full_backward_hook(hook)
        ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend, fullgraph=True) if backend else ddp
        with pytest.raises(ZeroDivisionError, match="in the hook"):
            run(shard(0, world)).sum().backward()
        fails[0] = False
        ddp.zero_grad()
        run(shard(1, world)).sum().backward()
        plain = deep()
        plain(wrap(batch(1))).sum().backward()
        check_close(gradients(module), {name: g / world.world_size for name, g in gradients(plain).items()})

    on_ranks(2, train)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_that_hands_nothing_on(backend: str | None) -> None:
    """What is before it is unused then, on every rank: its `.grad` stays as it was."""

    def train(world: Communicator) -> None:
        module = deep()
        module[2].register_full_backward_hook(lambda m, gi, go: (None,))
        ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB, find_unused_parameters=True)
        run = compile(ddp, backend=backend, fullgraph=True) if backend else ddp
        for step in range(2):
            ddp.zero_grad()
            run(shard(step, world)).sum().backward()
            plain = deep()
            plain(wrap(batch(step))).sum().backward()
            wanted = {n: g / world.world_size for n, g in gradients(plain).items() if not n.startswith("0.")}
            assert module[0].weight.grad is None
            assert module[0].bias.grad is None
            check_close({n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}, wanted)

    on_ranks(2, train)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_in_several_graphs(backend: str | None) -> None:
    """The forward breaks between layers, and registers a hook on a tensor on either side of it."""

    class Broken(nn.Module):
        def __init__(self, log: list[Any]) -> None:
            super().__init__()
            self.first, self.second = deep(), deep()
            object.__setattr__(self, "log", log)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            h.register_hook(lambda g: self.log.append(("h", 0, float(g.sum()))))
            if float(h.detach().sum()) > 1e9:
                return h
            y = self.second(h)
            y.register_hook(lambda g: g * 2)
            return y

    def made(log: list[Any]) -> Broken:
        module = Broken(log)
        hook_all(module.first, log)
        hook_all(module.second, log)
        return module

    def train(world: Communicator) -> None:
        log = list[Any]()
        module = made(log)
        ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend) if backend else ddp
        for step in range(3):
            log.clear()
            ddp.zero_grad()
            run(shard(step, world)).sum().backward()
            parts = []
            for rank in range(world.world_size):
                told = list[Any]()
                alone = made(told)
                alone(wrap(np.array_split(batch(step), world.world_size)[rank]).requires_grad_()).sum().backward()
                parts.append(gradients(alone))
                if rank == world.rank:
                    stories_agree(log, told)
            check_close(gradients(module), {n: sum(part[n] for part in parts) / len(parts) for n in parts[0]})

    on_ranks(2, train)
