"""Runs scripts under `python -m distcompile.as_torch`, or under torch, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 500


def environment(*folders: Path) -> dict[str, str]:
    """Ours, one thread, with the repository and `folders` importable."""
    path = os.pathsep.join(map(str, [ROOT, *folders]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def start(*words: str, folders: tuple[Path, ...] = (), cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`python words...`, finished."""
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment(*folders), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def run(*words: str, folders: tuple[Path, ...] = (), cwd: Path = ROOT) -> str:
    """What `python words...` prints; an assertion error, with all it wrote, if it fails."""
    done = start(*words, folders=folders, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(folder: Path, text: str, name: str = "script.py") -> str:
    """A script with `text`."""
    path = folder / name
    path.write_text(text)
    return str(path)
