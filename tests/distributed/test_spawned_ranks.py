"""`multiprocessing.spawn` of as many processes as there are ranks: each rank calls the function; failures are torch's.

Without a launcher the processes are no ranks, and the error says which command starts them. Processes that are started
afresh under `--as-torch` find distcompile under torch's name too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "tests" / "as_torch" / "published_spawn.py")
TIMEOUT_S = 120
WITHOUT_LAUNCHER = ("-m", "distcompile.as_torch", SCRIPT, "train")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """What `python words...` did."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.long
def test_a_tutorial_that_spawns_its_ranks_trains() -> None:
    done = ran("-m", "launch", "--as-torch", "-n", "2", SCRIPT, "train")
    assert done.returncode == 0, done.stdout + done.stderr
    losses = re.findall(r"loss ([0-9.]+)", done.stdout)
    assert len(losses) == 2
    assert losses[0] == losses[1]  # the second run starts afresh


@pytest.mark.parametrize(("case", "text"), [
    ("fail", "ProcessRaisedException: .*-- Process 1 terminated with the following error:.*the second rank fails"),
    ("exit", "ProcessExitedException: process 1 terminated with exit code 7"),
])  # fmt: skip
def test_a_rank_that_fails_is_named(case: str, text: str) -> None:
    done = ran("-m", "launch", "--as-torch", "-n", "2", SCRIPT, case)
    assert done.returncode != 0
    assert re.search(text, done.stderr, re.DOTALL), done.stderr


@pytest.mark.long
def test_without_a_launcher_the_command_is_named() -> None:
    done = ran(*WITHOUT_LAUNCHER)
    assert done.returncode != 0
    assert "distcompile.distributed.errors.LaunchError" in done.stderr
    assert "distcompile-run --as-torch -n 2 published_spawn.py" in done.stderr
