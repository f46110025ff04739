"""40 published models, a training step each: ours under --as-torch beside torch's, the libraries' code unmodified.

    python benchmarks/zoo.py [--mode eager] [--device cuda] [--only 'resnet*' gpt2] [--rounds 7] [--threads 1]
                             [--kernels] [--json FILE [--skip-done]] [--seconds 540] [--limit 300] [--together 8]
                             [--peer-python PYTHON]

A row (zoo_rows.py) runs in two processes (zoo_side.py), from the same weights on the same inputs: forward, backward and
AdamW, on a GPU under bf16 autocast. They start in turn, with caches of the run's own, which begin empty; then they are
timed in turn, a sample each a round. Shown: medians of both; ours over torch's (above 1: ours is slower), the median of
the rounds' ratios, of CPU time on a CPU (one thread: whatever else the machine does) and of the clock on a GPU; peaks;
the first step, which compiles; whether losses of the third step agree, within TOLERANCES. On a CPU a peak is what steps
add to what is resident between them; on a GPU it is all that is allocated. --kernels: the three of ours that cost most,
with their times and, in brackets, the least that their bytes or operations take at the speed of a copy or of a matrix
product.
--together: so many rows start side by side, which takes less time where there are cores; then each is timed while the
others rest. What first steps take means little then.
A row that fails says why, and the rest goes on. --json: a line a row, at once; --skip-done takes what is there.
Exit code 1 if a row of ours failed, or its loss differs.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import machine
from operations import Server
from sides import OURS, PEER, PYTHON, peer_version
from zoo_rows import ROWS

TOLERANCES = {"cpu": 1e-3, "cuda": 3e-2}  # of the third step's loss, relative: float32, bf16
LOSES = 1.1
Found = dict[str, Any]


def missing(python: str, packages: tuple[str, ...]) -> list[str]:
    """Those which that interpreter does not find."""
    code = "import sys, importlib.util as u; print(*[n for n in sys.argv[1:] if u.find_spec(n) is None])"
    done = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


class Sides:
    """The two processes of a row."""

    def __init__(self, name: str, given: argparse.Namespace, version: str, folder: str) -> None:
        self._folder, self._given, self._version = folder, given, version
        self._arguments = [name, f"{folder}/{name}.weights", "--mode", given.mode, "--device", given.device]
        self.servers: dict[str, Server] = {}

    def start(self, side: str) -> Found:
        """Start it, and take its first steps."""
        caches = f"{self._folder}/{side}"
        told = {"XDG_CACHE_HOME": caches, "TRITON_CACHE_DIR": f"{caches}/triton", "HF_HUB_OFFLINE": "1"}
        told |= {"TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor", "OMP_NUM_THREADS": str(self._given.threads)}
        if self._given.device == "cuda":
            told["TORCHINDUCTOR_COMPILE_THREADS"] = str(self._given.threads)
        python, way = (self._given.peer_python, []) if side == PEER else (PYTHON, ["-m", "distcompile.as_torch"])
        version = self._version if side == PEER else ""
        self.servers[side] = Server(python, side, version, "zoo_side.py", way=way, arguments=self._arguments, **told)
        return self.ask(side, "start")

    def ask(self, side: str, what: str) -> Found:
        """Its answer. Raises SystemExit with what went wrong, or if it takes longer than --limit."""
        ending = threading.Timer(self._given.limit, self.servers[side].end)
        ending.start()
        try:
            answer: Found = self.servers[side].ask(do=what)
        finally:
            ending.cancel()
        if "error" in answer:
            raise SystemExit(answer["error"])
        return answer

    def end(self) -> None:
        for server in self.servers.values():
            server.end()


@contextmanager
def noted(row: Found, side: str) -> Iterator[None]:
    """What goes wrong inside is that side's error."""
    try:
        yield
    except (SystemExit, OSError) as error:
        row["errors"][side] = str(error)


def start_row(name: str, given: argparse.Namespace, version: str, folder: str) -> tuple[Found, Sides]:
    """torch's side first: it writes the weights. folder: for these, and for caches."""
    row: Found = {"row": name, "mode": given.mode, "device": given.device, "threads": given.threads, "errors": {}}
    sides = Sides(name, given, version, folder)
    for side in (PEER, OURS):
        with noted(row, side):
            row[side] = {"seconds": [], "cpu": [], **sides.start(side)}
    return row, sides


def time_row(row: Found, sides: Sides, given: argparse.Namespace) -> Found:
    """Both sides in turn."""
    well = [side for side in (PEER, OURS) if side not in row["errors"]]
    for side in well * given.rounds:
        with noted(row, side):
            for key, value in sides.ask(side, "sample").items():
                row[side][key].append(value)
    for side in well:
        with noted(row, side):
            row[side] |= sides.ask(side, "memory")
    if given.kernels and OURS in well:
        with noted(row, OURS):
            row[OURS] |= sides.ask(OURS, "kernels")
    return row


def measured(names: list[str], given: argparse.Namespace, version: str, folder: str) -> Iterator[Found]:
    """A few rows: they start side by side, and are timed in turn."""
    begun: list[Future[tuple[Found, Sides]]] = []
    try:
        with ThreadPoolExecutor(len(names)) as threads:
            begun += [threads.submit(start_row, name, given, version, folder) for name in names]
        for row, sides in [future.result() for future in begun]:
            yield time_row(row, sides, given)
            sides.end()
    finally:
        for future in begun:
            if future.exception() is None:
                future.result()[1].end()


# ---- what is shown


def ratio(row: Found, what: str) -> float | None:
    """The median of the rounds' ratios, ours over torch's; None if a side failed."""
    if row["errors"]:
        return None
    return statistics.median(ours / theirs for ours, theirs in zip(row[OURS][what], row[PEER][what]))


def clock(row: Found) -> str:
    """Which time counts: with threads, or a device, the clock's."""
    return "cpu" if row["device"] == "cpu" and row["threads"] == 1 else "seconds"


def agrees(row: Found) -> bool:
    ours, theirs = row[OURS]["losses"][-1], row[PEER]["losses"][-1]
    return bool(abs(ours - theirs) <= TOLERANCES[row["device"]] * abs(theirs))


def wrong(row: Found) -> str:
    """What is wrong with the row, in words; "" if nothing is."""
    if row["errors"]:
        return "; ".join(f"{side}: {error}" for side, error in row["errors"].items())
    if agrees(row):
        return ""
    ours, theirs = ([round(loss, 5) for loss in row[side]["losses"]] for side in (OURS, PEER))
    return f"LOSSES DIFFER: {ours}, torch's {theirs}"


def line(row: Found) -> str:
    def cells(what: str, form: str, scale: float = 1.0) -> list[str]:
        told = [row.get(side, {}).get(what) for side in (OURS, PEER)]
        values = [statistics.median(v) if isinstance(v, list) and v else v for v in told]
        return [format(v * scale, form) if isinstance(v, float) else "" for v in values]

    ratios = [ratio(row, clock(row)), ratio(row, "seconds")]
    shown = [f"{r:.2f}" if r is not None else "" for r in ratios]
    said = wrong(row) or f"agree, {row[OURS]['losses'][-1]:.4f}"
    kernels = [f"{name} {took:.2f} [{least:.2f}]" for name, took, least in row.get(OURS, {}).get("kernels", [])]
    told = [row["row"], *cells("seconds", ".2f", 1e3), *shown, *cells("mb", ".0f"), *cells("first_s", ".1f"), said]
    return "| " + " | ".join([*told, "; ".join(kernels)]).replace("\n", " ") + " |"


HEAD = (
    "| {} | ours, ms | torch, ms | ours/torch | by the clock | ours, MB | torch, MB | first, s | torch's | losses "
    "| kernels |"
)


def summary(rows: list[Found]) -> str:
    """Means, and the rows that lose, that fail and that were left out."""
    compared = {row["row"]: found for row in rows if (found := ratio(row, clock(row))) is not None}
    lost = sorted(((found, name) for name, found in compared.items() if found > LOSES), reverse=True)
    peaks = [row[OURS]["mb"] / row[PEER]["mb"] for row in rows if not row["errors"] and row[PEER]["mb"]]
    failed = [f"  {row['row']}: {said}" for row in rows if (said := wrong(row))]
    lines = [f"{len(compared)} of {len(rows)} rows compared"]
    if compared:
        means = [statistics.geometric_mean(values) for values in (compared.values(), peaks) if values]
        said = f"geometric mean of time {means[0]:.3f} (torch's over ours {1 / means[0]:.3f})"
        lines[0] += f", {said}, of peak {means[-1]:.3f}"
    lines += [f"{len(lost)} lose by over {LOSES}:", *(f"  {found:.2f}  {name}" for found, name in lost)]
    return "\n".join([*lines, f"{len(failed)} with something wrong:", *failed])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--mode", choices=("eager", "compiled"), default="compiled")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="by default 1, with a GPU all cores")
    parser.add_argument("--only", nargs="+", default=["*"], help="rows, by patterns of the shell")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--skip-done", action="store_true", help="rows that --json's file has, of this mode and device")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no row begins after them")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that an answer of a side may take")
    parser.add_argument("--together", type=int, default=1, help="so many rows start side by side")
    given = parser.parse_args()
    given.threads = given.threads or (1 if given.device == "cpu" else len(os.sched_getaffinity(0)))
    return given


def done_before(given: argparse.Namespace) -> dict[str, Found]:
    if not given.skip_done or not given.json or not given.json.exists():
        return {}
    rows = map(json.loads, given.json.read_text().splitlines())
    same = ("mode", "device", "threads")
    return {row["row"]: row for row in rows if all(row[key] == getattr(given, key) for key in same)}


def all_rows(given: argparse.Namespace, version: str, folder: str) -> list[Found]:
    """Of those that are chosen, each as soon as it is there; those left out are only told."""
    known, rows, begun = done_before(given), [], time.monotonic()
    left = [n for n in ROWS if any(fnmatch.fnmatch(n, pattern) for pattern in given.only)]
    rows += [known[name] for name in left if name in known]
    for row in rows:
        print(line(row), flush=True)
    left = [name for name in left if name not in known]
    for name in left[:]:
        if absent := missing(given.peer_python, ROWS[name].needs):
            print(f"| {name} | left out: not installed: {', '.join(absent)} |", flush=True)
            left.remove(name)
    while left and time.monotonic() - begun <= given.seconds:
        now, left = left[: given.together], left[given.together :]
        for row in measured(now, given, version, folder):
            if given.json:
                with open(given.json, "a") as file:
                    file.write(json.dumps(row) + "\n")
            rows.append(row)
            print(line(row), flush=True)
    for name in left:
        print(f"| {name} | left out: the time is up |", flush=True)
    return rows


def main() -> int:
    given = parse()
    version = peer_version(given.peer_python)
    print(HEAD.format(f"{given.mode}, {given.device}"), "|---" * 11 + "|", sep="\n", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = all_rows(given, version, folder)
    print(f"\n{summary(rows)}\n{given.rounds} rounds, {given.threads} thread(s). {machine.describe(given.peer_python)}")
    return int(any(OURS in row["errors"] or (not row["errors"] and not agrees(row)) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
