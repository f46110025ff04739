"""Runs a command on MPI ranks from a test: through the launcher, with a time limit, and all output on failure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240.0


def run_on_ranks(
    ranks: int, arguments: Sequence[str], *, limit_s: float = LIMIT_S, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` on `ranks` ranks; never longer than `limit_s` seconds."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        **(environment or {}),
    }
    command = [sys.executable, "-m", "launch", "-n", str(ranks), "--bind", "none", f"--timeout={limit_s}", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=limit_s + 30, check=False
    )


def check_ran(result: subprocess.CompletedProcess[str]) -> None:
    """Fail with both streams unless the job ended well."""
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout[-6000:]}\n{result.stderr[-6000:]}"
