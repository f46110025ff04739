"""What a training step holds beyond its inputs, parameters and optimizer state: ours and torch.compile's, in MB.

    python benchmarks/memory.py [--peer-python /path/to/python-with-torch] [--only gpt pointwise] [--json FILE]

Every number comes from a process of its own: the case is compiled and warmed up; gradients are dropped, and what is
kept for reuse is given back (by ours: `release_unused`; by both: malloc_trim). What is resident then, the case's
state and the compiler's own memory, is the floor. The number is the peak of resident memory (VmHWM, reset before) over
the next steps, less that floor: saved values, temporaries, results, gradients, and what is kept between steps.
Each side runs twice, and the second run counts: by then compiled code comes from its caches, without a compiler.
Linux only: it reads /proc/self/status.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sides import PEER, PYTHON, Side, measure, ours, peer, peer_version, script

STEPS = 4
CASES = {
    "gpt": "GPT, 4 layers, d=256, 8 x 128 tokens, AdamW",
    "gpt1024": "GPT, 4 layers, d=256, 1 x 1,024 tokens, AdamW",
    "pointwise": "sin(cos(x)) of 10 M floats, forward and backward",
    "mlp": "MLP 784-1024-1024-10, batch 128, SGD with momentum",
    "resnet": "ResNet-18, 32 x 3 x 32 x 32, SGD with momentum",
    "attention": "causal attention, 4 heads of 64, 4,096 tokens",
}


def resident_mb(field: str) -> float:
    """VmRSS or VmHWM."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def give_back() -> None:
    """To the system, all that may be."""
    import ctypes
    import gc

    gc.collect()
    if "distcompile" in sys.modules:
        from compiler_core.runtime.lasting_memory import release_unused

        release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def planned_mb(function: Any) -> dict[str, float]:
    """What our plan of a compiled function says that its steps take."""
    if not hasattr(function, "explain"):
        return {}
    plans = [entry.memory for entry in function.explain().entries]
    return {"planned_mb": round(sum(plan.peak for plan in plans if plan) / (1 << 20), 1)}


def training(name: str) -> tuple[Callable[[], object], Callable[[], object], Any]:
    """A model's step, what drops its gradients, and what is compiled."""
    from framework import torch
    from models import GPT, Case, _adamw, _tokens, make

    if name == "gpt1024":
        torch.manual_seed(0)
        case = Case(GPT(4, 256, 4, 1024, 512), _tokens(1, 1024, 512), _adamw)
    else:
        case = make(name)
    optimizer = case.optimizer(case.model.parameters())
    function = torch.compile(case.model)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        function(*case.batch).backward()
        optimizer.step()

    return step, lambda: optimizer.zero_grad(set_to_none=True), function


def operation(name: str) -> tuple[Callable[[], object], Callable[[], object], Any]:
    """An operation's forward and backward, what drops its gradients, and what is compiled."""
    from framework import F, torch

    if name == "pointwise":
        inputs = [torch.randn(10_000_000, requires_grad=True)]
        function = torch.compile(lambda x: torch.sin(torch.cos(x)))
    else:
        inputs = [torch.randn(1, 4, 4096, 64, requires_grad=True) for _ in range(3)]
        function = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    tangent = torch.randn(*inputs[0].shape)

    def drop() -> None:
        for tensor in inputs:
            tensor.grad = None

    def step() -> None:
        drop()
        function(*inputs).backward(tangent)

    return step, drop, function


def run_side(name: str) -> dict[str, object]:
    """The measurement of one case, in this process."""
    from framework import identity

    step, drop, function = (operation if name in ("pointwise", "attention") else training)(name)
    for _ in range(3):
        step()
    drop()
    give_back()
    floor = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(STEPS):
        step()
    peak = round(resident_mb("VmHWM") - floor, 1)
    return {**identity(), "model": name, "mb": peak, **planned_mb(function)}


def row(name: str, sides: Sequence[Side], version: str) -> dict[str, Any]:
    """Both sides of one case, each twice, the second time with filled caches."""
    found: dict[str, Any] = {"case": name}
    for side in sides:
        measure(side, version)
        measured = measure(side, version)
        found[side.framework] = measured["mb"]
        found |= {key: measured[key] for key in ("planned_mb",) if key in measured}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=CASES, help="measure one case in this process")
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--only", nargs="*", default=[*CASES], choices=CASES)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options.side)), flush=True)
        return
    version = peer_version(options.peer_python) if options.peer_python else ""
    rows = []
    for name in options.only:
        command = script("memory.py", "--side", name)
        sides = [ours(PYTHON, *command)]
        if options.peer_python:
            sides.append(peer(options.peer_python, *command))
        rows.append(row(name, sides, version))
        mine, theirs = rows[-1]["distcompile"], rows[-1].get(PEER)
        beside = "" if theirs is None else f"  torch.compile {theirs:7.1f}  ours/torch {mine / theirs:.2f}"
        planned = f" (planned {rows[-1]['planned_mb']:6.1f})"
        print(f"{CASES[name]:58} ours {mine:7.1f} MB{planned}{beside}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
