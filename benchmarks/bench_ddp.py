"""Ranks: a training step under DDP, the same without communication, and communication alone. One JSON line by rank 0.

    distcompile-run -n 2 bench_ddp.py MODEL eager|compile BUCKET_MB|default [options]
    BENCH_FRAMEWORK=torch torchrun --nproc-per-node 2 bench_ddp.py MODEL eager|compile BUCKET_MB|default [options]

--hook bf16: the bf16 communication hook. --plan auto, --overlap step: ours only. --only-step: neither of the others.
Steps are timed in trains of several, with no barrier inside, that end when every parameter can be read: what a step
leaves to the next one is paid within the train. compute: the same step of a model that is not wrapped.
exposed = step - compute, so it also holds copies, rank skew and stolen cores. Communication alone: the gradients'
bytes, all-reduced in buckets of the same size. All times are means over the ranks of each rank's median.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
from collections.abc import Callable
from typing import Any

from framework import NAME, World, identity, torch
from models import Case, make
from timing import seconds, summary, train_ms


def training_step(model: Any, case: Case, mode: str) -> Callable[[], None]:
    """zero_grad, forward, backward, optimizer step of `model`, which is the case's or wraps it."""
    optimizer = case.optimizer(model.parameters())
    function = torch.compile(model) if mode == "compile" else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        function(*case.batch).backward()
        optimizer.step()

    return step


def settle(model: Any) -> Callable[[], None]:
    """Reads a value of every parameter: returns when nothing is on its way to one."""
    parameters = list(model.parameters())

    def read() -> None:
        for parameter in parameters:
            parameter.detach().reshape(-1)[:1].tolist()

    return read


def wrap(case: Case, options: argparse.Namespace) -> Any:
    """The case's model under DDP, as the options say."""
    wanted: dict[str, Any] = {}
    if options.bucket_mb != "default":
        wanted["bucket_cap_mb"] = float(options.bucket_mb)
    if options.plan:
        wanted["bucket_plan"] = options.plan
    if options.overlap:
        wanted["overlap"] = options.overlap
    model = torch.nn.parallel.DistributedDataParallel(case.model, **wanted)
    if options.hook == "bf16":
        hooks = importlib.import_module(f"{NAME}.distributed.algorithms.ddp_comm_hooks.default_hooks")
        model.register_comm_hook(None, hooks.bf16_compress_hook if NAME == "distcompile" else under_another_name(hooks))
    return model


def under_another_name(hooks: Any) -> Any:
    """torch's bf16 hook: by its own name, torch refuses it on CPUs, though it works there."""
    return lambda state, bucket: hooks.bf16_compress_hook(state, bucket)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("mode", choices=("eager", "compile"))
    parser.add_argument("bucket_mb")
    parser.add_argument("--hook", default="", choices=("", "bf16"))
    parser.add_argument("--plan", default="")
    parser.add_argument("--overlap", default="")
    parser.add_argument("--repeats", type=int, default=20, help="steps timed")
    parser.add_argument("--train", type=int, default=4, help="steps of a train")
    parser.add_argument("--warm-up", type=int, default=4, help="steps not timed")
    parser.add_argument("--only-step", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    world = World()
    case = make(options.model)
    model = wrap(case, options)
    step, done = training_step(model, case, options.mode), settle(model)
    first_s = seconds(step)
    trains = max(2, options.repeats // options.train)
    result: dict[str, Any] = {**identity(), "model": options.model, "mode": options.mode}
    result |= {"bucket_mb": options.bucket_mb, "ranks": world.size, "first_s": round(first_s, 2)}
    result["gradient_mb"] = round(case.gradient_nbytes / 2**20, 2)
    if options.only_step:
        steps = train_ms(step, trains, options.train, done=done, before=world.barrier, warm_up=options.warm_up)
    else:
        steps, result = with_parts(world, options, step, done, result)
    (step_ms,) = world.means([statistics.median(steps)])
    if world.rank == 0:
        result |= {**summary(steps, "step"), "step_ms": round(step_ms, 3)}
        if "compute_ms" in result:
            result["exposed_ms"] = round(step_ms - result["compute_ms"], 3)
        print(json.dumps(result), flush=True)
    world.close()


def with_parts(
    world: World,
    options: argparse.Namespace,
    step: Callable[[], None],
    done: Callable[[], None],
    result: dict[str, Any],
) -> tuple[list[float], dict[str, Any]]:
    """Times of steps, and `result` with compute and communication alone; interleaved, so that drift hits all."""
    alone = make(options.model)
    step_alone, done_alone = training_step(alone.model, alone, options.mode), settle(alone.model)
    cap_mb = 25.0 if options.bucket_mb == "default" else float(options.bucket_mb)
    communicate = world.all_reduce_all(bucket_sizes(alone.gradient_nbytes, cap_mb))
    trains = max(1, options.repeats // options.train // 2)
    steps: list[float] = []
    computes: list[float] = []
    communications: list[float] = []
    for _ in range(2):
        for times, function, end in ((steps, step, done), (computes, step_alone, done_alone)):
            times += train_ms(function, trains, options.train, done=end, before=world.barrier, warm_up=options.warm_up)
        communications += train_ms(communicate, 2, 1, done=world.barrier, before=world.barrier, warm_up=1)
    compute_ms, comm_ms = world.means([statistics.median(computes), statistics.median(communications)])
    return steps, result | {"compute_ms": round(compute_ms, 3), "comm_ms": round(comm_ms, 3)}


def bucket_sizes(nbytes: int, bucket_mb: float) -> list[int]:
    """Bytes of each bucket when `nbytes` are cut every `bucket_mb` MiB."""
    cap = max(4, int(bucket_mb * 2**20) // 4 * 4)
    return [min(cap, nbytes - start) for start in range(0, nbytes, cap)]


if __name__ == "__main__":
    main()
