"""NCCL for real: two ranks with a GPU each, and the same as if on two hosts (sockets, no shared memory)."""

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
PROGRAM = str(Path(__file__).with_name("nccl_programs.py"))


@pytest.mark.parametrize(
    "case",
    ["right", "copied", "messages", "streams", "mismatch", "missing", "stuck", "shared", "speed", "message_speed"],
)
def test_two_ranks(case: str) -> None:
    check_ran(run_on_ranks(2, [PROGRAM, case], limit_s=60))


def test_as_if_on_two_hosts() -> None:
    apart = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "DISTCOMPILE_COPY_ENGINES": "0"}
    check_ran(run_on_ranks(2, [PROGRAM, "right", "messages", "streams"], limit_s=60, environment=apart))
