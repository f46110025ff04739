"""Graph breaks under DDP beside what else there is: no_sync, buffers, draws, optimizers, join, hooks, other modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from breaking_models import Dropping, Printing, Stages, frozen
from ddp_models import (
    DistributedDataParallel,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    shard,
    weight,
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.dtype import float64
from compiler_core.log import DistCompileWarning
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.tensor import Tensor
from distcompile import distributed as dist
from distcompile import optim
from distcompile.nn import BatchNorm1d, SyncBatchNorm
from distcompile.nn.module import Module

pytestmark = pytest.mark.filterwarnings(f"error::{DistCompileWarning.__module__}.{DistCompileWarning.__name__}")
BACKENDS = ["eager", "aot_eager", "codegen"]
AOT = BACKENDS[1:]
TINY_MB = 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_accumulation_under_no_sync_around_breaks(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(frozen(Printing), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        for _ in range(2):
            ddp.zero_grad()
            with ddp.no_sync():
                loss_of(run(shard(batch(1), communicator))).backward()
                local = np.split(batch(1), 2)[communicator.rank]
                check_close(gradients(ddp.module), joined_gradients(frozen(Printing), local))
            loss_of(run(shard(batch(2), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(frozen(Printing), batch(1), batch(2)))

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_sync_inside_a_compiled_function(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp = DistributedDataParallel(frozen(Printing), bucket_cap_mb=TINY_MB)

        @compile(backend=backend)
        def local_loss(x: Tensor) -> Tensor:
            with ddp.no_sync():
                return loss_of(ddp(x))

        @compile(backend=backend)
        def loss(x: Tensor) -> Tensor:
            return loss_of(ddp(x))

        for _ in range(3):
            ddp.zero_grad()
            local_loss(shard(batch(1), communicator)).backward()
            local = np.split(batch(1), 2)[communicator.rank]
            check_close(gradients(ddp.module), joined_gradients(frozen(Printing), local))
            assert ddp.require_backward_grad_sync
            loss(shard(batch(2), communicator)).backward()
            check_close(gradients(ddp.module), joined_gradients(frozen(Printing), batch(1), batch(2)))

    on_ranks(2, step)


@pytest.mark.usefixtures("counter_draws")
@pytest.mark.parametrize("backend", [None, *BACKENDS])
def test_dropout_between_breaks_drops_what_one_rank_would(backend: str | None) -> None:
    def step(communicator: Communicator) -> list[dict[str, np.ndarray]]:
        ddp = DistributedDataParallel(frozen(Dropping))
        run = compile(ddp, backend=backend) if backend else ddp
        manual_seed(11)
        found = []
        for seed in range(3):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            found.append(gradients(ddp.module))
        return found

    manual_seed(11)
    model, expected = frozen(Dropping), []
    for seed in range(3):
        model.zero_grad()
        expected.append(joined_gradients(model, batch(seed)))
    for found in on_ranks(2, step):
        for mine, wanted in zip(found, expected, strict=True):
            check_close(mine, wanted)


class Counting(Stages):
    """A buffer that every forward reads before, and writes after, a break."""

    def __init__(self) -> None:
        super().__init__(learns_both=False)
        self.register_buffer("seen", wrap(np.zeros(3)))

    def forward(self, x: Tensor) -> Tensor:
        print(end="")
        h = self.first(x) * self.gain * (1.0 + self.seen.sum())
        print(end="")
        self.seen.add_(x.abs().mean())
        return self.last(h)


@pytest.mark.parametrize("backend", BACKENDS)
def test_buffers_are_sent_once_before_each_forward(backend: str) -> None:
    """Also if nothing is computed before the first break."""

    def step(communicator: Communicator) -> list[np.ndarray]:
        ddp = DistributedDataParallel(Counting(), bucket_cap_mb=TINY_MB)
        run, sent = compile(ddp, backend=backend), []
        send = ddp._buffer_sync.run
        ddp._buffer_sync.run = lambda *args, **kwargs: (sent.append(1), send(*args, **kwargs))  # type: ignore[method-assign]
        outputs = []
        for seed in range(4):
            ddp.zero_grad()
            y = run(wrap(batch(seed) * (1 + communicator.rank)))
            outputs.append(np.array(y._cell.current()))
            loss_of(y).backward()
            assert len(sent) == seed + 1
        return outputs

    model = Counting()
    expected = [np.array(model(wrap(batch(seed)))._cell.current()) for seed in range(4)]
    for got, wanted in zip(on_ranks(2, step)[0], expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11)


@pytest.mark.parametrize("overlap", ["backward", "step"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_whole_training_step_with_breaks(backend: str, overlap: str) -> None:
    """zero_grad, forward, logging, backward, step; a break before the forward begins, in it, and after it."""

    def train(model: Stages, forward: Any, data: Callable[[int], Tensor], wrapper: Any) -> dict[str, np.ndarray]:
        optimizer = optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        losses = []

        def loss_now(x: Tensor) -> Tensor:
            x = x * 2.0
            print(end="")
            loss = loss_of(forward(x))
            losses.append(loss.item())
            return loss

        run = wrapper(loss_now)
        for seed in range(5):
            optimizer.zero_grad()
            run(data(seed)).backward()
            optimizer.step()
        assert len(losses) == 5
        return {name: p.detach().numpy() for name, p in model.named_parameters()}

    def step(communicator: Communicator) -> dict[str, np.ndarray]:
        model = frozen(Printing)
        ddp = DistributedDataParallel(model, bucket_cap_mb=TINY_MB, overlap=overlap)
        data: Callable[[int], Tensor] = lambda seed: shard(batch(seed), communicator)  # noqa: E731
        found = train(model, ddp, data, lambda function: compile(function, backend=backend))
        assert ddp._books.forwards == ddp._books.round == 5
        return found

    alone = frozen(Printing)
    expected = train(alone, alone, lambda seed: wrap(batch(seed)), lambda function: function)
    for found in on_ranks(2, step):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_wrapped_modules_in_one_compiled_function(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        one, two = (DistributedDataParallel(frozen(Printing), bucket_cap_mb=cap) for cap in (TINY_MB, None))
        plain = DistributedDataParallel(Linear())

        @compile(backend=backend)
        def loss(x: Tensor) -> Tensor:
            return loss_of(one(x)) + loss_of(two(x) * 3.0) + loss_of(plain(x))

        for seed in range(3):
            for ddp in (one, two, plain):
                ddp.zero_grad()
            loss(shard(batch(seed), communicator)).backward()
            alone = frozen(Printing), frozen(Printing), Linear()
            x = wrap(batch(seed))
            (loss_of(alone[0](x)) + loss_of(alone[1](x) * 3.0) + loss_of(alone[2](x))).backward()
            for ddp, model in zip((one, two, plain), alone, strict=True):
                check_close(gradients(ddp.module), gradients(model))

    on_ranks(2, step)


class Linear(Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = weight(8, 5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


class Normed(Module):
    """Two SyncBatchNorms, which ask the other ranks in the middle of the graph; or, alone, BatchNorms."""

    def __init__(self, norm: type[Module]) -> None:
        super().__init__()
        self.w1, self.w2 = weight(1, 5, 4), weight(2, 4, 3)
        self.first, self.second = norm(4, dtype=float64), norm(3, dtype=float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x @ self.w1).tanh() @ self.w2).tanh()


@pytest.mark.parametrize("backend", BACKENDS)
def test_sync_batchnorm_in_one_graph(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        ddp, alone = DistributedDataParallel(Normed(SyncBatchNorm), bucket_cap_mb=TINY_MB), Normed(BatchNorm1d)
        run = compile(ddp, backend=backend)
        for seed in range(3):
            ddp.zero_grad()
            alone.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(alone, batch(seed)))
        assert len(run.explain().entries) == 1

    on_ranks(2, step)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_with_different_numbers_of_batches(backend: str) -> None:
    """In join(), a rank that has run out shadows the graphs of the others."""

    def step(communicator: Communicator) -> bytes:
        ddp = DistributedDataParallel(frozen(Printing), bucket_cap_mb=TINY_MB)
        run = compile(ddp, backend=backend)
        with ddp.join():
            for seed in range(2 + 2 * communicator.rank):
                ddp.zero_grad()
                arrays = [batch(10 * seed + rank) for rank in range(2) if seed < 2 + 2 * rank]
                loss_of(run(wrap(batch(10 * seed + communicator.rank)))).backward()
                parts = [joined_gradients(frozen(Printing), array) for array in arrays]
                check_close(gradients(ddp.module), {name: sum(part[name] for part in parts) / 2 for name in parts[0]})
        return b"".join(p.detach().numpy().tobytes() for p in ddp.parameters())

    results = on_ranks(2, step)
    assert results[0] == results[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_communication_hook_sees_the_buckets_of_all_graphs(backend: str) -> None:
    def step(communicator: Communicator) -> None:
        seen: list[tuple[int, ...]] = []

        def hook(state: object, bucket: Any) -> Any:
            seen.append(tuple(bucket.buffer().shape))
            work = dist.all_reduce(bucket.buffer().mul_(0.5), async_op=True)
            return work.get_future().then(lambda future: future.value()[0])

        ddp = DistributedDataParallel(frozen(Printing), bucket_cap_mb=TINY_MB)
        ddp.register_comm_hook(None, hook)
        run = compile(ddp, backend=backend)
        for seed in range(2):
            ddp.zero_grad()
            loss_of(run(shard(batch(seed), communicator))).backward()
            check_close(gradients(ddp.module), joined_gradients(frozen(Printing), batch(seed)))
        assert len(seen) == 2 * 4

    on_ranks(2, step)


class Hooked(Module):
    """One layer in two of three graphs, with a hook on its gradients."""

    def __init__(self, hook: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.w1, self.w2 = weight(1, 5, 5), weight(2, 5, 3)
        self.twice = Scaled()
        self.twice.register_full_backward_hook(lambda module, inward, outward: hook(outward[0]))
        self.w1.register_hook(lambda gradient: gradient * 2.0)

    def forward(self, x: Tensor) -> Tensor:
        h = self.twice((x @ self.w1).tanh())
        print(end="")
        h = self.twice(h).tanh()
        print(end="")
        return h @ self.w2


class Scaled(Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = weight(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_hooks_run_in_each_graph(backend: str) -> None:
    """With this rank's gradients, in the order of the backward."""

    def step(communicator: Communicator) -> None:
        seen: list[float] = []
        ddp = DistributedDataParallel(
            Hooked(lambda gradient: seen.append(gradient.sum().item())), bucket_cap_mb=TINY_MB
        )
        run = compile(ddp, backend=backend)
        for seed in range(3):
            ddp.zero_grad()
            seen.clear()
            loss_of(run(shard(batch(seed), communicator))).backward()
            wanted: list[float] = []
            own = Hooked(lambda gradient: wanted.append(gradient.sum().item()))  # noqa: B023
            loss_of(own(shard(batch(seed), communicator))).backward()
            np.testing.assert_allclose(seen, wanted, rtol=1e-11)
            assert len(seen) == 2
            check_close(gradients(ddp.module), joined_gradients(Hooked(lambda gradient: None), batch(seed)))

    on_ranks(2, step)
