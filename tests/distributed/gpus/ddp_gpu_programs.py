"""DDP on real GPUs: `python ddp_gpu_programs.py CASE...` under an MPI launcher, one rank a GPU.

Rank 0 prints a line a case: `ok` or `FAIL`, its name, what was seen. Exit code 1 if one failed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import distcompile as dc
from distcompile import distributed as dist
from distcompile import nn, parity
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from distcompile.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from distcompile.nn.parallel import DistributedDataParallel as DDP
from distcompile.tuning.auto import WARM_UP, WATCHED
from distcompile.tuning.tune import TuneOptions, tune

MILLI = 1e3


class Net(nn.Module):
    """Linear layers and a LayerNorm, and a bias that takes part late."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, 8)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).tanh()
        return self.last(self.norm(x))


def batch(step: int, rows: int, width: int = 64) -> Any:
    return dc.from_numpy(np.random.default_rng(step).uniform(-1, 1, (rows, width)).astype(np.float32))


def train(model: Any, ranks: tuple[int, int], steps: int = 4, call: Any = None) -> dict[str, Any]:
    """The state after some steps of this rank's part of the joint batch. ranks: (rank, of how many)."""
    optimizer, (rank, world) = dc.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), ranks
    rows = 32 // world
    for step in range(steps):
        optimizer.zero_grad()
        x = batch(step, 32)[rank * rows : (rank + 1) * rows].cuda()
        (call or model)(x).square().mean().backward()
        optimizer.step()
    return {k: v.cpu().numpy() for k, v in getattr(model, "module", model).state_dict().items()}


def largest_difference(mine: dict[str, Any], theirs: dict[str, Any]) -> float:
    assert mine.keys() == theirs.keys()
    return max(float(np.abs(mine[k] - theirs[k]).max()) for k in mine)


def joined(**options: Any) -> str:
    """Training on the ranks' GPUs is training on one with the joint batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    alone = train(Net().cuda(), (0, 1))
    model = DDP(Net().cuda(), bucket_cap_mb=0.01, **options)
    far = largest_difference(train(model, (rank, world)), alone)
    assert far < 2e-5, far
    return f"{len(model.bucket_plan.buckets)} buckets, largest difference {far:.1e}"


def across() -> str:
    """The same with overlap="step"."""
    return joined(overlap="step")


def compressed() -> str:
    """Gradients travel as bfloat16."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(Net().cuda(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, bf16_compress_hook)
    far = largest_difference(train(model, (rank, world)), train(Net().cuda(), (0, 1)))
    assert 1e-6 < far < 3e-2, far
    return f"largest difference {far:.1e}"


def low_rank() -> str:
    """PowerSGD after two plain steps, of a rank high enough to lose little."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(Net().cuda(), bucket_cap_mb=0.01)
    state = PowerSGDState(None, matrix_approximation_rank=32, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook)
    far = largest_difference(train(model, (rank, world), steps=6), train(Net().cuda(), (0, 1), steps=6))
    assert far < 3e-2, far
    return f"largest difference {far:.1e}"


def replayed() -> str:
    """Compiled with CUDA graphs: the steps that replay one are those of training on one GPU, in order and across."""
    rank, world, said = dist.get_rank(), dist.get_world_size(), []
    alone = train(Net().cuda(), (0, 1), steps=8)
    for overlap in ("backward", "step"):
        model = DDP(Net().cuda(), bucket_cap_mb=0.01, overlap=overlap)
        call = dc.compile(model, mode="reduce-overhead")
        far = largest_difference(train(model, (rank, world), steps=8, call=call), alone)
        assert far < 4e-5, (overlap, far)
        said.append(f"{overlap} {far:.1e}")
    return "; ".join(said)


def planned() -> str:
    """bucket_plan="auto" measures on NCCL, may change the plan, and changes no gradient."""
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = WARM_UP + 2 * WATCHED + 4
    model = DDP(Net().cuda(), bucket_cap_mb=0.01, bucket_plan="auto")
    far = largest_difference(
        train(model, (rank, world), steps=steps, call=dc.compile(model)), train(Net().cuda(), (0, 1), steps=steps)
    )
    assert far < 1e-4, far
    return f"largest difference {far:.1e}, {len(model.bucket_plan.buckets)} buckets"


def tuned() -> str:
    """`distcompile tune` of a model with 270 MB of gradients."""
    model = Net(4096, 4).cuda()
    x = batch(0, 2048, 4096).cuda()
    report = tune(model, (x,), lambda out, x: out.square().mean(), TuneOptions(budget_s=20.0))
    assert report.rows
    return "\n" + str(report)


def accumulated() -> str:
    """no_sync, a hook on a leaf, clipping."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def run(model: Any, ranks: tuple[int, int], no_sync: Callable[[], Any]) -> Any:
        rank, rows = ranks[0], 32 // ranks[1]
        with no_sync():
            model(batch(1, 32)[rank * rows : (rank + 1) * rows].cuda()).square().mean().backward()
        model(batch(2, 32)[rank * rows : (rank + 1) * rows].cuda()).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        inner = getattr(model, "module", model)
        return {"norm": norm.cpu().numpy()} | {n: p.grad.cpu().numpy() for n, p in inner.named_parameters()}

    from contextlib import nullcontext

    alone, model = run(Net().cuda(), (0, 1), nullcontext), DDP(Net().cuda(), bucket_cap_mb=0.01)
    far = largest_difference(run(model, (rank, world), model.no_sync), alone)
    assert far < 2e-5, far
    return f"largest difference {far:.1e}"


def compiled() -> str:
    """distcompile.compile(DDP(model)) on GPUs, by each backend that there is."""
    rank, world = dist.get_rank(), dist.get_world_size()
    alone, said = train(Net().cuda(), (0, 1)), []
    for backend in ("eager", "aot_eager", "codegen"):
        try:
            model = DDP(Net().cuda(), bucket_cap_mb=0.01)
            far = largest_difference(train(model, (rank, world), call=dc.compile(model, backend=backend)), alone)
            said.append(f"{backend} {far:.1e}")
            assert far < 2e-5, said
        except Exception as error:  # noqa: BLE001 - what is not there yet is told
            said.append(f"{backend}: {type(error).__name__}: {str(error)[:300]}")
    return "; ".join(said)


def timed(step: Callable[[], None], repeats: int = 10) -> tuple[float, float]:
    """(host ms, GPU ms) of a step, once it is warm."""
    for _ in range(4):
        step()
    dc.cuda.synchronize()
    dist.barrier()
    first, last = dc.cuda.Event(enable_timing=True), dc.cuda.Event(enable_timing=True)
    first.record()
    began_s = time.perf_counter()
    for _ in range(repeats):
        step()
    host_ms = (time.perf_counter() - began_s) / repeats * MILLI
    last.record()
    last.synchronize()
    return host_ms, first.elapsed_time(last) / repeats


def overlapped() -> str:
    """A step with 270 MB of gradients, beside the same without DDP; and its report."""
    width, lines = 4096, []
    x = batch(0, 2048, width).cuda()
    model = DDP(Net(width, 4).cuda(), bucket_cap_mb=25)

    def step(call: Any) -> None:
        for parameter in call.parameters():
            parameter.grad = None
        call(x).square().mean().backward()

    for name, call in (("DDP", model), ("alone", Net(width, 4).cuda())):  # the wrapped one would be reduced, too
        host_ms, gpu_ms = timed(lambda call=call: step(call))  # type: ignore[misc]
        lines.append(f"{name}: host {host_ms:.2f} ms, step {gpu_ms:.2f} ms")
    step(model)
    dc.cuda.synchronize()
    return "; ".join(lines) + "\n" + str(model.overlap_report())


def parity_holds(backend: str = "codegen") -> str:
    """Gradients against float64, before and after they are reduced, and one GPU with the joint batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    rows = 32 // world
    x = batch(1, 32)[rank * rows : (rank + 1) * rows].cuda()
    report = parity.check(Net().cuda(), x, backend=backend, bucket_cap_mb=0.01)
    assert report.ok, str(report)
    return str(report).splitlines()[-1].strip()[:200]


def compiled_overlapped() -> str:
    """The same compiled: buckets leave in the middle of one program, and of its replay as a CUDA graph."""
    width, said = 4096, []
    x = batch(0, 2048, width).cuda()
    for backend in ("codegen", "cudagraphs"):
        model = DDP(Net(width, 4).cuda(), bucket_cap_mb=25)
        for name, inner in (("DDP", model), ("alone", Net(width, 4).cuda())):
            call = dc.compile(inner, backend=backend)

            def step(call: Any = call, inner: Any = inner) -> None:
                for parameter in inner.parameters():
                    parameter.grad = None
                call(x).square().mean().backward()

            try:
                host_ms, gpu_ms = timed(step)
            except Exception as error:  # noqa: BLE001 - what is not there yet is told
                said.append(f"{backend} {name}: {type(error).__name__}: {str(error)[:300]}")
                continue
            said.append(f"{backend} {name}: host {host_ms:.2f} ms, step {gpu_ms:.2f} ms")
            if name == "DDP":
                said.append(str(model.overlap_report()))
    return "\n".join(said)


RIGHT = (joined, across, compressed, low_rank, accumulated, compiled, replayed, planned, parity_holds)
CASES: dict[str, Callable[[], str]] = {f.__name__: f for f in (*RIGHT, tuned, overlapped, compiled_overlapped)}


def main(names: list[str]) -> int:
    """Run these cases on all ranks."""
    if "DISTCOMPILE_CUDA_DEVICE" not in os.environ:  # as torch scripts do; the launcher has chosen already
        dc.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"))))
    dist.init_process_group("nccl", timeout=60)
    failed = False
    for name in names:
        try:
            state, said = "ok", CASES[name]()
        except Exception:  # noqa: BLE001 - told below
            state, said = "FAIL", traceback.format_exc()[-2500:]
        everyones: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyones, (state, said, dc.cuda.current_device()))
        for rank, (how, text, device) in enumerate(everyones):
            if dist.get_rank() == 0 and (rank == 0 or how != "ok"):
                print(f"{how:>4} {name} (rank {rank}, cuda:{device}): {text}", flush=True)
        failed |= any(how != "ok" for how, *_ in everyones)
    dist.destroy_process_group()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(CASES)))
