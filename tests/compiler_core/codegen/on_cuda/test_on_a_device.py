"""Modes and tools of compiled code on a real device. Numbers are eager's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.log import DistCompileWarning
from distcompile import nn
from tests.fake_cuda.programs import spectral, spectral_step

pytestmark = pytest.mark.gpu


def attending(place: str) -> nn.Module:
    """A layer of a transformer, the same on every device."""
    dc.manual_seed(0)
    return nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True).to(place)


def trained(place: str, run: Callable[[nn.Module], Any], steps: int = 5) -> list[np.ndarray]:
    """Parameters after some steps, of SGD: Adam divides gradients by their size, also those that are only rounding."""
    model = attending(place)
    call, optimizer = run(model), dc.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    for step in range(steps):
        x = dc.linspace(-1, step + 1, 4 * 128 * 64).sin().reshape(4, 128, 64).to(place)
        optimizer.zero_grad()
        call(x).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu().numpy() for parameter in model.parameters()]


def gradients_over_lengths(place: str, run: Callable[[nn.Module], Any]) -> list[np.ndarray]:
    """Of batches that differ in length, the last also in number."""
    model = attending(place)
    call, found = run(model), []
    for number, length in ((4, 96), (4, 80), (4, 112), (4, 77), (4, 41), (3, 96)):
        x = dc.linspace(-1, 1, number * length * 64).sin().reshape(number, length, 64).to(place)
        model.zero_grad()
        call(x).square().mean().backward()
        found += [parameter.grad.detach().cpu().numpy() for parameter in model.parameters()]
    return found


def test_kernels_that_lengths_share_have_eagers_gradients() -> None:
    compiled: list[Any] = []

    def run(model: nn.Module) -> Any:
        compiled.append(dc.compile(model, dynamic=True, fullgraph=True))
        return compiled[0]

    for expected, got in zip(gradients_over_lengths("cpu", lambda model: model), gradients_over_lengths("cuda", run)):
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)
    assert len(compiled[0].explain().entries) == 1


@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_training_in_every_mode_is_eager_training(mode: str | None) -> None:
    expected = trained("cpu", lambda model: model)
    for _ in range(2):  # the second has what the first measured and kept
        found = trained("cuda", lambda model: dc.compile(model, mode=mode))
        for theirs, ours in zip(expected, found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def test_a_profile_has_what_the_step_took() -> None:
    """The rows' times are no more than the clock's, and most of it where the device has much to do."""
    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(4))).cuda()
    call, x = dc.compile(model), dc.ones(4096, 4096, device="cuda")

    def step() -> None:
        call(x).square().mean().backward()

    for _ in range(3):
        step()
    begun, ended = (dc.cuda.Event(enable_timing=True) for _ in "ab")
    with dc.debug.profiling() as profile:
        begun.record()
        for _ in range(5):
            step()
        ended.record()
        dc.cuda.synchronize()
    print(profile)
    took_s, told_s = begun.elapsed_time(ended) * 1e-3, sum(row.seconds for row in profile.rows)
    assert 0.5 * took_s < told_s < 1.05 * took_s
    products = {row.graph: row.calls for row in profile.rows if row.label.startswith("gemm")}
    assert sorted(products.values()) == [4 * 5, 7 * 5]
    assert all(row.copy_share < 1.2 for row in profile.rows if row.nbytes > 1 << 26)


def test_complex_kernels_run_op_by_op() -> None:
    expected = spectral_step(spectral, "cpu")
    with pytest.warns(DistCompileWarning, match="runs op by op: Triton has no complex numbers"):
        found = spectral_step(dc.compile(spectral, fullgraph=True), "cuda")
    for theirs, ours in zip(expected, found, strict=True):
        np.testing.assert_allclose(ours.detach().cpu().numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_profiler_of_calls_has_times_of_the_device() -> None:
    x = dc.ones(2048, 2048, device="cuda")
    call = dc.compile(lambda x: (x @ x).relu().sum())
    call(x)
    activities = [dc.profiler.ProfilerActivity.CPU, dc.profiler.ProfilerActivity.CUDA]
    with dc.profiler.profile(activities=activities) as profile:
        call(x)
        dc.cuda.synchronize()
    assert "CUDA" in profile.key_averages().table()
