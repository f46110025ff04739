"""Training with communication hooks, written once and run by torch's DDP (gloo) and by ours, eager and compiled.

As a script: `hook_programs.py torch RANK WORLD STORE OUT` or, under the launcher, `hook_programs.py ours OUT`:
OUT.RANK receives JSON: for each hook the model's parameters after a few steps.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

STEPS, PER_RANK = 4, 4
SHAPES = ((16, 12), (16,), (8, 16), (8,), (1, 8), (1,))


def values() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) * 0.5 for shape in SHAPES]


def make_model(torch: Any) -> Any:
    """Three linear layers with the same parameters everywhere."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values()):
            parameter.copy_(torch.from_numpy(value))
    return model


def custom_hook(torch: Any, dist: Any) -> Any:
    """Twice the average: by the buffer, its gradients' views, and a chain of futures."""

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # torch looks at annotations
        state["seen"].append([bucket.index(), bucket.is_last(), len(bucket.parameters())])
        for gradient, parameter in zip(bucket.gradients(), bucket.parameters()):
            assert gradient.shape == parameter.shape
            gradient.mul_(2.0)
        buffer = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(buffer, async_op=True).get_future().then(lambda future: future.value()[0])

    return {"seen": []}, hook


def hooks(torch: Any, dist: Any, package: str) -> dict[str, Any]:
    """Name -> (state, hook), in the order in which they are run."""
    folder = f"{package}.algorithms.ddp_comm_hooks"
    default = importlib.import_module(f"{folder}.default_hooks")
    power = importlib.import_module(f"{folder}.powerSGD_hook")
    local = importlib.import_module(f"{folder}.post_localSGD_hook")
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]

    def low_rank(**options: Any) -> Any:
        return make_state(torch, power, package, start_powerSGD_iter=2, min_compression_rate=1, **options)

    return {
        "none": None,
        "allreduce": (None, default.allreduce_hook),
        "fp16": (None, default.fp16_compress_hook),
        "bf16": (None, default.bf16_compress_hook if torch.__name__ == "distcompile" else renamed(default)),
        "custom": custom_hook(torch, dist),
        "fp16 around custom": (custom := custom_hook(torch, dist))[:1] + (default.fp16_compress_wrapper(custom[1]),),
        "powerSGD rank 1": (low_rank(matrix_approximation_rank=1), power.powerSGD_hook),
        "powerSGD rank 3, cold": (low_rank(matrix_approximation_rank=3, warm_start=False), power.powerSGD_hook),
        "powerSGD rank 2, no feedback": (
            low_rank(matrix_approximation_rank=2, use_error_feedback=False), power.powerSGD_hook,
        ),
        "post local": (local.PostLocalSGDState(None, alone, 2), local.post_localSGD_hook),
        "post local, no averages": (local.PostLocalSGDState(None, None, 2, False), local.post_localSGD_hook),
    }  # fmt: skip


def renamed(default: Any) -> Any:
    """torch's bf16 hook under another name: by its own, torch refuses it on CPUs."""
    return lambda state, bucket: default.bf16_compress_hook(state, bucket)


def make_state(torch: Any, power: Any, package: str, **options: Any) -> Any:
    """PowerSGD's state; ours draws its first Qs as torch does, if torch is there, so that results can be compared."""
    if package.startswith("torch"):
        return power.PowerSGDState(None, **options)
    judge = importlib.import_module("torch")

    class State(power.PowerSGDState):  # type: ignore[misc]
        def random_qs(self, shapes: Any, dtype: Any) -> Any:
            generator = judge.Generator().manual_seed(self.rng.randint(1_000_000_000))  # ranks may be threads
            return [judge.randn(1, *shape, generator=generator).numpy()[0].astype(dtype) for shape in shapes]

    return State(None, **options)


def run(torch: Any, dist: Any, package: str, wrap: Any) -> dict[str, Any]:
    """Train with every hook. wrap(model) -> (what is called, what hooks are registered on)."""
    results: dict[str, Any] = {}
    for name, hook in hooks(torch, dist, package).items():
        model = make_model(torch)
        call, ddp = wrap(model)
        if hook is not None:
            ddp.register_comm_hook(*hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        rng = np.random.default_rng(1 + dist.get_rank())
        for _ in range(STEPS):
            batch = torch.from_numpy(rng.standard_normal((PER_RANK, 12)).astype(np.float32))
            optimizer.zero_grad()
            call(batch).square().mean().backward()
            optimizer.step()
        results[name] = [p.detach().numpy().tolist() for p in model.parameters()]
    return results


def main() -> None:
    if sys.argv[1] == "torch":
        rank, world, store, out = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
        torch, package = importlib.import_module("torch"), "torch.distributed"
        dist = importlib.import_module(package)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    else:
        torch, package, out = importlib.import_module("distcompile"), "distcompile.distributed", sys.argv[2]
        dist = importlib.import_module(package)
        dist.init_process_group(timeout=60)

    def eager(model: Any) -> Any:
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        return ddp, ddp

    def compiled(model: Any) -> Any:
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        return torch.compile(ddp), ddp

    results = {"eager": run(torch, dist, package, eager)}
    if sys.argv[1] == "ours":
        results["compiled"] = run(torch, dist, package, compiled)
    Path(f"{out}.{dist.get_rank()}").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
