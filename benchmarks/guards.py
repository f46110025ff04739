"""What a compiled function costs beside its arithmetic: calls, guard checks, capture, against torch.compile. CPU time.

    python benchmarks/guards.py [--peer-python /path/to/python-with-torch] [--only 'call*' 'check*'] [--rounds 11]
                                [--json FILE]

One process a side holds all rows (guards_side.py) and times one at a time, in samples of 20 ms or more, our side and
the peer's in turn. A line gives each side's median CPU time a call and the ratio of the medians ours/peer (above 1:
ours is slower), with the quartiles of the rounds' ratios, and what the row must reach: half of the peer's time for a
call, 5 us for a check, 1 s for a capture, which may take 1.2 times as long a line where there are more. Exit code 1 if
a row does not.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics
from pathlib import Path

import machine
from eager import Times, line, measure_row, ratio
from operations import Server
from sides import OURS, PEER, PYTHON, peer_version

SCRIPT = "guards_side.py"
MOST_OF_A_CALL = 0.5  # of the peer's time
MOST_OF_A_CHECK_S = 5e-6
MOST_OF_A_CAPTURE_S = 1.0
FEW, MANY = "capture of 250 lines", "capture of 2,000 lines"
MOST_OF_GROWTH = 1.2  # of a line's time among few, that of a line among many


MOST_S = {"check": MOST_OF_A_CHECK_S, "capture": MOST_OF_A_CAPTURE_S}


def reaches(name: str, times: Times) -> bool | None:
    """Whether a row is as quick as it must be; None if that cannot be said without the peer."""
    most = next((most for kind, most in MOST_S.items() if name.startswith(kind)), None)
    if most is not None:
        return statistics.median(times[OURS]) <= most
    found = ratio(times)
    return None if found is None else found <= MOST_OF_A_CALL


def wanted(name: str) -> str:
    most = next((most for kind, most in MOST_S.items() if name.startswith(kind)), None)
    return f"{MOST_OF_A_CALL} of torch's" if most is None else f"{most * 1e6:.0f} us"


def growth(rows: dict[str, Times], side: str) -> float | None:
    """How many times as long a line takes to capture among many as among few, by the least time of each: rows are not
    timed in turn, and what else the machine does comes and goes."""
    if FEW not in rows or MANY not in rows or side not in rows[FEW]:
        return None
    few, many = (min(rows[name][side]) for name in (FEW, MANY))
    return many / few * 250 / 2000


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--only", nargs="+", default=["*"], help="rows, by patterns of the shell")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", default="")
    return parser.parse_args()


def main() -> None:
    options = parse()
    servers = {OURS: Server(PYTHON, OURS, "", SCRIPT)}
    if options.peer_python:
        servers[PEER] = Server(options.peer_python, PEER, peer_version(options.peer_python), SCRIPT)
    known = servers[OURS].ask(do="list")["rows"]
    print("| compiled | ours, us | torch, us | ours/torch (quartiles) | at most |\n|---|---|---|---|---|", flush=True)
    rows: dict[str, Times] = {}
    for name in (n for n in known if any(fnmatch.fnmatch(n, pattern) for pattern in options.only)):
        rows[name] = measure_row(name, servers, options.rounds)
        print(f"{line(name, rows[name])} {wanted(name)} |", flush=True)
    where = machine.describe(options.peer_python)
    print(f"\n{options.rounds} rounds, CPU time, in turn. {where}")
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": where, "rows": rows}, indent=1) + "\n")
    missed = [name for name, times in rows.items() if reaches(name, times) is False]
    for side in servers:
        if (found := growth(rows, side)) is not None:
            print(f"{side}: a line of 2,000 takes {found:.2f} times as long to capture as one of 250")
            if side == OURS and found > MOST_OF_GROWTH:
                missed.append("growth of captures")
    if missed:
        raise SystemExit(f"slower than they may be: {', '.join(missed)}")


if __name__ == "__main__":
    main()
