"""Seconds that `import NAME` adds to an interpreter's start: median over fresh processes. One JSON line.

    python import_time.py [NAME] [--use] [--python INTERPRETER] [--repeats N]

--use also makes a first module and takes a gradient, for a package that loads its parts when they are first needed.
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


def measure(name: str, python: str, repeats: int, *, use: bool) -> dict[str, object]:
    """Bare and importing interpreters, interleaved; the first pair fills the bytecode caches and is dropped."""
    code = f"import {name} as torch" + ("; torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()" if use else "")
    pairs = [(process_s(python, "pass"), process_s(python, code)) for _ in range(repeats + 1)][1:]
    added = sorted(full - bare for bare, full in pairs)
    median, low, high = statistics.median(added), added[0], added[-1]
    return {**identity(name, python), "median_s": round(median, 3), "min_s": round(low, 3), "max_s": round(high, 3)}


def identity(name: str, python: str) -> dict[str, str]:
    """What that interpreter imports under that name; torch is told to be loaded, or not."""
    code = f"import sys, {name}; print({name}.__version__, 'torch' in sys.modules)"
    told = subprocess.run([python, "-c", code], check=True, cwd=_ROOT, timeout=120, capture_output=True, text=True)
    version, has_torch = told.stdout.split()
    return {"framework": name, "version": version, "has_torch": "yes" if has_torch == "True" else "no"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="distcompile")
    parser.add_argument("--use", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    print(json.dumps(measure(options.name, options.python, options.repeats, use=options.use)), flush=True)


if __name__ == "__main__":
    main()
