"""GPT-2 (124 M) on GPUs, ours beside PyTorch: the training step, the first step, the process's start to its first loss.

    python benchmarks/gpu/gpt2.py [--ranks 2] [--modes compile,eager] [--rounds 3] [--peer-python PYTHON]

Sides take turns, each in a process of its own (gpt2_side.py), ours with an empty artefact cache in the first round and
a filled one after it; PyTorch's caches likewise. Shown: the median over rounds of each side's median step, the ratio,
its spread over rounds; losses of the first step and the last, peak memory. More ranks: DDP over NCCL, one rank a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from sides import OURS, PEER, Result, Side, measure, peer_version  # noqa: E402

SIDE = str(HERE / "gpt2_side.py")


def side(framework: str, python: str, ranks: int, arguments: list[str], caches: str) -> Side:
    start = {
        OURS: ["-m", "launch", "-n", str(ranks)],
        PEER: ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"],
    }
    command = [python, *(start[framework] if ranks > 1 else []), SIDE, *arguments]
    environment = {
        "XDG_CACHE_HOME": caches,
        "TRITON_CACHE_DIR": f"{caches}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // ranks)),
    }
    return Side(framework, (tuple(command),), tuple(environment.items()))


def line(name: str, rounds: list[Result]) -> str:
    steps, first, last = [r["step_ms"] for r in rounds], rounds[0], rounds[-1]
    spread = f"{min(steps):.2f} to {max(steps):.2f}"
    cold, warm = first["start_to_loss_s"], last["start_to_loss_s"]
    return (
        f"{name:24} step {statistics.median(steps):7.2f} ms ({spread}), first loss after {cold:.1f} s, "
        f"with filled caches {warm:.1f} s, peak {last['peak_gib']:.2f} GiB, losses {last['losses']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--modes", default="compile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no-ddp", action="store_true")
    parser.add_argument("--peer-python", default=sys.executable)
    given = parser.parse_args()
    pythons = {OURS: sys.executable, PEER: given.peer_python}
    version = peer_version(given.peer_python)
    for mode in given.modes.split(","):
        arguments = ["--mode", mode, "--batch", str(given.batch), "--steps", str(given.steps)]
        arguments += ["--no-ddp"] if given.no_ddp else []
        found: dict[str, list[Result]] = {OURS: [], PEER: []}
        with tempfile.TemporaryDirectory() as caches:
            for _ in range(given.rounds):
                for framework, rounds in found.items():
                    kept = f"{caches}/{framework}"
                    os.makedirs(kept, exist_ok=True)
                    rounds.append(measure(side(framework, pythons[framework], given.ranks, arguments, kept), version))
        for framework, rounds in found.items():
            print(line(f"{framework} {mode} x{given.ranks}", rounds), flush=True)
        ratios = [ours["step_ms"] / peer["step_ms"] for ours, peer in zip(found[OURS], found[PEER], strict=True)]
        print(f"ours / torch {version}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
