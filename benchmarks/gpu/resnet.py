"""Images on a GPU, ours beside PyTorch: the training step of ResNet-50 or ViT-B/16, 224 x 224, bf16 autocast.

    python benchmarks/gpu/resnet.py [--model vit] [--modes compile,eager] [--rounds 3] [--peer-python PYTHON]

resnet: batch 256, channels last, SGD; vit: batch 128, AdamW.
Sides take turns, each in a process of its own (resnet_side.py, vit_side.py), ours with an empty artefact cache in the
first round and a filled one after it; PyTorch's caches likewise. Shown: what gpt2.py shows, and the time that the host
takes to enqueue a step.
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

BATCHES = {"resnet": 256, "vit": 128}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=BATCHES, default="resnet")
    parser.add_argument("--modes", default="compile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=0, help="0: the model's own")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--peer-python", default=sys.executable)
    given = parser.parse_args()
    pythons = {OURS: sys.executable, PEER: given.peer_python}
    version, script = peer_version(given.peer_python), str(HERE / f"{given.model}_side.py")
    for mode in given.modes.split(","):
        arguments = ["--mode", mode, "--batch", str(given.batch or BATCHES[given.model]), "--steps", str(given.steps)]
        found: dict[str, list[Result]] = {OURS: [], PEER: []}
        with tempfile.TemporaryDirectory() as caches:
            for _ in range(given.rounds):
                for framework, rounds in found.items():
                    kept = f"{caches}/{framework}"
                    os.makedirs(kept, exist_ok=True)
                    made = side(framework, pythons[framework], 1, arguments, kept, script=script)
                    rounds.append(measure(made, version))
        for framework, rounds in found.items():
            host = statistics.median(r["host_ms"] for r in rounds)
            print(f"{line(f'{framework} {mode}', rounds)}, host {host:.1f} ms", flush=True)
        ratios = [ours["step_ms"] / peer["step_ms"] for ours, peer in zip(found[OURS], found[PEER], strict=True)]
        print(f"ours / torch {version}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
