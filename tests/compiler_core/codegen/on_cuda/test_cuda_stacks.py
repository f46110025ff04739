"""Saved values in one block, as programs use them: several forwards before their backwards, hooks, losses apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from saving_steps import Graphs, Step, batch, evaluated_between, in_reverse, model, penalty, saved_elsewhere, trained

import distcompile as dc
from compiler_core.codegen.cuda_backend import CudaBackend
from distcompile import nn
from tests.fake_cuda import FakeCuda

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]


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
