"""Programs whose sizes change from call to call, ours and torch.compile's: captures, calls that run eager, CPU time.

    python benchmarks/dynamic_sizes.py [--peer-python /path/to/python-with-torch] [--only gpt ...] [--rounds 3]
                                       [--modes dynamic default] [--device cuda] [--json FILE]

A process a side, a program and a round (dynamic_sizes_side.py), in turn, each with empty caches. torch compiles as it
does by default: a size that changed is a symbol. So does ours ("default"); "dynamic" is compile(dynamic=True).
A row gives, a side: graphs that were captured, what was compiled for sizes (torch's kernels take all sizes), calls that
Python ran, the first pass over the sizes and one more (median CPU seconds, with that of compilers), and the ratio
of the medians of the first, with the least and greatest of the rounds. Losses of both sides must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import machine
from sides import OURS, PEER, PYTHON, Side, measure, peer_version, script

PROGRAMS = ("gpt", "lstm", "cache")
_CACHES = ("DISTCOMPILE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR", "XDG_CACHE_HOME")
Results = list[dict[str, Any]]


def side(framework: str, python: str, program: str, mode: str, folder: str) -> Side:
    """One process, with caches of its own below `folder`."""
    caches = {name: os.path.join(folder, name) for name in _CACHES}
    for path in caches.values():
        os.mkdir(path)
    environment = {**caches, "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # whose CPU time is counted
    command = (python, *script("dynamic_sizes_side.py", program, mode))
    return Side(framework, (command,), tuple(environment.items()))


def measured(framework: str, python: str, program: str, mode: str, version: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return measure(side(framework, python, program, mode, folder), version)


def row(program: str, label: str, mine: Results, theirs: Results) -> str:
    """A line of the table; theirs: of the same rounds."""
    first = mine[0]
    made = "-" if first["made"] is None else str(first["made"])
    times = [statistics.median(result[key] for result in mine) for key in ("first_s", "again_s")]
    cells = [program, label, str(first["captures"]), made, f"{first['eager']} of {first['calls']}"]
    cells += [f"{time:.2f}" for time in times]
    if theirs and mine is not theirs:
        ratio = times[0] / statistics.median(result["first_s"] for result in theirs)
        each = sorted(a["first_s"] / b["first_s"] for a, b in zip(mine, theirs))
        cells.append(f"{ratio:.2f} ({each[0]:.2f} to {each[-1]:.2f})")
    return f"| {' | '.join(cells)} |" if len(cells) == 8 else f"| {' | '.join(cells)} | |"


def check_losses(program: str, all_results: Results) -> None:
    """Raises SystemExit unless all sides computed the same."""
    wanted = all_results[0]["losses"]
    for result in all_results:
        if any(abs(a - b) > 2e-3 * max(1, abs(a)) for a, b in zip(wanted, result["losses"], strict=True)):
            raise SystemExit(f"{program}: losses differ: {wanted} and {result['losses']} of {result['framework']}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--modes", nargs="+", default=["dynamic", "default"], choices=("dynamic", "default", "eager"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", default="")
    return parser.parse_args()


def main() -> None:
    options = parse()
    os.environ["BENCH_DEVICE"] = options.device
    version = peer_version(options.peer_python) if options.peer_python else ""
    sides = {f"ours, {mode}": (OURS, PYTHON, mode) for mode in options.modes}
    if options.peer_python:
        sides["torch, default"] = (PEER, options.peer_python, "default")
    print("| program | side | captured | for sizes | eager calls | first pass, s | again, s | ours/torch |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found: dict[str, dict[str, Results]] = {}
    for program in options.only:
        results: dict[str, Results] = {label: [] for label in sides}
        for _ in range(options.rounds):
            for label, (framework, python, mode) in sides.items():
                results[label].append(measured(framework, python, program, mode, version))
        check_losses(program, [result for each in results.values() for result in each])
        theirs = results.get("torch, default", [])
        for label, each in results.items():
            print(row(program, label, each, theirs), flush=True)
        found[program] = results
    where = machine.describe(options.peer_python)
    print(f"\n{options.rounds} rounds, CPU time with that of compilers, empty caches, in turn. {where}")
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": where, "programs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
