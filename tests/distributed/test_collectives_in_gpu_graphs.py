"""Collectives of graphs on GPUs that are not there: launched in the middle of one program, waited for by its stream.

Kernels run in Triton's interpreter; NCCL is a stand-in whose collectives move data only when a stream is told to wait
for them: a result that is read too early is the value from before.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from graph_collectives import PROGRAMS, Program

import distcompile as dc
from collectives import Communicator, run_ranks
from collectives.errors import CollectiveMismatchError
from collectives.nccl.work import NcclWork
from compiler_core.config import config
from compiler_core.runtime.launching import Launching
from distcompile import distributed as dist
from distcompile.distributed import _functional_collectives as fc
from tests.fake_cuda import FakeCuda, one_at_a_time
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_nccl import nccl_ranks
from tests.sharing import some

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


@pytest.fixture(autouse=True)
def _interpreted(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Any:
    one_at_a_time(monkeypatch)
    with config.patch(use_cache=False):
        yield


def value_and_gradient(world: Communicator, function: Program, device: str, *, compiled: bool) -> list[Any]:
    with dist.use_communicator(world):
        call = dc.compile(function, fullgraph=True) if compiled else function
        found = []
        for step in range(2):
            rng = np.random.default_rng(7 * step + world.rank)
            data = rng.uniform(-1, 1, (4 * world.world_size, 3)).astype(np.float32)
            x = dc.tensor(data).to(device).requires_grad_()
            out = call(x)
            weight = dc.tensor(rng.uniform(-1, 1, out.numel()).astype(np.float32)).to(device)
            (out * weight.reshape(out.shape)).sum().backward()
            assert x.grad is not None
            found += [out.detach().cpu().numpy(), x.grad.cpu().numpy()]
        return found


@pytest.mark.parametrize("function", some(PROGRAMS, 4), ids=lambda function: function.__name__)
def test_values_and_gradients_are_those_of_eager_code_on_cpus(function: Program) -> None:
    expected = run_ranks(2, lambda c: value_and_gradient(c, function, "cpu", compiled=False))
    found = nccl_ranks(2, lambda c: value_and_gradient(c, function, "cuda", compiled=True), timeout_s=60)
    for mine, theirs in zip(found, expected, strict=True):
        for got, wanted in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_kernels_run_between_a_launch_and_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host waits for nobody in between, and both parts of a launch, of 5 and 7 elements, arrive."""
    happened: dict[int, list[str]] = defaultdict(list)  # of each thread, which is a rank

    def note(kind: type, method: str, what: str) -> None:
        before = getattr(kind, method)

        def noted(*given: Any) -> Any:
            happened[threading.get_ident()].append(what)
            return before(*given)

        monkeypatch.setattr(kind, method, noted)

    note(FakeCuda, "_cuLaunchKernel", "kernel")
    note(NcclWork, "release", "launch")
    note(NcclWork, "wait", "wait")

    def body(world: Communicator, device: str) -> Any:
        def step(x: Any, y: Any, z: Any) -> Any:
            a, b = fc.all_reduce(x.exp(), "sum"), fc.all_reduce(y.exp(), "sum")
            return a.sin(), b.cos(), (z @ z).tanh().sum(0) @ z

        with dist.use_communicator(world):
            compiled = dc.compile(step, fullgraph=True)
            for k in range(2):
                happened[threading.get_ident()].clear()
                given = (dc.arange(n) * 0.1 + k + world.rank for n in (5, 7, 16))
                x, y, z = (one.to(device) for one in given)
                found = compiled(x, y, z.reshape(4, 4))
            return [one.cpu().numpy() for one in found], threading.get_ident()

    expected = run_ranks(2, lambda c: body(c, "cpu"))
    found = nccl_ranks(2, lambda c: body(c, "cuda"), timeout_s=60)
    for (mine, thread), (theirs, _) in zip(found, expected, strict=True):
        for got, wanted in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        ours = happened[thread]
        assert (ours.count("launch"), ours.count("wait")) == (1, 1), "one launch of two parts"
        between = ours[ours.index("launch") + 1 : ours.index("wait")]
        assert between.count("kernel"), ours


def test_when_they_moved_is_told_by_the_device() -> None:
    def body(world: Communicator) -> Any:
        with dist.use_communicator(world):
            compiled = dc.compile(lambda x: fc.all_reduce(x.exp(), "sum").sin(), fullgraph=True)
            with dist.watch_collectives() as seen:
                for k in range(3):
                    compiled((dc.ones(300) * k).to("cuda"))
            return seen

    for seen in nccl_ranks(2, body, timeout_s=60):
        (row,) = seen.rows
        assert (row.collective, row.nbytes) == ("all_reduce sum", 1200)
        assert 0 <= row.ready_ms <= row.start_ms <= row.end_ms
        assert row.wait_ms >= 0
        assert len(next(iter(seen.calls.values()))) == 3


def test_ranks_whose_graphs_differ_are_told() -> None:
    def body(world: Communicator) -> None:
        def step(x: Any) -> Any:
            return fc.all_reduce(x.exp() if world.rank else dc.cat([x, x]), "sum").sin()

        with dist.use_communicator(world), pytest.raises(CollectiveMismatchError, match="all_reduce"):
            dc.compile(step, fullgraph=True)(dc.ones(5).to("cuda")).cpu()

    nccl_ranks(2, body, timeout_s=10)


def test_what_an_executable_does_not_know_of_its_memory_is_not_promised() -> None:
    """Python 3.12 asks the class, not the object, whether it has what `Planned` names."""
    assert not {"output_metas", "working_nbytes"} & set(dir(Launching))
