"""What gpt2_side.py, resnet_side.py and vit_side.py share: a model as a mode calls it, and its training step, timed.

In: a step, how often. Out: one line of JSON: the first step's time and the median step's, from the host's clock around
a synchronised step, and the host's own share of it; losses; peak memory in GiB, of the first step (which compiles and
measures) and of the others; the process's start to the first loss.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from framework import NAME, F, identity, torch

MODES = ["eager", "compile", "graphs", "whole", "whole-graphs"]


def compiled(model: Any, mode: str) -> Any:
    """`model` as it is called in the step. graphs: launches replayed from CUDA graphs."""
    if mode == "eager" or (mode.startswith("whole") and NAME != "torch"):
        return model
    return torch.compile(model, mode=_replayed(mode))


def whole(step: Callable[[], Any], optimizer: Any, mode: str) -> Callable[[], Any]:
    """`step` as it is called. whole: ours is one graph; PyTorch compiles the model and the optimizer's step."""
    if not mode.startswith("whole"):
        return step
    if NAME == "torch":
        optimizer.step = torch.compile(optimizer.step, mode=_replayed(mode))
        return step
    return torch.compile(step, fullgraph=True, mode=_replayed(mode))  # type: ignore[no-any-return]


def _replayed(mode: str) -> str | None:
    return "reduce-overhead" if mode.endswith("graphs") else None


def step_on_images(run: Any, optimizer: Any, images: Any, classes: Any, mode: str) -> Callable[[], Any]:
    """The training step of a classifier, under bf16 autocast; run: as `compiled` gave it."""

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(images), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return whole(step, optimizer, mode)


def report(step: Callable[[], Any], *, mode: str, world: int, warm: int, steps: int, begun_s: float) -> str:
    """The line. step: gives the loss, a tensor on the device. begun_s: when the process began, by perf_counter."""
    began = time.perf_counter()
    first = step().item()
    torch.cuda.synchronize()
    first_s, since_start_s = time.perf_counter() - began, time.perf_counter() - begun_s
    first_peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    times, host = [], []
    for _ in range(steps):
        began = time.perf_counter()
        loss = step()
        enqueued = time.perf_counter()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
        host.append((enqueued - began) * 1e3)
    found = {
        "mode": mode,
        "world": world,
        "step_ms": round(statistics.median(times), 2),
        "host_ms": round(statistics.median(host), 2),
        "first_step_s": round(first_s, 2),
        "start_to_loss_s": round(since_start_s, 2),
        "losses": [round(first, 4), round(loss.item(), 4)],
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
        "first_peak_gib": round(first_peak / 2**30, 2),
    }
    return json.dumps(identity() | found)
