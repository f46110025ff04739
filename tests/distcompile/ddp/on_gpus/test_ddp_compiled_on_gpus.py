"""Compiled DDP on GPUs that are not there: the launcher with a fake driver, kernels in Triton's interpreter, and NCCL's
stand-in. Buckets leave in the middle of the backward's one program.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from collectives.call import Task
from collectives.nccl.engine import NcclEngine
from compiler_core.config import config
from distcompile import nn
from distcompile.distributed import use_communicator
from distcompile.nn.parallel import DistributedDataParallel as DDP
from tests.fake_cuda import FakeCuda, one_at_a_time
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_nccl import nccl_ranks
from tests.sharing import some

triton = pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x: Any) -> Any:
        return self.c(self.b(self.a(x).tanh()).tanh())


def train(
    c: Communicator,
    device: str,
    backwards: int = 1,
    *,
    hooked: bool = False,
    overlap: str = "backward",
    backend: str = "codegen",
) -> dict[str, Any]:
    """Gradients of the second step, and what the parameters are then. hooked: one leaf's gradient goes to the tape."""
    with use_communicator(c):
        model = DDP(Net().to(device), bucket_cap_mb=100 / 2**20, overlap=overlap)
        optimizer = dc.optim.SGD(model.parameters(), lr=0.3)
        call = dc.compile(model, backend=backend)
        if hooked:
            model.module.b.weight.register_hook(lambda g: 2 * g)
        for step in range(2 if backend == "codegen" else 5):
            optimizer.zero_grad()
            for k in range(backwards):
                call(dc.full((4, 5), 0.1 * (c.rank + step + k)).to(device)).square().mean().backward()
            optimizer.step()
        assert len(model.bucket_plan.buckets) == 3
        assert model._strategy.boundary == ("notification" if backend == "codegen" else "cut")
        named = dict(model.module.named_parameters())
        return {n: p.detach().cpu().numpy() for n, p in named.items()} | {
            f"{n}.grad": p.grad.cpu().numpy() for n, p in named.items() if p.grad is not None
        }


@pytest.mark.parametrize(
    ("backwards", "hooked", "overlap"),
    some([(2, False, "backward"), (1, True, "backward"), (1, False, "step")], 1),
    ids=["accumulated", "hooked", "across the step"],
)
def test_gradients_are_those_of_ranks_on_cpus(
    backwards: int, hooked: bool, overlap: str, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without a place of their own, and where the next forward's program waits for each bucket's update."""
    one_at_a_time(monkeypatch)
    with config.patch(use_cache=False):
        expected = run_ranks(2, lambda c: train(c, "cpu", backwards, hooked=hooked, overlap=overlap))
        found = nccl_ranks(2, lambda c: train(c, "cuda", backwards, hooked=hooked, overlap=overlap), timeout_s=60)
    for mine, theirs in zip(found, expected, strict=True):
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_backward_of_cuda_graphs_is_cut_where_buckets_leave(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    one_at_a_time, run = threading.Lock(), FakeCuda._do

    def alone(self: FakeCuda, effect: Any) -> None:
        def locked() -> None:
            with one_at_a_time:
                effect()

        run(self, locked)

    monkeypatch.setattr(FakeCuda, "_do", alone)
    with config.patch(use_cache=False):
        expected = run_ranks(2, lambda c: train(c, "cpu", backend="cudagraphs"))
        found = nccl_ranks(2, lambda c: train(c, "cuda", backend="cudagraphs"), timeout_s=60)
    for mine, theirs in zip(found, expected, strict=True):
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_buckets_leave_in_the_middle_of_a_program(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)  # ranks are threads, which would set and unset it
    one_at_a_time = threading.Lock()  # Triton's interpreter
    kernels: dict[int, int] = {}  # thread -> launched so far
    launched: list[tuple[int, str, int]] = []
    kernel, launch = FakeCuda._cuLaunchKernel, NcclEngine.launch

    def counted(self: FakeCuda, *arguments: Any) -> Any:
        kernels[threading.get_ident()] = kernels.get(threading.get_ident(), 0) + 1
        with one_at_a_time:
            return kernel(self, *arguments)

    def noted(self: NcclEngine, task: Task) -> Any:
        launched.append((self.rank, task.label, kernels.get(threading.get_ident(), 0)))
        return launch(self, task)

    monkeypatch.setattr(FakeCuda, "_cuLaunchKernel", counted)
    monkeypatch.setattr(NcclEngine, "launch", noted)
    with config.patch(use_cache=False):
        expected = run_ranks(2, lambda c: train(c, "cpu"))
        found = nccl_ranks(2, lambda c: train(c, "cuda"), timeout_s=60)
    for mine, theirs in zip(found, expected, strict=True):
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for rank in range(2):
        buckets = [count for r, label, count in launched if r == rank and label.startswith("bucket")]
        assert len(buckets) == 6
        assert buckets == sorted(buckets)
        assert all(first < last for first, last in (buckets[:3:2], buckets[3::2])), "kernels run between buckets"


def train_whole(c: Communicator, device: str, scaled: bool) -> dict[str, Any]:
    """Parameters, step counts and the scale after four whole steps, one of which is left out if they are scaled."""
    with use_communicator(c):
        model = DDP(Net().to(device), bucket_cap_mb=100 / 2**20)
        optimizer, scaler = dc.optim.AdamW(model.parameters(), lr=0.1), dc.amp.GradScaler(device, 8.0, enabled=scaled)

        @dc.compile(fullgraph=True)
        def step(x: Any) -> None:
            optimizer.zero_grad()
            scaler.scale(model(x).square().mean()).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()

        for k in range(4):
            overflows = scaled and k == 2 and c.rank == 1
            step(dc.full((4, 5), float("inf") if overflows else 0.1 * (c.rank + k)).to(device))
        assert not step.explain().breaks
        report = model.overlap_report()
        assert {row.graph for row in report.rows} == {"the step"}
        assert all(row.ready_ms <= row.start_ms <= row.end_ms for row in report.rows)
        named = dict(model.module.named_parameters())
        counts = [int(state["step"]) for state in optimizer.state.values()]
        return {n: p.detach().cpu().numpy() for n, p in named.items()} | {
            "scale": np.array(scaler.get_scale()), "counts": np.array(counts)
        }  # fmt: skip


@pytest.mark.parametrize("scaled", [False, True])
def test_whole_steps_are_those_of_ranks_on_cpus(
    scaled: bool, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_at_a_time(monkeypatch)
    with config.patch(use_cache=False):
        expected = run_ranks(2, lambda c: train_whole(c, "cpu", scaled))
        found = nccl_ranks(2, lambda c: train_whole(c, "cuda", scaled), timeout_s=60)
    for mine, theirs in zip(found, expected, strict=True):
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)
