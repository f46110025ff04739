"""What was measured on: one line for every report."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def cpu_model() -> str:
    """The CPU's name as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def first_line(*command: str) -> str:
    """What a program says of itself; "absent" if it is not here."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return "absent"
    return done.stdout.strip().splitlines()[0]


def describe(peer_python: str = "") -> str:
    """CPU, cores, system, Python, compiler, and the peer's version."""
    parts = [cpu_model(), f"{len(os.sched_getaffinity(0))} cores", platform.platform(terse=True)]
    parts += [f"Python {platform.python_version()}", first_line("c++", "--version")]
    if peer_python:
        parts.append("torch " + first_line(peer_python, "-c", "import torch; print(torch.__version__)"))
    return "; ".join(parts)
