"""Whole training steps compiled around DistributedDataParallel: what it does at a forward happens as in eager code."""

from __future__ import annotations

import numpy as np
import pytest
from ddp_models import DistributedDataParallel, check_close, gradients, on_ranks, weight, wrap

from collectives import Communicator
from compiler_core.capture import compile
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.nn.module import Module


class Queue(Module):
    """MoCo's: read, and written after a break under no_grad; each rank would write its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = weight(3, 2)
        self.register_buffer("queue", wrap(np.zeros(2)))

    def forward(self, x: Tensor) -> Tensor:
        y = (x * self.scale + self.queue.clone().detach()).sum()
        with no_grad():
            print(end="")
            self.queue[0:1] = x[0]
        return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_buffers_are_sent_after_a_first_call_that_breaks_under_no_grad(backend: str) -> None:
    """What DDP does before a forward happens in the modes of its beginning, not those where its graph ends."""

    def step(communicator: Communicator) -> list[float]:
        ddp = DistributedDataParallel(Queue())
        run = compile(ddp, backend=backend)
        told = []
        for seed in range(3):
            loss = run(wrap(np.full(2, communicator.rank + seed + 1.0)))
            loss.backward()
            told.append(loss.item() - ddp.module.scale.sum().item() * (communicator.rank + seed + 1))
        return told

    for told in on_ranks(2, step):
        np.testing.assert_allclose(told, [0.0, 1.0, 2.0], atol=1e-12)  # rank 0's queue, on both


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_frozen_for_one_forward_of_a_compiled_step(backend: str) -> None:
    """A GAN's: the critic's own pass reduces its gradients, the generator's passes through the frozen critic."""

    def step(communicator: Communicator) -> list[dict[str, np.ndarray]]:
        critic, maker = DistributedDataParallel(Queue()), DistributedDataParallel(Queue())

        def train(x: Tensor) -> None:
            critic(x).backward()
            for p in critic.parameters():
                p.requires_grad_(False)
            loss = critic(maker(x).expand(2))
            for p in critic.parameters():
                p.requires_grad_(True)
            loss.backward()

        run = train if communicator.world_size == 1 else compile(train, backend=backend)
        for seed in range(3):
            run(wrap(np.full(2, seed + 1.0)))
        return [gradients(critic), gradients(maker)]

    (expected,) = on_ranks(1, step)
    for found in on_ranks(2, step):
        for mine, wanted in zip(found, expected):
            check_close(mine, wanted)
