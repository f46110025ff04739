"""Jobs that fail: an uncaught exception on one rank ends all ranks, traceback first; nothing hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mpi_job import ROOT, run_on_ranks

pytest.importorskip("mpi4py")

DIES = """
import numpy as np
from collectives import connect
world = connect("mpi", timeout_s=60)
if world.rank == 1:
    raise ValueError("rank one is out")
world.all_reduce(np.zeros(4), label="bucket 0")
"""


def test_an_uncaught_exception_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    result = run_on_ranks(2, [str(script)], limit_s=60)
    assert result.returncode != 0
    assert "ValueError: rank one is out" in result.stdout + result.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_exception_after_the_end_of_the_group_is_shown_as_it_is(tmp_path: Path, ranks: int) -> None:
    script = tmp_path / "late.py"
    script.write_text('from collectives import connect\nconnect("mpi").close()\nraise ValueError("too late")\n')
    result = run_on_ranks(ranks, [str(script)], limit_s=60)
    assert result.returncode == 1
    assert "ValueError: too late" in result.stderr
    assert "excepthook" not in result.stdout + result.stderr


def test_one_rank_alone_does_not_load_mpi() -> None:
    checks = "c.world_size == 1 and 'mpi4py' not in sys.modules"
    code = f"import sys; from collectives import connect; c = connect(); c.barrier(); assert {checks}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
