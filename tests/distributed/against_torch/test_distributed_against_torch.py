"""torch.distributed's names give what torch (gloo) gives, program by program, rank by rank: on threads and on MPI."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import dist_programs
import pytest
import worlds

import distcompile
from collectives import Communicator, run_ranks
from distcompile import distributed

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RANKS = 3
NAMES = [program.__name__ for program in dist_programs.PROGRAMS]


def installed(package: str) -> bool:
    """Whether that MPI's wheel is here."""
    return any(distribution.name == package for distribution in importlib.metadata.distributions())


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return worlds.torchs(dist_programs, RANKS, tmp_path_factory.mktemp("torch"))


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
    return worlds.ours(dist_programs, RANKS, tmp_path_factory.mktemp("mpi"), request.param)


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
