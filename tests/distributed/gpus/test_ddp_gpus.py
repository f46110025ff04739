"""DDP for real: two ranks with a GPU each."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS < 2 or find_spec("cupy") is None, reason="needs two GPUs, and CuPy"),
]
PROGRAM = str(Path(__file__).with_name("ddp_gpu_programs.py"))


@pytest.mark.parametrize("case", ["joined", "across", "compressed", "low_rank", "accumulated", "overlapped"])
def test_two_ranks(case: str) -> None:
    check_ran(run_on_ranks(2, [PROGRAM, case], limit_s=60))


@pytest.mark.parametrize("case", ["compiled", "replayed", "planned", "tuned", "parity_holds", "compiled_overlapped"])
def test_two_ranks_that_compile(case: str) -> None:
    check_ran(run_on_ranks(2, [PROGRAM, case], limit_s=120))


def test_more_ranks_than_gpus_are_told_before_nccl_hangs() -> None:
    result = run_on_ranks(GPUS + 1, [PROGRAM, "joined"], limit_s=60)
    assert "ranks on this host, and" in result.stderr
    assert "use one GPU" in result.stdout + result.stderr
