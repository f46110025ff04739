"""Training with communication hooks: programs for `ddp_programs.py`, one a hook, which return the parameters.

TOLERANCE: of those whose floats are of 16 bits: torch sums in 16 bits, we in 32.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

STEPS, PER_RANK = 4, 4
SHAPES = ((16, 12), (16,), (8, 16), (8,), (1, 8), (1,))
TOLERANCE = {"hook fp16": 2e-3, "hook bf16": 2e-2, "hook fp16 around custom": 2e-3}
Hook = tuple[Any, Any] | None  # state, hook


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


def custom_hook(side: Any) -> Hook:
    """Twice the average: by the buffer, its gradients' views, and a chain of futures."""
    dist = side.dist

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # torch looks at annotations
        state["seen"].append([bucket.index(), bucket.is_last(), len(bucket.parameters())])
        for gradient, parameter in zip(bucket.gradients(), bucket.parameters()):
            assert gradient.shape == parameter.shape
            gradient.mul_(2.0)
        buffer = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(buffer, async_op=True).get_future().then(lambda future: future.value()[0])

    return {"seen": []}, hook


def algorithms(side: Any, name: str) -> Any:
    return importlib.import_module(f"{side.dist.__name__}.algorithms.ddp_comm_hooks.{name}")


def default(name: str) -> Callable[[Any], Hook]:
    return lambda side: (None, getattr(algorithms(side, "default_hooks"), name))


def bf16(side: Any) -> Hook:
    """torch's hook under another name: by its own, torch refuses it on CPUs."""
    hook = algorithms(side, "default_hooks").bf16_compress_hook
    return None, hook if side.torch.__name__ == "distcompile" else lambda state, bucket: hook(state, bucket)


def fp16_around_custom(side: Any) -> Hook:
    state, hook = custom_hook(side)  # type: ignore[misc]
    return state, algorithms(side, "default_hooks").fp16_compress_wrapper(hook)


def power(**options: Any) -> Callable[[Any], Hook]:
    """PowerSGD; ours draws its first Qs as torch does, if torch is there, so that results can be compared."""
    options |= {"start_powerSGD_iter": 2, "min_compression_rate": 1}

    def make(side: Any) -> Hook:
        found = algorithms(side, "powerSGD_hook")
        if side.torch.__name__ == "torch":
            return found.PowerSGDState(None, **options), found.powerSGD_hook
        judge = importlib.import_module("torch")

        class State(found.PowerSGDState):  # type: ignore[misc, name-defined]
            def random_qs(self, shapes: Any, dtype: Any) -> Any:
                generator = judge.Generator().manual_seed(self.rng.randint(1_000_000_000))  # ranks may be threads
                return [judge.randn(1, *shape, generator=generator).numpy()[0].astype(dtype) for shape in shapes]

        return State(None, **options), found.powerSGD_hook

    return make


def post_local(*, alone: bool, averages: bool) -> Callable[[Any], Hook]:
    def make(side: Any) -> Hook:
        group = [side.dist.new_group([rank]) for rank in range(side.dist.get_world_size())][side.rank]
        found = algorithms(side, "post_localSGD_hook")
        return found.PostLocalSGDState(None, group if alone else None, 2, averages), found.post_localSGD_hook

    return make


HOOKS: dict[str, Callable[[Any], Hook]] = {
    "none": lambda side: None,
    "allreduce": default("allreduce_hook"),
    "fp16": default("fp16_compress_hook"),
    "bf16": bf16,
    "custom": custom_hook,
    "fp16 around custom": fp16_around_custom,
    "powerSGD rank 1": power(matrix_approximation_rank=1),
    "powerSGD rank 3, cold": power(matrix_approximation_rank=3, warm_start=False),
    "powerSGD rank 2, no feedback": power(matrix_approximation_rank=2, use_error_feedback=False),
    "post local": post_local(alone=True, averages=True),
    "post local, no averages": post_local(alone=False, averages=False),
}


def program(name: str) -> Callable[[Any], Any]:
    def run(side: Any) -> Any:
        model, hook = make_model(side.torch), HOOKS[name](side)
        call, ddp = side.wrap(model)
        if hook is not None:
            ddp.register_comm_hook(*hook)
        optimizer = side.torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        rng = np.random.default_rng(1 + side.rank)
        for _ in range(STEPS):
            batch = side.torch.from_numpy(rng.standard_normal((PER_RANK, 12)).astype(np.float32))
            optimizer.zero_grad()
            call(batch).square().mean().backward()
            optimizer.step()
        return [p.detach().numpy().tolist() for p in model.parameters()]

    run.__name__ = f"hook {name}"
    return run


PROGRAMS = [program(name) for name in HOOKS]
