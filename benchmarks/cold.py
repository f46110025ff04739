"""Whole-process time of a first training step: cold (empty caches) and warm (the caches just filled). One JSON line.

`..._process_s` is wall time, `..._cpu_s` CPU time with that of compilers and all other children.

    python cold.py [MODEL] [--python INTERPRETER] [--framework torch]

Measured from outside, process start and imports included. Every cache gets an empty folder: ours, Inductor's, Triton's
and TMPDIR, where Inductor keeps a precompiled header. Python's bytecode is there on both sides, as an installation
leaves it: ours, which may run from a folder of sources, is compiled beforehand.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SCRIPT = Path(__file__).with_name("bench_single.py")
_COMPILE = """
import compileall, importlib.util, sys
for name in sys.argv[1:]:
    compileall.compile_dir(importlib.util.find_spec(name).submodule_search_locations[0], quiet=1)
"""
_CACHES = ("DISTCOMPILE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR", "XDG_CACHE_HOME")


def measure(model: str, python: str, framework: str) -> dict[str, object]:
    """Cold, then warm, in one pair of fresh processes."""
    result: dict[str, object] = {"model": model}
    environment = {**os.environ, "BENCH_FRAMEWORK": framework, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if framework == "distcompile":
        packages = ("compiler_core", "collectives", "distcompile")
        subprocess.run([python, "-c", _COMPILE, *packages], env=environment, timeout=600, check=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in _CACHES:
            environment[name] = os.path.join(folder, name)
            os.mkdir(environment[name])
        for temperature in ("cold", "warm"):
            begun, spent = time.perf_counter(), _cpu_s()
            command = [python, str(_SCRIPT), model, "compile", "--first-only"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
            result[f"{temperature}_process_s"] = round(time.perf_counter() - begun, 2)
            result[f"{temperature}_cpu_s"] = round(_cpu_s() - spent, 2)
            told = json.loads(done.stdout.splitlines()[-1])
            result[f"{temperature}_step_s"] = told["first_s"]
            result |= {name: told[name] for name in ("framework", "version", "has_torch")}
    return result


def _cpu_s() -> float:
    """CPU time of the children that have ended, and of theirs, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="gpt")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--framework", default="distcompile")
    options = parser.parse_args()
    print(json.dumps(measure(options.model, options.python, options.framework)), flush=True)


if __name__ == "__main__":
    main()
