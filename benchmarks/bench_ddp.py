"""Ranks: a training step, the same without communication, and communication alone. Rank 0 prints one JSON line.

    distcompile-run -n 2 bench_ddp.py MODEL eager|compile BUCKET_MB [--repeats N]
    BENCH_FRAMEWORK=torch torchrun --nproc-per-node 2 bench_ddp.py MODEL eager|compile BUCKET_MB [--repeats N]

compute: the same step of a model that is not wrapped. exposed = step - compute, so it also holds copies, rank skew and
stolen cores. Communication alone: the gradients' bytes, all-reduced in buckets of the same size. All times are means
over the ranks of each rank's median.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

from framework import NAME, World, torch
from models import Case, make
from timing import repeat_ms, seconds, summary


def training_step(model: Any, case: Case, mode: str) -> Callable[[], None]:
    """zero_grad, forward, backward, optimizer step of `model`, which is the case's or wraps it."""
    optimizer = case.optimizer(model.parameters())
    function = torch.compile(model) if mode == "compile" else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        function(*case.batch).backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("mode", choices=("eager", "compile"))
    parser.add_argument("bucket_mb", type=float)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    world = World()
    case = make(options.model)
    nbytes = bucket_sizes(case.gradient_nbytes, options.bucket_mb)
    model = torch.nn.parallel.DistributedDataParallel(case.model, bucket_cap_mb=options.bucket_mb)
    step = training_step(model, case, options.mode)
    alone = make(options.model)
    step_alone = training_step(alone.model, alone, options.mode)
    first_s = seconds(step)
    steps: list[float] = []
    computes: list[float] = []
    half = max(1, options.repeats // 2)
    for _ in range(2):  # interleaved, so that drift hits both
        steps += repeat_ms(step, half, before=world.barrier)
        computes += repeat_ms(step_alone, half, before=world.barrier)
    comms = repeat_ms(world.all_reduce_all(nbytes), half, before=world.barrier)
    step_ms, compute_ms, comm_ms = world.means([statistics.median(t) for t in (steps, computes, comms)])
    if world.rank == 0:
        result = {"framework": NAME, "model": options.model, "mode": options.mode, "bucket_mb": options.bucket_mb}
        result |= {"ranks": world.size, "gradient_mb": round(case.gradient_nbytes / 2**20, 2), "buckets": len(nbytes)}
        result |= {"first_s": round(first_s, 2), **summary(steps, "step")}
        result |= {"step_ms": round(step_ms, 2), "compute_ms": round(compute_ms, 2), "comm_ms": round(comm_ms, 2)}
        result |= {"exposed_ms": round(step_ms - compute_ms, 2)}
        print(json.dumps(result), flush=True)
    world.close()


def bucket_sizes(nbytes: int, bucket_mb: float) -> list[int]:
    """Bytes of each bucket when `nbytes` are cut every `bucket_mb` MiB."""
    cap = max(4, int(bucket_mb * 2**20) // 4 * 4)
    return [min(cap, nbytes - start) for start in range(0, nbytes, cap)]


if __name__ == "__main__":
    main()
