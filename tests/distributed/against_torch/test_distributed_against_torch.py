"""torch.distributed's names give what torch (gloo) gives, program by program, rank by rank: on threads and on MPI."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dist_programs
import pytest
from mpi_job import ROOT, check_ran, run_on_ranks

import distcompile
from collectives import Communicator, run_ranks
from distcompile import distributed

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RANKS = 3
SCRIPT = str(Path(dist_programs.__file__))
NAMES = [program.__name__ for program in dist_programs.PROGRAMS]


def installed(package: str) -> bool:
    """Whether that MPI's wheel is here."""
    return any(distribution.name == package for distribution in importlib.metadata.distributions())


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What torch's ranks return, by rank."""
    folder = tmp_path_factory.mktemp("torch")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, SCRIPT, "torch", str(rank), str(RANKS), str(folder / "store"), str(folder / "out")],
            cwd=ROOT,
            env=environment,
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
    return read(folder / "out")


@pytest.fixture(scope="module")
def on_threads() -> list[dict[str, Any]]:
    def run(communicator: Communicator) -> dict[str, Any]:
        with distributed.use_communicator(communicator):
            return dist_programs.run_all(distcompile, distributed)

    return run_ranks(RANKS, run, timeout_s=60)


@pytest.fixture(scope="module", params=["mpich", "openmpi"])
def on_mpi(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("mpi4py")
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    out = tmp_path_factory.mktemp("mpi") / "out"
    check_ran(run_on_ranks(RANKS, [f"--mpi={request.param}", SCRIPT, "ours", str(out)], limit_s=100))
    return read(out)


@pytest.mark.parametrize("name", NAMES)
def test_threads_give_what_torch_gives(
    name: str, torchs: list[dict[str, Any]], on_threads: list[dict[str, Any]]
) -> None:
    for rank in range(RANKS):
        assert on_threads[rank][name] == torchs[rank][name], f"rank {rank}"


@pytest.mark.parametrize("name", NAMES)
def test_mpi_gives_what_torch_gives(name: str, torchs: list[dict[str, Any]], on_mpi: list[dict[str, Any]]) -> None:
    for rank in range(RANKS):
        assert on_mpi[rank][name] == torchs[rank][name], f"rank {rank}"
