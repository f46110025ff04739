"""A small model, and steps that use what its forward saves in every order: for tests of where saved values lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import distcompile as dc
from compiler_core.codegen.cuda_backend import CudaBackend, CudaGraphsBackend
from distcompile import nn

Step = Callable[[Any, nn.Module], None]


class Graphs(CudaGraphsBackend):
    """Replays what is compiled for a device that is not there."""

    inner = CudaBackend(90)


def model() -> nn.Module:
    dc.manual_seed(0)
    layers = [nn.Linear(40, 64), nn.Tanh(), nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 40)]
    return nn.Sequential(*layers, nn.Softmax(-1)).to("cuda")


def batch(seed: int = 0) -> Any:
    return dc.tensor(np.random.default_rng(seed).standard_normal((64, 40)).astype(np.float32), device="cuda")


def in_reverse(call: Any, net: nn.Module) -> None:
    losses = [call(batch(k)).square().sum() for k in range(4)]
    for loss in reversed(losses):
        loss.backward()


def trained(call: Any, net: nn.Module) -> None:
    optimizer = dc.optim.SGD(net.parameters(), lr=0.1)
    for k in range(6):
        optimizer.zero_grad()
        call(batch(k)).square().sum().backward()
        optimizer.step()


def penalty(call: Any, net: nn.Module) -> None:
    x = batch().requires_grad_()
    (slope,) = dc.autograd.grad(call(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()


def evaluated_between(call: Any, net: nn.Module) -> None:
    loss = call(batch()).square().sum()
    with dc.no_grad():
        call(batch(3))
    call(batch(2))  # whose backward never comes
    loss.backward()


def saved_elsewhere(call: Any, net: nn.Module) -> None:
    with dc.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to("cuda")):
        loss = call(batch()).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
