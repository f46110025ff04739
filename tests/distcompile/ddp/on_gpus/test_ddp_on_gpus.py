"""DDP on tensors of GPUs, through stand-ins for CuPy and NCCL: the numbers of the CPU's ranks, and no early read.

The stand-in's streams are lazy (tests/fake_nccl): a gradient that is read before its bucket was waited for is local.
Optimizers run op by op here: compiled, they would want a driver (tests/fake_cuda).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from collectives.nccl.communicator import NcclCommunicator
from compiler_core.tensor.memory.fence import fence_of
from distcompile import distributed as dist
from distcompile import nn, parity
from distcompile.ddp.errors import LedgerError, UnusedParameterError
from distcompile.distributed import use_communicator
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from distcompile.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from distcompile.distributed.algorithms.model_averaging.averagers import average_parameters
from distcompile.distributed.optim import ZeroRedundancyOptimizer
from distcompile.errors import ArgumentError
from distcompile.nn.parallel import DistributedDataParallel as DDP
from distcompile.optim.optimizer import RECENT_STEPS
from distcompile.tuning import auto, measure_gpu
from distcompile.tuning.tune import TuneOptions, tune
from tests.fake_cupy import on_fake_device
from tests.fake_nccl import Fabric, nccl_ranks

T = TypeVar("T")
SMALL_MB = 200 / 2**20
Scene = Callable[[Communicator, str], Any]


def on_gpus(world: int, scene: Callable[[Communicator], T], fabric: Fabric | None = None) -> list[T]:
    def run(communicator: NcclCommunicator) -> T:
        with use_communicator(communicator):
            result = scene(communicator)
        assert communicator.engine is not None, "nothing went over NCCL"
        return result

    with on_fake_device():
        return nccl_ranks(world, run, fabric=fabric, timeout_s=40.0)


def on_cpus(world: int, scene: Callable[[Communicator], T]) -> list[T]:
    def run(communicator: Communicator) -> T:
        with use_communicator(communicator):
            return scene(communicator)

    return run_ranks(world, run)


class Net(nn.Module):
    """Linear layers, a BatchNorm whose statistics travel, and a layer that only some calls use."""

    def __init__(self) -> None:
        super().__init__()
        dc.manual_seed(3)
        self.first, self.norm, self.last = nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7), nn.Linear(7, 3)
        self.extra = nn.Linear(3, 3)

    def forward(self, x: Any, use_extra: bool = True) -> Any:
        y = self.last(self.norm(self.first(x)).tanh())
        return self.extra(y) if use_extra else y


def batch(c: Communicator, step: int, device: str) -> Any:
    rows = np.random.default_rng(100 * step + c.rank).uniform(-1, 1, (4, 5)).astype(np.float32)
    return dc.from_numpy(rows).to(device)


def seen(module: Any) -> dict[str, Any]:
    """Gradients and state, on the CPU."""
    inner = getattr(module, "module", module)
    found = {name: tensor.cpu().numpy() for name, tensor in inner.state_dict().items()}
    found |= {f"{n}.grad": p.grad.cpu().numpy() for n, p in inner.named_parameters() if p.grad is not None}
    return found


def train(c: Communicator, device: str, steps: int = 3, compiled: str = "", **options: Any) -> dict[str, Any]:
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB, **options)
    call = dc.compile(model, backend=compiled) if compiled else model
    optimizer = dc.optim.AdamW(model.parameters(), lr=0.05, fused=False)
    for step in range(steps):
        optimizer.zero_grad()
        call(batch(c, step, device)).square().mean().backward()
        optimizer.step()
    return seen(model)


def accumulate(c: Communicator, device: str) -> dict[str, Any]:
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB)
    optimizer = dc.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=False)
    for step in range(2):
        with model.no_sync():
            model(batch(c, 10 + step, device)).square().mean().backward()
        model(batch(c, step, device)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=bool(step))
    return seen(model)


def unused(c: Communicator, device: str) -> dict[str, Any]:
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB, find_unused_parameters=True)
    for step in range(2):
        model(batch(c, step, device), use_extra=step == 1 and c.rank == 0).square().mean().backward()
    return seen(model)


def uneven(c: Communicator, device: str) -> dict[str, Any]:
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB)
    optimizer = dc.optim.SGD(model.parameters(), lr=0.1, fused=False)
    with model.join():
        for step in range(1 + c.rank):
            optimizer.zero_grad()
            model(batch(c, step, device)).square().mean().backward()
            optimizer.step()
    return seen(model)


def native_hook(c: Communicator, device: str) -> dict[str, Any]:
    return hooked(c, device, bf16_compress_hook)


def python_hook(c: Communicator, device: str) -> dict[str, Any]:
    def hook(state: Any, bucket: Any) -> Any:
        bucket.buffer().mul_(2.0)
        return allreduce_hook(state, bucket)

    return hooked(c, device, hook)


def hooked(c: Communicator, device: str, hook: Any) -> dict[str, Any]:
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB)
    model.register_comm_hook(None, hook)
    model(batch(c, 0, device)).square().mean().backward()
    return seen(model)


def power_sgd(c: Communicator, device: str) -> dict[str, Any]:
    """Low-rank factors, computed where the gradients are."""
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB)
    state = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.1)
    model.register_comm_hook(state, powerSGD_hook)
    for step in range(4):
        model(batch(c, step, device)).square().mean().backward()
    return seen(model)


def averaged(c: Communicator, device: str) -> dict[str, Any]:
    """Parameters that were stepped apart become averages; a group made later."""
    model = Net().to(device)
    model(batch(c, 0, device)).square().mean().backward()
    dc.optim.SGD(model.parameters(), lr=0.1, fused=False).step()
    everyone = dist.new_group(backend=None)
    average_parameters(list(model.parameters()), everyone)
    assert dist.get_backend_config(everyone) == ("cpu:threaded,cuda:nccl" if device == "cuda" else "cpu:threaded")
    dist.all_reduce(dc.ones(1).to(device))
    return {k: v for k, v in seen(model).items() if "norm." not in k and "grad" not in k}


def zero(c: Communicator, device: str) -> dict[str, Any]:
    """An optimizer whose state is spread over the ranks."""
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), dc.optim.AdamW, lr=0.05, fused=False)
    for step in range(2):
        optimizer.zero_grad()
        model(batch(c, step, device)).square().mean().backward()
        optimizer.step()
    optimizer.consolidate_state_dict()
    return seen(model)


def sync_batchnorm(c: Communicator, device: str) -> dict[str, Any]:
    """Statistics over all ranks' batches, on the GPU."""
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(Net().to(device)), bucket_cap_mb=SMALL_MB)
    for step in range(2):
        model(batch(c, step, device)).square().mean().backward()
    return seen(model)


def leaf_hooks(c: Communicator, device: str) -> dict[str, Any]:
    model = DDP(Net().to(device), bucket_cap_mb=SMALL_MB)
    model.module.first.weight.register_hook(lambda g: g * 3)
    for step in range(2):
        model(batch(c, step, device)).square().mean().backward()
    return seen(model)


def collectives(c: Communicator, device: str) -> dict[str, Any]:
    """torch.distributed's functions on tensors."""
    w, r = c.world_size, c.rank

    def full(value: float, *shape: int) -> Any:
        return dc.full(shape, value).to(device)

    x = full(r + 1.0, 2, 3)
    view = x[0]
    dist.all_reduce(x)
    rows = [full(0, 2) for _ in range(w)]
    dist.all_gather(rows, full(r, 2))
    wide = full(0, 2 * w)
    dist.all_gather_into_tensor(wide, full(r, 2))
    part = full(0, 2)
    dist.reduce_scatter_tensor(part, wide, op=dist.ReduceOp.MAX)
    swapped = full(0, w)
    dist.all_to_all_single(swapped, full(r, w))
    listed = [full(0, 1) for _ in range(w)]
    dist.all_to_all(listed, [full(10 * r + k, 1) for k in range(w)])
    gathered = [full(0, 2) for _ in range(w)] if r == 0 else None
    dist.gather(full(r, 2), gathered, dst=0)
    scattered = full(0, 2)
    dist.scatter(scattered, [full(k + 5, 2) for k in range(w)] if r == w - 1 else None, src=w - 1)
    told = full(r, 3)
    dist.broadcast(told, src=w - 1)
    work = dist.all_reduce(summed := full(1.0, 4), async_op=True)
    assert work is not None
    summed_late = work.get_future().then(lambda f: f.value()[0] + 1).wait()
    if w > 1:
        message = full(0, 2)
        request = dist.irecv(message, src=(r + 1) % w)
        dist.send(full(r, 2), dst=(r - 1) % w)
        assert request is not None
        request.wait()
    else:
        message = full(0, 2)
    dist.barrier()
    tensors = [x, view, *rows, wide, part, swapped, *listed, *(gathered or []), scattered, told, summed, summed_late]
    return {str(k): tensor.cpu().numpy() for k, tensor in enumerate([*tensors, message])}


SCENES: dict[str, Scene] = {
    **{scene.__name__: scene for scene in (train, accumulate, unused, uneven, leaf_hooks, collectives, averaged)},
    **{scene.__name__: scene for scene in (native_hook, python_hook, power_sgd, zero, sync_batchnorm)},
    "across the step": lambda c, d: train(c, d, overlap="step"),
    "static graph": lambda c, d: train(c, d, static_graph=True, broadcast_buffers=False),
    "eager backend": lambda c, d: train(c, d, compiled="eager"),
    "aot_eager backend": lambda c, d: train(c, d, compiled="aot_eager"),
}


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_ranks_on_gpus_get_what_ranks_on_cpus_get(scene: Scene, world: int) -> None:
    expected = on_cpus(world, lambda c: scene(c, "cpu"))
    found = on_gpus(world, lambda c: scene(c, "cuda"))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=2e-5, atol=1e-6, err_msg=name)


def test_the_overlap_report_is_of_the_gpus_times() -> None:
    def scene(c: Communicator) -> Any:
        model = DDP(Net().to("cuda"), bucket_cap_mb=SMALL_MB)
        for step in range(2):
            model(batch(c, step, "cuda")).square().mean().backward()
        steps = model._books.recorder.steps()
        report = str(model.overlap_report())
        return len(steps), steps[-1], report, len(model.bucket_plan.buckets)

    for count, step, report, buckets in on_gpus(2, scene):
        assert count == 2
        assert len(step.buckets) == buckets > 1
        assert step.began_s <= step.ended_s <= step.done_s
        for bucket in step.buckets:
            assert step.began_s <= bucket.ready_s <= bucket.launched_s <= bucket.ended_s
            assert bucket.started_s <= bucket.ended_s <= step.done_s + 1e-9
            assert not math.isnan(bucket.waited_s)
        assert "bucket" in report


def test_the_host_waits_for_no_gpu_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fake_cupy.array import ndarray
    from tests.fake_nccl.streams import Runtime

    waits: list[str] = []
    fetch, synchronize = ndarray.get, Runtime.synchronize

    def scene(c: Communicator) -> None:
        model = DDP(Net().to("cuda"), bucket_cap_mb=SMALL_MB)
        optimizer = dc.optim.SGD(model.parameters(), lr=0.1, fused=False)
        inputs = [batch(c, step, "cuda") for step in range(2)]
        model(inputs[0]).square().mean().backward()  # kernels are compared once, when they are first used
        optimizer.step()
        c.barrier()
        with monkeypatch.context() as patched:
            patched.setattr(ndarray, "get", lambda *a, **k: (waits.append("get"), fetch(*a, **k))[1])
            patched.setattr(Runtime, "synchronize", lambda *a: (waits.append("synchronize"), synchronize(*a))[1])
            for x in inputs:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
        c.barrier()

    on_gpus(1, scene)
    assert waits == []


def test_what_cannot_be_is_refused_with_a_name() -> None:
    def scene(c: Communicator) -> None:
        mixed = Net()
        mixed.last.to("cuda")
        with pytest.raises(ArgumentError, match=r"(?s)trained parameters are on one device.*cpu.*cuda:0"):
            DDP(mixed)
        with pytest.raises(UnusedParameterError):
            DDP(Net().to("cuda"))(batch(c, 0, "cuda"), use_extra=False).sum().backward()

    on_gpus(1, lambda c: scene(c) or dist.all_reduce(dc.ones(1, device="cuda")))

    def without_nccl(c: Communicator) -> None:
        with pytest.raises(ArgumentError, match=r"(?s)on cuda:0.*no transport.*threaded"):
            DDP(Net().to("cuda"))

    with on_fake_device():
        on_cpus(1, without_nccl)


def test_inputs_go_to_the_device_that_is_named_and_a_module_may_move_later() -> None:
    def scene(c: Communicator) -> list[float]:
        model = DDP(Net().to("cuda"), device_ids=[0])
        loss = model(batch(c, 0, "cpu")).square().mean()
        loss.backward()
        with pytest.raises(ArgumentError, match=r"(?s)name the one GPU.*\[0\].*\[1\]"):
            DDP(Net().to("cuda"), device_ids=[1])
        later = DDP(Net())
        later.cuda()
        other = later(batch(c, 0, "cuda")).square().mean()
        other.backward()
        return [loss.item(), other.item(), *(float(m.module.last.weight.grad.sum()) for m in (model, later))]

    first, second = on_gpus(2, scene)
    assert first[2:] == second[2:]
    np.testing.assert_allclose(first[0::2], first[1::2])


def test_a_hook_of_a_module_that_moved_after_it_was_wrapped_divides_once() -> None:
    def scene(c: Communicator) -> dict[str, Any]:
        model = DDP(Net(), bucket_cap_mb=SMALL_MB)
        model.register_comm_hook(None, bf16_compress_hook)
        model.cuda()
        model(batch(c, 0, "cuda")).square().mean().backward()
        return seen(model)

    expected = on_gpus(2, lambda c: native_hook(c, "cuda"))
    for mine, theirs in zip(on_gpus(2, scene), expected, strict=True):
        for name in theirs:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-2, atol=1e-4, err_msg=name)


def test_the_last_bucket_is_waited_for_by_who_needs_it_first() -> None:
    """Also with overlap="backward": by the optimizer after its other updates, by any reader, by another stream."""

    def scene(c: Communicator) -> list[list[str]]:
        model = DDP(Net().to("cuda"), bucket_cap_mb=SMALL_MB)
        named = dict(model.module.named_parameters())
        optimizer = dc.optim.SGD(model.parameters(), lr=0.1, fused=False)

        def waiting() -> list[str]:
            cells = [(name, cell) for name, p in named.items() for cell in (p._cell, p.grad._cell)]
            return sorted({name for name, cell in cells if fence_of(cell) is not None})

        found = []
        for act in (optimizer.step, lambda: named["first.weight"].grad.sum(), dc.cuda.Event().record):
            optimizer.zero_grad()
            model(batch(c, 0, "cuda")).square().mean().backward()
            found.append(waiting())
            c.barrier()  # ranks are threads of one process here: an event settles what waits in all of it
            act()
            assert waiting() == []
            c.barrier()
        assert found[0] == sorted(model.bucket_plan.buckets[-1].names)
        return found

    (first, *_), _ = on_gpus(2, scene)
    assert "first.weight" in first


def test_a_job_on_gpus_tunes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_gpu, "MATRIX", 8)  # a stand-in multiplies slowly
    monkeypatch.setattr(measure_gpu, "MOST_CALLS", 8)
    monkeypatch.setattr(auto, "BUDGET_S", 0.05)

    def scene(c: Communicator) -> tuple[list[str], dict[str, Any]]:
        model = DDP(Net().to("cuda"), bucket_cap_mb=SMALL_MB, bucket_plan="auto")
        optimizer = dc.optim.SGD(model.parameters(), lr=0.1, fused=False)
        for step in range(26):
            optimizer.zero_grad()
            model(batch(c, step, "cuda")).square().mean().backward()
            optimizer.step()
        return [tuning.verdict for tuning in model.tuning], seen(model)

    (first, state), (second, other) = on_gpus(2, scene)
    assert first == second
    assert first
    expected, _ = on_cpus(2, lambda c: train(c, "cpu", steps=0))
    assert state.keys() >= expected.keys()
    for name in state:
        if "norm.running" not in name:
            np.testing.assert_array_equal(state[name], other[name], err_msg=name)


def test_plans_are_measured_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_gpu, "MATRIX", 8)
    monkeypatch.setattr(measure_gpu, "MOST_CALLS", 8)

    def scene(c: Communicator) -> Any:
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).cuda()
        options = TuneOptions(budget_s=0.5, caps_mb=(SMALL_MB,), backend="aot_eager")
        report = tune(model, (batch(c, 0, "cuda"),), None, options)
        return [row.candidate.name for row in report.rows], report.place.transport

    for names, transport in on_gpus(2, scene):
        assert names[0] == "default"
        assert len(names) > 1
        assert transport == "nccl"


def test_forward_and_optimizer_are_timed_by_the_gpu() -> None:
    def scene(c: Communicator) -> list[str]:
        model = DDP(Net().to("cuda"), bucket_cap_mb=SMALL_MB)
        optimizer = dc.optim.SGD(model.parameters(), lr=0.1, fused=False)
        marks = []
        for step in range(2):
            optimizer.zero_grad()
            model(batch(c, step, "cuda")).square().mean().backward()
            optimizer.step()
        for kind, _, began, _ in model._books.recorder._spans:
            if not isinstance(began, float):
                marks.append(kind)
        marks += ["optimizer" for o, began, _ in RECENT_STEPS if o() is optimizer and not isinstance(began, float)]
        report = model.overlap_report(all_ranks=True)
        kinds = {span.kind for span in report.ranks[c.rank].spans}
        assert {"forward", "optimizer"} <= kinds
        return marks

    for marks in on_gpus(2, scene):
        assert marks.count("forward") == 2
        assert marks.count("optimizer") == 2


def test_gradients_that_nobody_reads_keep_no_memory() -> None:
    def scene(c: Communicator) -> list[int]:
        model = DDP(Net().to("cuda"), bucket_cap_mb=SMALL_MB)
        for step in range(5):
            model(batch(c, step, "cuda")).square().mean().backward()
            model.zero_grad(set_to_none=True)
        return [len(pool.buffers) for pool in model._books.layout.pools]

    assert on_gpus(2, scene) == [[1, 1], [1, 1]]


def test_buckets_are_larger_on_gpus() -> None:
    def scene(c: Communicator) -> list[int]:
        return [DDP(nn.Linear(8, 8).to(d))._books.settings.caps.other_nbytes >> 20 for d in ("cpu", "cuda")]

    assert on_gpus(1, scene) == [[2, 25]]


def test_parity_judges_gradients_on_gpus() -> None:
    def scene(c: Communicator) -> str:
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).cuda()
        return str(parity.check(model, batch(c, 0, "cuda"), backend="aot_eager", bucket_cap_mb=SMALL_MB))

    for text in on_gpus(2, scene):
        assert "joined batch: one rank alone gives the same gradients" in text


def test_ranks_that_stepped_apart_are_told() -> None:
    def scene(c: Communicator) -> None:
        model = DDP(Net().to("cuda"))
        optimizer = dc.optim.SGD(model.parameters(), lr=0.1 * (c.rank + 1), fused=False)
        with model.no_sync():
            model(batch(c, 0, "cuda")).sum().backward()
        optimizer.step()
        with pytest.raises(LedgerError, match="different parameters"):
            model(batch(c, 1, "cuda")).sum().backward()

    on_gpus(2, scene)
