"""Seconds that `import NAME` adds to an interpreter's start: median over fresh processes. One JSON line.

python import_time.py [NAME] [--python INTERPRETER] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def process_s(python: str, code: str) -> float:
    """One process's whole time."""
    begun = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, cwd=_ROOT, timeout=120)
    return time.perf_counter() - begun


def measure(name: str, python: str, repeats: int) -> dict[str, object]:
    """Bare and importing interpreters, interleaved; the first pair fills the bytecode caches and is dropped."""
    pairs = [(process_s(python, "pass"), process_s(python, f"import {name}")) for _ in range(repeats + 1)][1:]
    added = sorted(full - bare for bare, full in pairs)
    median, low, high = statistics.median(added), added[0], added[-1]
    return {"import": name, "median_s": round(median, 3), "min_s": round(low, 3), "max_s": round(high, 3)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="distcompile")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(measure(options.name, options.python, options.repeats)), flush=True)


if __name__ == "__main__":
    main()
