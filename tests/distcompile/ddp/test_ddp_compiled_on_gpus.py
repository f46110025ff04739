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
from tests.fake_cuda import FakeCuda
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_nccl import nccl_ranks

triton = pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x: Any) -> Any:
        return self.c(self.b(self.a(x).tanh()).tanh())


def train(c: Communicator, device: str) -> dict[str, Any]:
    """Gradients of the second step, and what the parameters are then."""
    with use_communicator(c):
        model = DDP(Net().to(device), bucket_cap_mb=100 / 2**20)
        optimizer = dc.optim.SGD(model.parameters(), lr=0.3)
        call = dc.compile(model, backend="codegen")
        for step in range(2):
            optimizer.zero_grad()
            call(dc.full((4, 5), 0.1 * (c.rank + step)).to(device)).square().mean().backward()
            optimizer.step()
        assert len(model.bucket_plan.buckets) == 3
        assert model._strategy.boundary == "notification"
        named = dict(model.module.named_parameters())
        return {n: p.detach().cpu().numpy() for n, p in named.items()} | {
            f"{n}.grad": p.grad.cpu().numpy() for n, p in named.items() if p.grad is not None
        }


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
