"""All-reduce by copy engines for real: two ranks, on a GPU each, or both on one."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from mpi_job import ROOT, check_ran, run_on_ranks

GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS < 1 or find_spec("cupy") is None, reason="needs a GPU, and CuPy"),
]
PROGRAM = str(Path(__file__).with_name("copies_programs.py"))
needs_two = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


@pytest.mark.parametrize("where", [["--one-gpu"], pytest.param([], marks=needs_two)])
def test_two_ranks(where: list[str]) -> None:
    result = run_on_ranks(2, [PROGRAM, "right", "rounds", "gives_up", "speed", *where], limit_s=120)
    check_ran(result)
    assert result.stdout.count(" ok ") == 4


@pytest.mark.parametrize("where", [["--one-gpu"], pytest.param([], marks=needs_two)])
def test_a_rank_that_is_killed_leaves_right_arrays_or_nan(where: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, PROGRAM, "killed", *where]
    check_ran(
        subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    )
