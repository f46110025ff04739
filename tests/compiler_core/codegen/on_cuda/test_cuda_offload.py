"""Saved values that wait in the host's memory: the same bits, less memory, whatever the program does in between."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from saving_steps import Graphs, Step, batch, evaluated_between, in_reverse, model, penalty, saved_elsewhere, trained

import distcompile as dc
from compiler_core import cuda
from compiler_core.aot import offload
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.config import config
from compiler_core.errors import BackendError, ConfigError, DeviceError
from compiler_core.runtime.cuda import host_memory
from distcompile import nn
from tests.fake_cuda import FakeCuda

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache", "worth_a_copy"),
]


@pytest.fixture
def worth_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small values travel, too."""
    monkeypatch.setattr(offload, "LEAST_NBYTES", 256)


def saved_on_cpu(call: Any, net: nn.Module) -> None:
    with dc.autograd.graph.save_on_cpu(pin_memory=True):
        loss = call(batch()).square().sum()
    loss.backward()


def twice(call: Any, net: nn.Module) -> None:
    loss = call(batch()).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()


STEPS = [in_reverse, trained, penalty, evaluated_between, saved_elsewhere, saved_on_cpu, twice]


def gradients(step: Step, backend: Any, part: float) -> list[Any]:
    net = model()
    step(dc.compile(net, backend=backend, offload=part, fullgraph=True), net)
    return [p.grad.cpu().numpy() for p in net.parameters()]


@pytest.mark.parametrize("backend", [CudaBackend(90), Graphs()], ids=["launched", "replayed"])
@pytest.mark.parametrize("step", STEPS)
def test_gradients_are_the_same_bits(step: Step, backend: Any, fake_cuda: FakeCuda) -> None:
    stays = gradients(step, backend, 0.0)
    assert not fake_cuda.named("cuMemcpyAsync")
    for part in (0.5, 1.0):
        goes = gradients(step, backend, part)
        assert fake_cuda.named("cuMemcpyAsync")
        assert not fake_cuda.travelling
        for a, b in zip(goes, stays, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_is_planned_is_less_on_the_device(fake_cuda: FakeCuda) -> None:
    plans = []
    for part in (0.0, 0.5):
        net = model()
        call = dc.compile(net, backend=CudaBackend(90), offload=part)
        call(batch()).square().sum().backward()
        plans.append(call.explain().entries[0].memory)
    stays, goes = plans
    assert 0 < goes.hosted == stays.saved - goes.saved
    assert "in the host's memory" in str(goes)
    assert stays.hosted == 0


def whole_step(net: nn.Module, call: Callable[..., Any]) -> list[Any]:
    optimizer = dc.optim.AdamW(net.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    run = call(step)
    losses = [run(batch(k)).item() for k in range(5)]
    return [*losses, *(p.detach().cpu().numpy() for p in net.parameters())]


@pytest.mark.parametrize("backend", [CudaBackend(90), Graphs()], ids=["launched", "replayed"])
def test_a_whole_step_has_the_same_bits(backend: Any, fake_cuda: FakeCuda) -> None:
    stays, goes = (whole_step(model(), dc.compile(backend=backend, offload=part, fullgraph=True)) for part in (0, 1))
    assert fake_cuda.named("cuMemcpyAsync")
    assert not fake_cuda.travelling
    assert isinstance(backend, CudaBackend) or fake_cuda.named("cuGraphLaunch")
    for a, b in zip(goes, stays, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_tangent_alone_and_two_calls_under_way(fake_cuda: FakeCuda) -> None:
    """Parts of a backward read what they need from the host."""
    found = []
    for part in (0.0, 1.0):
        net = model()

        def losses(x: Any, net: nn.Module = net) -> tuple[Any, Any]:
            h = net[:3](x)
            return net[3:](h).square().sum(), (h * h * h).sum()

        call = dc.compile(losses, backend=CudaBackend(90), offload=part)
        first, second = call(batch())
        others = call(batch(1))
        second.backward(retain_graph=True)
        others[0].backward()
        first.backward()
        found.append([p.grad.cpu().numpy() for p in net.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_hooks_keep_values_on_the_device(fake_cuda: FakeCuda) -> None:
    net = model()

    def loss(x: Any) -> Any:
        h = net[0](x)
        h.register_hook(lambda g: g * 2)
        return net[1:](h).square().sum()

    with pytest.warns(UserWarning, match="offload has no effect on loss.*: hooks run"):
        dc.compile(loss, backend=CudaBackend(90), offload=0.5)(batch()).backward()
    assert not fake_cuda.named("cuMemcpyAsync")


def test_a_backend_that_sends_nothing_away_says_so(fake_cuda: FakeCuda) -> None:
    with pytest.warns(UserWarning, match="offload has no effect: backend 'aot_eager'"):
        dc.compile(model(), backend="aot_eager", offload=0.5)(batch()).square().sum().backward()


def test_on_the_cpu_it_has_no_effect_and_says_so() -> None:
    net = nn.Linear(4, 4)
    with pytest.warns(UserWarning, match="offload has no effect on .*: it is the CPU's"):
        dc.compile(net, backend="aot_eager", offload=0.5)(dc.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("part", [-0.1, 1.5, float("nan")])
def test_another_part_is_an_error(part: float) -> None:
    with pytest.raises(ConfigError, match="offload"):
        dc.compile(nn.Linear(2, 2), offload=part)


def test_pinned_memory_comes_again_and_goes(fake_cuda: FakeCuda) -> None:
    net, before = model(), host_memory.held_nbytes()
    call = dc.compile(net, backend=CudaBackend(90), offload=0.5)
    held = []
    with dc.cuda.stream(dc.cuda.Stream()):  # whose blocks are its own
        for _ in range(3):
            call(batch()).square().sum().backward()
            held.append(host_memory.held_nbytes() - before)
    assert held[0] == held[1] == held[2] == call.explain().entries[0].memory.hosted
    dc.cuda.empty_cache()
    assert host_memory.held_nbytes() <= before


def test_a_backward_that_runs_op_by_op_is_given_its_values(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled later than its forward, and in vain."""
    found = []
    for part in (0.0, 1.0):
        net, tried = model(), []

        class Failing(CudaBackend):
            def compile(self, graphs: Any, name: str, tried: list[str] = tried) -> Any:
                if name.endswith("_pruned"):
                    tried.append(name)
                    raise BackendError("no")
                return super().compile(graphs, name)

        def losses(x: Any, net: nn.Module = net) -> tuple[Any, Any]:
            h = net[:3](x)
            return net[3:](h).square().sum(), (h * h * h).sum()

        with config.patch(suppress_errors=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dc.compile(losses, backend=Failing(90), offload=part)(batch())[0].backward()
        found.append([p.grad.cpu().numpy() for p in net.parameters()])
        assert tried
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_where_no_memory_can_be_pinned_an_error_says_so(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> Any:
        raise RuntimeError("cudaErrorMemoryAllocation: out of memory")

    monkeypatch.setattr(cuda.module().cuda, "alloc_pinned_memory", refuse)
    with dc.cuda.stream(dc.cuda.Stream()), pytest.raises(DeviceError, match="pinned memory for saved values"):
        dc.compile(model(), backend=CudaBackend(90), offload=1.0)(batch())
