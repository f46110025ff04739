"""Models through other people's engines, beside our own code generator, in one process: forward, and a training step.

    OMP_NUM_THREADS=1 python benchmarks/engines.py [--models gpt resnet] [--engines onnxrt openvino] [--repeats 15]

The backends are called in turn. A line a model gives the median time of each in milliseconds, and the median of the
ratios ours / theirs of the turns (above 1: the engine is faster). Results are compared first.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any

from framework import torch
from models import make
from timing import seconds

OURS = "inductor"


def forward(backend: str, model: Any, batch: Any) -> Callable[[], float]:
    run = torch.compile(model, backend=backend, fullgraph=True)

    @torch.no_grad()
    def call() -> float:
        return float(run(*batch).sum())

    return call


def step(backend: str, model: Any, batch: Any) -> Callable[[], float]:
    """A forward and a backward; the parameters stay."""
    run = torch.compile(model, backend=backend, fullgraph=True)

    def call() -> float:
        for parameter in model.parameters():
            parameter.grad = None
        loss = run(*batch).sum()
        loss.backward()
        return float(loss.detach())

    return call


def measured(kind: Callable[..., Callable[[], float]], name: str, engines: list[str], repeats: int) -> str:
    case = make(name)
    model = case.model.eval()
    runs = {backend: kind(backend, model, case.batch) for backend in (OURS, *engines)}
    results = {backend: run() for backend, run in runs.items()}
    assert max(results.values()) - min(results.values()) < 1e-3 * (1 + abs(results[OURS])), results
    times: dict[str, list[float]] = {backend: [] for backend in runs}
    for _ in range(repeats):
        for backend, run in runs.items():
            times[backend].append(seconds(run) * 1e3)
    shown = [f"{OURS} {statistics.median(times[OURS]):.2f} ms"]
    for backend in engines:
        ratio = statistics.median(a / b for a, b in zip(times[OURS], times[backend]))
        shown.append(f"{backend} {statistics.median(times[backend]):.2f} ms ({ratio:.2f})")
    return f"{name} {kind.__name__}: {', '.join(shown)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gpt", "resnet"])
    parser.add_argument("--engines", nargs="+", default=["onnxrt", "openvino"])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*is run by our own code")
    for name in arguments.models:
        for kind in (forward, step):
            print(measured(kind, name, arguments.engines, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
