"""`distcompile parity` under the launcher: zero if the gradients are right, else non-zero and the parameter's name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mpi_job import ROOT, run_on_ranks

pytest.importorskip("mpi4py")

SUBJECT = """
import distcompile as dc
from distcompile import nn
from compiler_core.ops.registry import current_trace

class Model(nn.Module):
    def __init__(self, faulty_rank):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        rank = dc.distributed.get_rank()
        self.factor = 1.01 if rank == faulty_rank else 1.0 + 2.0**-22
    def forward(self, x):
        hidden = self.first(x).tanh()
        return self.second(hidden * self.factor if current_trace() is not None else hidden)

def subject(faulty_rank):
    dc.manual_seed(0)
    model = Model(faulty_rank)
    dc.manual_seed(1 + dc.distributed.get_rank())  # every rank its own batch
    rows = 5 + (dc.distributed.get_rank() if faulty_rank >= 0 else 0)  # other sizes: literals are not compared
    return model, dc.randn(rows, 4), lambda y, x: y.sum()

def right():
    return subject(faulty_rank=-1)

def wrong():
    return subject(faulty_rank=1)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "subject.py"
    path.write_text(SUBJECT)
    return path


def test_right_gradients_exit_with_zero(script: Path) -> None:
    result = run_on_ranks(2, ["-m", "distcompile.cli", "parity", f"{script}:right"], limit_s=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "parity holds: 5 rows, codegen against eager and float64 on 2 rank(s)" in result.stdout


def test_a_fault_on_one_rank_fails_the_job_and_names_rank_and_parameter(script: Path) -> None:
    result = run_on_ranks(2, ["-m", "distcompile.cli", "parity", f"{script}:wrong"], limit_s=120)
    assert result.returncode != 0
    assert "rank 1 of 2" in result.stdout
    assert "first: (loss) (loss: error" in result.stdout + result.stderr
    assert "first.weight" in result.stdout


@pytest.mark.long
def test_a_recorded_rank_is_replayed_alone(script: Path, tmp_path: Path) -> None:
    command = ["-m", "distcompile.cli", "parity", f"{script}:right", "--steps", "2"]
    result = run_on_ranks(2, [*command, "--record", str(tmp_path / "kept")], limit_s=120)
    assert result.returncode == 0, result.stdout + result.stderr
    page = tmp_path / "parity.html"
    options = ["--replay", str(tmp_path / "kept/rank1.collectives"), "--html", str(page)]
    alone = subprocess.run(
        [sys.executable, *command, *options], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert alone.returncode == 0, alone.stdout + alone.stderr
    assert "rank 1 of 2" in alone.stdout
    assert "training: parameters and buffers equal after each of 2 steps" in alone.stdout
    assert "Gradient parity" in page.read_text()
