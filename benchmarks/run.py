"""Runs ours and the peer's side interleaved, and reports ratios of medians with their spread.

    python benchmarks/run.py [--peer-python /path/to/python-with-torch] [--rounds 3]
                             [--what ddp,single,whole,threads,cold,deep,import,small,network]
                             [--models mlp,gpt] [--bucket-mb 25] [--rate 1gbit] [--json FILE]

A round runs every side once, in fresh processes, one after the other. A line gives each side's median over the rounds,
and the median, least and greatest of the rounds' ratios peer/ours (above 1: ours is faster). Without --peer-python
only ours is measured. One thread and one core a rank, on both sides, but for `threads`. `network` makes
two hosts and takes root.
What a side reports of itself is checked (`sides.py`): the peer must be torch, ours must not have loaded it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import machine
import measures
from measures import Measure
from network import network_measures
from shaped_hosts import two_hosts, why_not
from sides import PEER, Result, Side, machine_alone, measure, peer_version

LOCAL: dict[str, Callable[[argparse.Namespace], list[Measure]]] = {
    "ddp": measures.ddp_measures,
    "single": measures.single_measures,
    "whole": measures.whole_measures,
    "threads": measures.thread_measures,
    "cold": measures.cold_measures,
    "deep": measures.deep_measures,
    "import": measures.import_measures,
    "small": measures.small_measures,
}
Results = dict[tuple[str, str], list[Result]]  # (title, side) -> what each round said


def measure_all(wanted: list[Measure], options: argparse.Namespace, version: str) -> Results:
    """Every side of every measure, `options.rounds` times. A side that several measures share runs once a round."""
    results: Results = {}
    for number in range(options.rounds):
        done: dict[Side, Result] = {}
        for one in wanted:
            for name, side in one.sides.items():
                if side.framework == PEER and not version:
                    continue
                if side not in done:
                    with machine_alone(options.lock):
                        done[side] = measure(side, version)
                results.setdefault((one.title, name), []).append(done[side])
                value = done[side][one.key]
                print(f"round {number + 1}: {one.title}: {name}: {value} {one.unit}", file=sys.stderr, flush=True)
    return results


def report(wanted: list[Measure], results: Results, rounds: int) -> str:
    """A Markdown table."""
    lines = ["| measure | side | median (least to greatest) | peer/ours (least to greatest) |", "|---|---|---|---|"]
    for one in wanted:
        times = {
            name: [result[one.key] for result in results[one.title, name]]
            for name in one.sides
            if (one.title, name) in results
        }
        title = one.title
        for name, own in times.items():
            spread = f"{statistics.median(own):.4g} ({min(own):.4g} to {max(own):.4g}) {one.unit}"
            lines.append(f"| {title} | {name} | {spread} | {_ratio(name, one, times)} |")
            title = ""
    return "\n".join([*lines, "", f"{rounds} rounds, interleaved."])


def _ratio(name: str, one: Measure, times: dict[str, list[float]]) -> str:
    """The quickest of the peers that `name` is compared with, over `name`, by round."""
    peers = [other for other in one.compared.get(name, ()) if other in times]
    if not peers:
        return ""
    best = min(peers, key=lambda other: statistics.median(times[other]))
    ratios = sorted(theirs / own for theirs, own in zip(times[best], times[name]))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), {best}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--what", default="ddp,single,cold,import")
    parser.add_argument("--models", default="mlp,gpt")
    parser.add_argument("--bucket-mb", default="25")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", default="20", help="steps timed by a process")
    parser.add_argument("--rate", default="1gbit", help="of the link between the two hosts, as tc writes it")
    parser.add_argument("--network-model", default="gptbig")
    parser.add_argument("--sides", default="", help="of `network`: only these")
    parser.add_argument("--lock", default="", help="a file whose lock is held while a side is measured")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    options.what = options.what.split(",")
    unknown = set(options.what) - {*LOCAL, "network"}
    if unknown:
        parser.error(f"nothing called {', '.join(unknown)} is measured here")
    return options


def main() -> None:
    options = parse()
    version = peer_version(options.peer_python) if options.peer_python else ""
    wanted = [one for what in options.what if what in LOCAL for one in LOCAL[what](options)]
    with contextlib.ExitStack() as stack:
        if "network" in options.what:
            reason = why_not()
            if reason:
                raise SystemExit(f"network: {reason}")
            wanted += network_measures(options, stack.enter_context(two_hosts(options.rate)))
        results = measure_all(wanted, options, version)
    where = machine.describe(options.peer_python)
    print(f"{report(wanted, results, options.rounds)} {where}")
    if options.json:
        rows = [{"measure": t, "side": s, "rounds": r} for (t, s), r in results.items()]
        Path(options.json).write_text(json.dumps({"machine": where, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
