"""DDP, and steps with collectives in them, train as torch's do: eager and compiled, on threads and on MPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ddp_programs
import numpy as np
import pytest
from mpi_job import ROOT, check_ran, run_on_ranks

import distcompile
from collectives import Communicator, run_ranks
from distcompile import distributed

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
RANKS = 2
SCRIPT = str(Path(ddp_programs.__file__))
PROGRAMS = {program.__name__: program for program in ddp_programs.PROGRAMS}
MODES = ["eager", "compiled"]


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What torch's ranks return, by rank."""
    folder = tmp_path_factory.mktemp("torch")
    started = [
        subprocess.Popen(
            [sys.executable, SCRIPT, "torch", str(rank), str(RANKS), str(folder / "store"), str(folder / "out")],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), "\n".join(said)
    return [found["eager"] for found in read(folder / "out")]


@pytest.fixture(scope="module")
def on_mpi(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("mpi4py")
    out = tmp_path_factory.mktemp("mpi") / "out"
    check_ran(run_on_ranks(RANKS, [SCRIPT, "ours", str(out)], limit_s=200))
    return read(out)


def check(got: Any, expected: Any) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_train_as_torch(name: str, mode: str, torchs: list[dict[str, Any]]) -> None:
    program = PROGRAMS[name]

    def run(communicator: Communicator) -> Any:
        with distributed.use_communicator(communicator):
            return program(ddp_programs.Side(distcompile, distributed, mode == "compiled"))

    for found, expected in zip(run_ranks(RANKS, run, timeout_s=60), torchs, strict=True):
        check(found, expected[name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_mpi_trains_as_torch(name: str, mode: str, torchs: list[dict[str, Any]], on_mpi: list[dict[str, Any]]) -> None:
    for rank in range(RANKS):
        check(on_mpi[rank][mode][name], torchs[rank][name])
