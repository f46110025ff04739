"""ResNet-50 on a GPU, ours beside PyTorch: the training step, batch 256 of 224 x 224, bf16 autocast, channels last.

    python benchmarks/gpu/resnet.py [--modes compile,eager] [--rounds 3] [--peer-python PYTHON]

Sides take turns, each in a process of its own (resnet_side.py), ours with an empty artefact cache in the first round
and a filled one after it; PyTorch's caches likewise. Shown: what gpt2.py shows, and the time that the host takes to
enqueue a step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from gpt2 import line, side  # noqa: E402
from sides import OURS, PEER, Result, measure, peer_version  # noqa: E402

SIDE = str(HERE / "resnet_side.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default="compile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--peer-python", default=sys.executable)
    given = parser.parse_args()
    pythons = {OURS: sys.executable, PEER: given.peer_python}
    version = peer_version(given.peer_python)
    for mode in given.modes.split(","):
        arguments = ["--mode", mode, "--batch", str(given.batch), "--steps", str(given.steps)]
        found: dict[str, list[Result]] = {OURS: [], PEER: []}
        with tempfile.TemporaryDirectory() as caches:
            for _ in range(given.rounds):
                for framework, rounds in found.items():
                    kept = f"{caches}/{framework}"
                    os.makedirs(kept, exist_ok=True)
                    made = side(framework, pythons[framework], 1, arguments, kept, script=SIDE)
                    rounds.append(measure(made, version))
        for framework, rounds in found.items():
            host = statistics.median(r["host_ms"] for r in rounds)
            print(f"{line(f'{framework} {mode}', rounds)}, host {host:.1f} ms", flush=True)
        ratios = [ours["step_ms"] / peer["step_ms"] for ours, peer in zip(found[OURS], found[PEER], strict=True)]
        print(f"ours / torch {version}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
