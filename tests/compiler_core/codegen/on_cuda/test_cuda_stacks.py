"""Saved values in one block, as programs use them: several forwards before their backwards, hooks, losses apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.codegen.cuda_backend import CudaBackend, CudaGraphsBackend
from distcompile import nn
from tests.fake_cuda import FakeCuda

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]

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


@pytest.mark.parametrize("backend", [CudaBackend(90), Graphs()], ids=["launched", "replayed"])
@pytest.mark.parametrize("step", [in_reverse, trained, penalty, evaluated_between, saved_elsewhere])
def test_gradients_are_eagers(step: Step, backend: Any, fake_cuda: FakeCuda) -> None:
    found = []
    for compiled in (False, True):
        net = model()
        step(dc.compile(net, backend=backend) if compiled else net, net)
        found.append([p.grad.cpu().numpy() for p in net.parameters()])
    for ours, eager in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(ours, eager, rtol=2e-3, atol=2e-4)


def test_a_hook_within_and_losses_apart(fake_cuda: FakeCuda) -> None:
    found = []
    for compiled in (False, True):
        net = model()

        def losses(x: Any, net: nn.Module = net) -> tuple[Any, Any]:
            h = net[0](x)
            h.register_hook(lambda g: g * 2)
            y = net[1:](h)
            return y.square().sum(), (y * y * y).sum()

        call = dc.compile(losses, backend=CudaBackend(90)) if compiled else losses
        first, second = call(batch())
        first.backward(retain_graph=True)
        second.backward()
        call(batch(1))[1].backward()
        sum(call(batch(2))).backward()
        found.append([p.grad.cpu().numpy() for p in net.parameters()])
    for ours, eager in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(ours, eager, rtol=2e-3, atol=2e-4)
