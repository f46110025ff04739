"""Saved values in the host's memory on one GPU: step and peak of GPT-2 and ViT-B/16 with parts of them offloaded.

    python benchmarks/gpu/offload.py [--models gpt2,vit] [--parts 0,0.25,0.5,0.9] [--modes compile,whole] [--rounds 2]

Parts take turns, each in a process of its own (gpt2_side.py, vit_side.py) with DISTCOMPILE_OFFLOAD set, all with the
same artefact cache. Shown: what gpt2.py shows. Losses are those of part 0, but for algorithms of products that were
measured anew. A larger batch (--batch) has more to send, and more to compute meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from gpt2 import line, side  # noqa: E402
from sides import OURS, Result, measure  # noqa: E402

BATCHES = {"gpt2": 64, "vit": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt2,vit")
    parser.add_argument("--parts", default="0,0.25,0.5,0.9")
    parser.add_argument("--modes", default="compile,whole")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch", type=int, default=0, help="0: the model's own")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    parts = given.parts.split(",")
    for model in given.models.split(","):
        for mode in given.modes.split(","):
            arguments = ["--batch", str(given.batch or BATCHES[model]), "--mode", mode, "--steps", str(given.steps)]
            for part, rounds in measured(model, arguments, parts, given.rounds).items():
                print(line(f"{model} {mode}, offload={part}", rounds), flush=True)


def measured(model: str, arguments: list[str], parts: list[str], rounds: int) -> dict[str, list[Result]]:
    """Of each part, what its rounds said."""
    found: dict[str, list[Result]] = {part: [] for part in parts}
    with tempfile.TemporaryDirectory() as caches:
        made = side(OURS, sys.executable, 1, arguments, caches, script=str(HERE / f"{model}_side.py"))
        for _ in range(rounds):
            for part, results in found.items():
                told = replace(made, environment=(*made.environment, ("DISTCOMPILE_OFFLOAD", part)))
                results.append(measure(told, ""))
    return found


if __name__ == "__main__":
    main()
