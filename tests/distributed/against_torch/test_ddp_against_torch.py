"""DDP, its hooks, and steps with collectives in them, train as torch's do: eager, compiled, on threads and on MPI."""

from __future__ import annotations

from typing import Any

import ddp_programs
import hook_programs
import numpy as np
import pytest
import worlds

import distcompile
from collectives import Communicator, run_ranks
from distcompile import distributed

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
RANKS = 2
PROGRAMS = {program.__name__: program for program in ddp_programs.PROGRAMS}
MODES = ["eager", "compiled"]


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return [found["eager"] for found in worlds.torchs(ddp_programs, RANKS, tmp_path_factory.mktemp("torch"))]


@pytest.fixture(scope="module")
def on_mpi(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("mpi4py")
    return worlds.ours(ddp_programs, RANKS, tmp_path_factory.mktemp("mpi"))


def check(name: str, got: Any, expected: Any) -> None:
    rtol, atol = 2e-4, 1e-5
    if name.startswith("hook "):
        rtol = atol = hook_programs.TOLERANCE.get(name, 2e-5)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=rtol, atol=atol)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_threads_train_as_torch(name: str, mode: str, torchs: list[dict[str, Any]]) -> None:
    program = PROGRAMS[name]

    def run(communicator: Communicator) -> Any:
        with distributed.use_communicator(communicator):
            return program(ddp_programs.Side(distcompile, distributed, mode == "compiled"))

    for found, expected in zip(run_ranks(RANKS, run, timeout_s=60), torchs, strict=True):
        check(name, found, expected[name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_mpi_trains_as_torch(name: str, mode: str, torchs: list[dict[str, Any]], on_mpi: list[dict[str, Any]]) -> None:
    for rank in range(RANKS):
        check(name, on_mpi[rank][mode][name], torchs[rank][name])
