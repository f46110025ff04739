"""Runs ours and the peer's side interleaved, and reports ratios of medians with their spread.

    python benchmarks/run.py [--peer-python /path/to/python-with-torch] [--what ddp,single,cold,import] [--rounds 3]
                             [--models mlp,gpt] [--bucket-mb 25] [--json FILE]

A round runs every side once, in fresh processes, one after the other. A line gives each side's median over the rounds,
and the median, least and greatest of the rounds' ratios peer/ours (above 1: ours is faster). Without --peer-python
only ours is measured. OMP_NUM_THREADS=1 and one core a rank, on both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import machine

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 900


@dataclass(frozen=True)
class Measure:
    """One thing measured on both sides. key: the field of the JSON line that counts; modes: the peer's variants."""

    title: str
    key: str
    unit: str
    ours: list[str]
    peers: dict[str, list[str]]


def run_json(command: list[str], framework: str) -> dict[str, float]:
    """The JSON line that a benchmark process prints last. Raises SystemExit with its stderr if it fails."""
    environment = {**os.environ, "BENCH_FRAMEWORK": framework, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_HERE.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)}\nfailed with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(lines[-1])
    return result


def script(name: str, *arguments: str) -> list[str]:
    return [str(_HERE / name), *arguments]


def ddp_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for model in options.models.split(","):
        arguments = [options.bucket_mb, "--repeats", options.repeats]
        torchrun = [options.peer_python, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        peers = {
            f"torch {m} + DDP": [*torchrun, *script("bench_ddp.py", model, m, *arguments)] for m in ("compile", "eager")
        }
        ours = [sys.executable, "-m", "launch", "-n", "2", "--no-prefix", "--timeout", str(_TIMEOUT_S - 10)]
        title = f"{model}: training step, 2 ranks x 1 thread, {options.bucket_mb} MiB buckets"
        found.append(
            Measure(title, "step_ms", "ms", [*ours, *script("bench_ddp.py", model, "compile", *arguments)], peers)
        )
    return found


def single_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for model in [*options.models.split(","), "chain10k", "chain10m"]:
        arguments = ["--repeats", options.repeats]
        peers = {
            f"torch {m}": [options.peer_python, *script("bench_single.py", model, m, *arguments)]
            for m in ("compile", "eager")
        }
        ours = [sys.executable, *script("bench_single.py", model, "compile", *arguments)]
        found.append(Measure(f"{model}: step, 1 process, 1 thread", "step_ms", "ms", ours, peers))
    return found


def cold_measures(options: argparse.Namespace) -> list[Measure]:
    ours = [sys.executable, *script("cold.py", "gpt")]
    peers = {
        "torch.compile": [
            sys.executable,
            *script("cold.py", "gpt", "--framework", "torch"),
            "--python",
            options.peer_python,
        ]
    }
    title = "gpt: first training step, whole process, {} cache"
    return [
        Measure(title.format("empty"), "cold_process_s", "s", ours, peers),
        Measure(title.format("filled"), "warm_process_s", "s", ours, peers),
    ]


def import_measures(options: argparse.Namespace) -> list[Measure]:
    found = []
    for title, use in (("import", []), ("import, first module, its backward", ["--use"])):
        ours = [sys.executable, *script("import_time.py", "distcompile", *use)]
        theirs = [sys.executable, *script("import_time.py", "torch", *use), "--python", options.peer_python]
        found.append(Measure(title, "median_s", "s", ours, {"torch": theirs}))
    return found


MEASURES = {"ddp": ddp_measures, "single": single_measures, "cold": cold_measures, "import": import_measures}


def measure_all(measures: list[Measure], rounds: int, with_peer: bool) -> dict[tuple[str, str], list[dict[str, float]]]:
    """(title, side) -> the JSON results of each round. A command shared by several measures runs once a round."""
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    for number in range(rounds):
        done: dict[tuple[str, ...], dict[str, float]] = {}
        for measure in measures:
            sides = {"ours": measure.ours, **(measure.peers if with_peer else {})}
            for side, command in sides.items():
                key = tuple(command)
                if key not in done:
                    done[key] = run_json(command, "distcompile" if side == "ours" else "torch")
                results.setdefault((measure.title, side), []).append(done[key])
                print(
                    f"round {number + 1}: {measure.title}: {side}: {done[key][measure.key]} {measure.unit}",
                    file=sys.stderr,
                )
    return results


def report(measures: list[Measure], results: dict[tuple[str, str], list[dict[str, float]]], rounds: int) -> str:
    """A Markdown table."""
    lines = ["| measure | side | median | peer/ours (least to greatest) |", "|---|---|---|---|"]
    for measure in measures:
        ours = [r[measure.key] for r in results[measure.title, "ours"]]
        lines.append(f"| {measure.title} | ours | {statistics.median(ours):.4g} {measure.unit} | |")
        for side in measure.peers:
            if (measure.title, side) in results:
                theirs = [r[measure.key] for r in results[measure.title, side]]
                ratios = sorted(t / o for t, o in zip(theirs, ours))
                ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                lines.append(f"| | {side} | {statistics.median(theirs):.4g} {measure.unit} | {ratio} |")
    return "\n".join([*lines, "", f"{rounds} rounds, interleaved."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--what", default="ddp,single,cold,import")
    parser.add_argument("--models", default="mlp,gpt")
    parser.add_argument("--bucket-mb", default="25")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", default="20")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    measures = [m for what in options.what.split(",") for m in MEASURES[what](options)]
    results = measure_all(measures, options.rounds, bool(options.peer_python))
    where = machine.describe(options.peer_python)
    print(f"{report(measures, results, options.rounds)} {where}")
    if options.json:
        rows = [{"measure": t, "side": s, "rounds": r} for (t, s), r in results.items()]
        Path(options.json).write_text(json.dumps({"machine": where, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
