"""Small models and steps that the DDP tests share, written on Module alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from collectives import Communicator, run_ranks
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp import DistributedDataParallel
from distcompile.distributed import use_communicator
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

T = TypeVar("T")
BATCH, WIDTH = 8, 5


def wrap(array: np.ndarray) -> Tensor:
    return Tensor._wrap(np.ascontiguousarray(array))


def weight(seed: int, *shape: int) -> Parameter:
    return Parameter(wrap(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float64)))


class Net(Module):
    """x -> tanh(x w1 + b1) tied, times w1 again (a tied weight), times w2."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.w1, self.b1, self.w2 = weight(seed, WIDTH, WIDTH), weight(seed + 1, WIDTH), weight(seed + 2, WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = (x @ self.w1 + self.b1).tanh()
        return (hidden @ self.w1).tanh() @ self.w2


class Branched(Net):
    """Net with a parameter that only some calls use."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = weight(9, 3)

    def forward(self, x: Tensor, use_extra: bool = False) -> Tensor:
        y = super().forward(x)
        return y + self.extra if use_extra else y


def batch(seed: int = 5, size: int = BATCH) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (size, WIDTH))


def shard(array: np.ndarray, communicator: Communicator) -> Tensor:
    size = len(array) // communicator.world_size
    return wrap(array[communicator.rank * size : (communicator.rank + 1) * size])


def loss_of(y: Tensor) -> Tensor:
    return (y * y).sum() * (1.0 / int(y.shape[0]))


def gradients(module: Module) -> dict[str, np.ndarray]:
    return {name: np.array(p.grad._cell.current()) for name, p in module.named_parameters() if p.grad is not None}


def joined_gradients(model: Module, *batches: np.ndarray) -> dict[str, np.ndarray]:
    """What one rank computes on the whole batch: the oracle."""
    for array in batches:
        loss_of(model(wrap(array))).backward()
    return gradients(model)


def on_ranks(world_size: int, function: Callable[[Communicator], T], timeout_s: float = 60.0) -> list[T]:
    """`function` on threads that are ranks, each with its default process group."""

    def run(communicator: Communicator) -> T:
        with use_communicator(communicator):
            return function(communicator)

    return run_ranks(world_size, run, timeout_s=timeout_s)


def check_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert sorted(actual) == sorted(expected)
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-11, atol=1e-13, err_msg=name)


__all__ = [
    "Branched",
    "DistributedDataParallel",
    "Net",
    "batch",
    "check_close",
    "gradients",
    "joined_gradients",
    "loss_of",
    "on_ranks",
    "shard",
    "weight",
    "wrap",
]
