"""One row an operation: ours compiled against torch.compile, forward and backward, CPU time and memory, one thread.

    python benchmarks/operations.py [--peer-python /path/to/python-with-torch] [--only 'cumsum*' 'topk*'] [--rounds 15]
                                    [--below 1.0] [--json FILE]

Every row runs in a process of its own on each side (forked after the import). Both make the same inputs, compile,
warm up, and then time calls in turn, a round each, in samples of 20 ms or more. A line gives each side's
median CPU time a call, the ratio of the medians peer/ours with the quartiles of the rounds' ratios (above 1: ours is
faster), and by how much a step's peak of resident memory exceeds what is resident between steps (so what a framework
keeps for the next step is not in it). Without --peer-python only ours is measured.
Results and gradients are compared by digest: a row whose sides computed different things says so, whatever its ratio.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from sides import HERE, OURS, PEER, PYTHON, THREADS, check_identity, peer_version

TOLERANCE = 2e-2  # of a digest: sums of many rounded numbers; bf16 rows are rounded differently


class Server:
    """A process of one side that measures rows on demand (operations_side.py, eager_side.py, zoo_side.py).

    Raises SystemExit where it is not the side that it should be, or ends before it has answered.
    """

    def __init__(
        self, python: str, framework: str, version: str, script: str = "operations_side.py",
        *, way: Sequence[str] = (), arguments: Sequence[str] = (), **variables: str,
    ) -> None:  # fmt: skip
        """way: how `python` is to run the script. variables: of its environment."""
        environment = {**os.environ, **THREADS, "BENCH_FRAMEWORK": framework, "PYTHONPATH": str(HERE.parent)}
        self._process = subprocess.Popen(
            [python, *way, str(HERE / script), *arguments],
            env={**environment, "TORCHINDUCTOR_COMPILE_THREADS": "1", **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        check_identity(self._answer(), framework, version)

    def _answer(self) -> Any:
        assert self._process.stdout is not None, "the answer comes through a pipe"
        for line in self._process.stdout:
            if line.startswith('{"'):
                return json.loads(line)
        raise SystemExit(f"a side of this benchmark ended before it answered, exit code {self._process.wait()}")

    def ask(self, **question: Any) -> Any:
        """Its answer to one question."""
        assert self._process.stdin is not None, "the question goes through a pipe"
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """At once, whatever it does."""
        self._process.kill()
        self._process.wait()


@dataclass
class Outcome:
    """What was measured of one row. times: side -> seconds a call, one a round. note: what went wrong, or ""."""

    name: str
    times: dict[str, list[float]]
    memory: dict[str, float]
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if set(self.times) != {OURS, PEER}:
            return None
        return statistics.median(self.times[PEER]) / statistics.median(self.times[OURS])

    def line(self) -> str:
        cells = [_ms(self.times.get(side)) for side in (OURS, PEER)]
        cells += [
            _spread(self),
            *(f"{self.memory[s]:.1f}" if s in self.memory else "" for s in (OURS, PEER)),
            self.note,
        ]
        return f"| {self.name} | " + " | ".join(cells) + " |"


def _ms(times: list[float] | None) -> str:
    return f"{statistics.median(times) * 1e3:.3f}" if times else ""


def _spread(outcome: Outcome) -> str:
    if outcome.ratio is None:
        return ""
    ratios = sorted(theirs / own for own, theirs in zip(outcome.times[OURS], outcome.times[PEER]))
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    return f"{outcome.ratio:.2f} ({low:.2f} to {high:.2f})"


def measure_row(name: str, servers: dict[str, Server], rounds: int) -> Outcome:
    """One row on every side, in turn."""
    outcome = Outcome(name, {}, {})
    ready = {side: server.ask(do="start", row=name) for side, server in servers.items()}
    failed = {side: answer["error"] for side, answer in ready.items() if "error" in answer}
    if failed:
        outcome.note = "; ".join(f"{side}: {error}" for side, error in failed.items())
    else:
        for _ in range(rounds):
            for side, server in servers.items():
                outcome.times.setdefault(side, []).append(server.ask(do="sample")["seconds"])
        outcome.memory = {side: server.ask(do="memory")["mb"] for side, server in servers.items()}
        outcome.note = _difference([answer["digest"] for answer in ready.values()])
    for server in servers.values():
        server.ask(do="stop")
    return outcome


def _difference(digests: Sequence[Sequence[float]]) -> str:
    """Says whether two sides' digests differ by more than rounding."""
    if len(digests) < 2:
        return ""
    ours, theirs = digests
    if len(ours) != len(theirs):
        return f"DIFFERENT: {len(ours)} results and gradients, {len(theirs)}"
    scales = [max(abs(a), abs(b), 1e-6) for a, b in zip(ours, theirs)]
    worst = max((abs(a - b) / scale for a, b, scale in zip(ours, theirs, scales)), default=0.0)
    return f"DIFFERENT by {worst:.1%}" if not worst <= TOLERANCE else ""


def measure_all(names: Sequence[str], servers: dict[str, Server], rounds: int) -> Iterator[Outcome]:
    for name in names:
        outcome = measure_row(name, servers, rounds)
        print(outcome.line(), flush=True)
        yield outcome


def summary(outcomes: Sequence[Outcome], below: float) -> str:
    """The rows that lose, worst first."""
    ratios = {outcome.name: outcome.ratio for outcome in outcomes if outcome.ratio is not None}
    lost = sorted((ratio, name) for name, ratio in ratios.items() if ratio < below)
    lines = [f"{len(ratios)} rows compared, {len(lost)} below {below}:", *(f"  {r:.2f}  {name}" for r, name in lost)]
    noted = [f"  {outcome.name}: {outcome.note}" for outcome in outcomes if outcome.note]
    return "\n".join([*lines, *(["noted:", *noted] if noted else [])])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--only", nargs="+", default=["*"], help="rows, by patterns of the shell")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--below", type=float, default=1.0, help="name the rows with a smaller ratio at the end")
    parser.add_argument("--json", default="")
    return parser.parse_args()


def main() -> None:
    options = parse()
    servers = {OURS: Server(PYTHON, OURS, "")}
    if options.peer_python:
        servers[PEER] = Server(options.peer_python, PEER, peer_version(options.peer_python))
    known = servers[OURS].ask(do="list")["rows"]
    names = [name for name in known if any(fnmatch.fnmatch(name, pattern) for pattern in options.only)]
    print("| operation | ours, ms | torch.compile, ms | peer/ours (quartiles) | ours, MB | torch.compile, MB | |")
    print("|---|---|---|---|---|---|---|", flush=True)
    outcomes = list(measure_all(names, servers, options.rounds))
    where = machine.describe(options.peer_python)
    print(f"\n{summary(outcomes, options.below)}\n{options.rounds} rounds, CPU time, in turn. {where}")
    if options.json:
        rows = [{"row": o.name, "seconds": o.times, "mb": o.memory, "note": o.note} for o in outcomes]
        Path(options.json).write_text(json.dumps({"machine": where, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
