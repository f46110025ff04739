"""Saved values that wait in the host's memory, on a real device: the same bits, and less memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from distcompile import nn

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def same_algorithms() -> Iterator[None]:
    """Products are not measured: both sides take what cuBLASLt names first."""
    with config.patch(measure=False):
        yield


def stack(width: int = 512, depth: int = 8) -> nn.Module:
    dc.manual_seed(0)
    layers = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
    return nn.Sequential(*layers).to("cuda")


def batch(seed: int, rows: int = 2048, width: int = 512) -> Any:
    return dc.tensor(np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32), device="cuda")


def trained(net: nn.Module, compiled: Callable[[Any], Any], *, whole: bool) -> list[np.ndarray]:
    """Losses and parameters of some steps, whose losses live on, so that memory comes in turns."""
    optimizer = dc.optim.AdamW(net.parameters(), lr=1e-3)
    call = net if whole else compiled(net)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = call(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = compiled(step) if whole else step
    losses = [run(batch(k)) for k in range(8)]
    return [loss.cpu().numpy() for loss in losses] + [p.detach().cpu().numpy() for p in net.parameters()]


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("whole", [False, True], ids=["apart", "whole"])
def test_steps_have_the_same_bits(mode: str | None, whole: bool) -> None:
    found = [
        trained(stack(), dc.compile(mode=mode, offload=part, fullgraph=True), whole=whole) for part in (0.0, 0.5, 1.0)
    ]
    for goes in found[1:]:
        for a, b in zip(goes, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_values_under_hooks_are_whole() -> None:
    """A hook reads what may still be on its way to the host."""
    found = []
    for part in (0.0, 1.0):
        net = stack()
        call = dc.compile(net, offload=part)
        for k in range(3):
            with dc.autograd.graph.save_on_cpu(pin_memory=True):
                loss = call(batch(k)).square().mean()
            loss.backward()
        found.append([p.grad.cpu().numpy() for p in net.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_peak_is_lower_and_as_planned() -> None:
    peaks, plans = [], []
    for part in (0.0, 0.8):
        net = stack(1024, 16)
        call = dc.compile(net, offload=part)
        for k in range(3):
            net.zero_grad(set_to_none=True)
            dc.cuda.synchronize()
            dc.cuda.reset_peak_memory_stats()
            call(batch(k, 8192, 1024)).square().mean().backward()
            dc.cuda.synchronize()
        peaks.append(dc.cuda.max_memory_allocated())  # parameters, and the working memory that is kept, too
        plans.append(call.explain().entries[0].memory)
        del net, call
        dc.cuda.empty_cache()
    stays, goes = plans
    assert goes.hosted >= 0.6 * stays.saved
    assert goes.peak < 0.75 * stays.peak
    assert peaks[1] < 0.8 * peaks[0], (peaks, plans)
