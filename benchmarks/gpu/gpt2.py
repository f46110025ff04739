"""GPT-2 (124 M) on GPUs, ours beside PyTorch: the training step, the first step, the process's start to its first loss.

    python benchmarks/gpu/gpt2.py [--ranks 2] [--no-ddp | --both] [--modes compile,eager] [--rounds 3]
                                  [--peer-python PYTHON]

Sides take turns, each in a process of its own (gpt2_side.py), ours with an empty artefact cache in the first round and
a filled one after it; PyTorch's caches likewise. Shown: the median over rounds of each side's median step, the ratio,
its spread over rounds; losses of the first step and the last; peak memory of a step, and of the first one with empty
and with filled caches. More ranks: DDP over NCCL, one rank a GPU;
--both: with DDP and without on the same GPUs, in turn, and what DDP adds to a step.
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


def side(
    framework: str, python: str, ranks: int, arguments: list[str], caches: str, script: str = SIDE
) -> Side:  # fmt: skip
    """One run of `script` by `framework`, with caches of its own."""
    start = {
        OURS: ["-m", "launch", "-n", str(ranks)],
        PEER: ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}"],
    }
    command = [python, *(start[framework] if ranks > 1 else []), script, *arguments]
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
        f"{name:34} step {statistics.median(steps):7.2f} ms ({spread}), first loss after {cold:.1f} s, "
        f"with filled caches {warm:.1f} s, peak {last['peak_gib']:.2f} GiB (first step {first['first_peak_gib']:.2f}, "
        f"with filled caches {last['first_peak_gib']:.2f}), losses {last['losses']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--modes", default="compile")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--no-ddp", action="store_true")
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--peer-python", default=sys.executable)
    given = parser.parse_args()
    pythons = {OURS: sys.executable, PEER: given.peer_python}
    version = peer_version(given.peer_python)
    variants = {"": [], ", no DDP": ["--no-ddp"]} if given.both else {"": ["--no-ddp"] if given.no_ddp else []}
    for mode in given.modes.split(","):
        arguments = ["--mode", mode, "--batch", str(given.batch), "--steps", str(given.steps)]
        found: dict[tuple[str, str], list[Result]] = {(name, way): [] for name in (OURS, PEER) for way in variants}
        with tempfile.TemporaryDirectory() as caches:
            for _ in range(given.rounds):
                for (framework, way), rounds in found.items():
                    kept = f"{caches}/{framework}{way}"
                    os.makedirs(kept, exist_ok=True)
                    run = side(framework, pythons[framework], given.ranks, [*arguments, *variants[way]], kept)
                    rounds.append(measure(run, version))
        for (framework, way), rounds in found.items():
            print(line(f"{framework} {mode} x{given.ranks}{way}", rounds), flush=True)
        for way in variants:
            compared(f"ours / torch {version}{way}", found[OURS, way], found[PEER, way])
        if given.both:
            for framework in (OURS, PEER):
                added = statistics.median(added_by_ddp(found[framework, ""], found[framework, ", no DDP"]))
                print(f"DDP adds to a step of {framework}: {added:.2f} ms")


def compared(name: str, ours: list[Result], theirs: list[Result]) -> None:
    ratios = [mine["step_ms"] / peer["step_ms"] for mine, peer in zip(ours, theirs, strict=True)]
    print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def added_by_ddp(with_ddp: list[Result], without: list[Result]) -> list[float]:
    """Milliseconds a step, round by round."""
    return [one["step_ms"] - other["step_ms"] for one, other in zip(with_ddp, without, strict=True)]


if __name__ == "__main__":
    main()
