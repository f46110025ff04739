"""Eager against eager: what a call costs before anything is compiled. CPU time, one thread, rows in turn.

    python benchmarks/eager.py [--peer-python /path/to/python-with-torch] [--only 'add*' 'gpt*'] [--rounds 11]
                               [--above 2.0] [--device cuda] [--tiny] [--json FILE]

One process a side holds all rows (eager_side.py) and times one at a time, in samples of 20 ms or more, our side and
the peer's in turn. A line gives each side's median CPU time a call and the ratio of the medians ours/peer (above 1:
ours is slower), with the quartiles of the rounds' ratios. torch's backward runs on a thread of its own, which counts.
On a CUDA device the time is the clock's, until the device is done: the host's where that is the slower.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
from pathlib import Path

import machine
from operations import Server
from sides import OURS, PEER, PYTHON, peer_version

SCRIPT = "eager_side.py"
Times = dict[str, list[float]]  # side -> seconds a call, one a round


def measure_row(name: str, servers: dict[str, Server], rounds: int) -> Times:
    """One row on every side, in turn."""
    for server in servers.values():
        server.ask(do="start", row=name)
    times: Times = {side: [] for side in servers}
    for _ in range(rounds):
        for side, server in servers.items():
            times[side].append(server.ask(do="sample")["seconds"])
    return times


def ratio(times: Times) -> float | None:
    """How many times as long ours takes."""
    if PEER not in times:
        return None
    return statistics.median(times[OURS]) / statistics.median(times[PEER])


def line(name: str, times: Times) -> str:
    cells = [f"{statistics.median(times[side]) * 1e6:.2f}" if side in times else "" for side in (OURS, PEER)]
    found, spread = ratio(times), ""
    if found is not None:
        each = sorted(ours / theirs for ours, theirs in zip(times[OURS], times[PEER]))
        spread = f"{found:.2f} ({each[len(each) // 4]:.2f} to {each[3 * len(each) // 4]:.2f})"
    return f"| {name} | " + " | ".join([*cells, spread]) + " |"


def slower(rows: dict[str, Times], above: float) -> list[str]:
    """The rows whose ratio is greater than `above`, worst first."""
    ratios = {name: found for name, times in rows.items() if (found := ratio(times)) is not None}
    return [f"{found:.2f}  {name}" for name, found in sorted(ratios.items(), key=lambda r: -r[1]) if found > above]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--only", nargs="+", default=["*"], help="rows, by patterns of the shell")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--above", type=float, default=2.0, help="name the rows with a greater ratio at the end")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tiny", action="store_true", help="the two hundred calls of eager_rows.py, and no other row")
    parser.add_argument("--json", default="")
    return parser.parse_args()


def main() -> None:
    options = parse()
    os.environ["BENCH_DEVICE"] = options.device
    servers = {OURS: Server(PYTHON, OURS, "", SCRIPT)}
    if options.peer_python:
        servers[PEER] = Server(options.peer_python, PEER, peer_version(options.peer_python), SCRIPT)
    known = servers[OURS].ask(do="list")["rows"]
    print("| eager | ours, us | torch, us | ours/torch (quartiles) |\n|---|---|---|---|", flush=True)
    rows: dict[str, Times] = {}
    known = [name for name in known if name.startswith("tiny ") is options.tiny]
    for name in (n for n in known if any(fnmatch.fnmatch(n, pattern) for pattern in options.only)):
        rows[name] = measure_row(name, servers, options.rounds)
        print(line(name, rows[name]), flush=True)
    lost, ratios = slower(rows, options.above), [found for times in rows.values() if (found := ratio(times))]
    if ratios:
        print(f"\ngeometric mean of ours/torch: {statistics.geometric_mean(ratios):.2f}")
    print(f"\n{len(rows)} rows, {len(lost)} above {options.above}:", *lost, sep="\n  ")
    where = machine.describe(options.peer_python)
    clock = "CPU time" if options.device == "cpu" else "the clock's time"
    print(f"{options.rounds} rounds, {clock}, in turn. {where}")
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
