"""Communication hooks train as torch's do: our DDP, eager and compiled, on threads and MPI, against torch's on gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hook_programs
import numpy as np
import pytest
from mpi_job import ROOT, check_ran, run_on_ranks

import distcompile
from collectives import Communicator, run_ranks
from distcompile import distributed
from distcompile.nn.parallel import DistributedDataParallel

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
RANKS = 2
SCRIPT = str(Path(hook_programs.__file__))
# 16-bit floats: torch sums in 16 bits, we in 32
TOLERANCE = {"fp16": 2e-3, "bf16": 2e-2, "fp16 around custom": 2e-3}
NAMES = (
    "none", "allreduce", "fp16", "bf16", "custom", "fp16 around custom", "powerSGD rank 1", "powerSGD rank 3, cold",
    "powerSGD rank 2, no feedback", "post local", "post local, no averages",
)  # fmt: skip


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
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
    return [json.loads(Path(f"{folder / 'out'}.{rank}").read_text())["eager"] for rank in range(RANKS)]


@pytest.fixture(scope="module", params=["eager", "compiled"])
def on_threads(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    def wrap(model: Any) -> Any:
        ddp = DistributedDataParallel(model)
        return (distcompile.compile(ddp) if request.param == "compiled" else ddp), ddp

    def run(communicator: Communicator) -> dict[str, Any]:
        with distributed.use_communicator(communicator):
            return hook_programs.run(distcompile, distributed, "distcompile.distributed", wrap)

    return run_ranks(RANKS, run, timeout_s=100)


@pytest.fixture(scope="module")
def on_mpi(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("mpi4py")
    out = tmp_path_factory.mktemp("mpi") / "out"
    check_ran(run_on_ranks(RANKS, [SCRIPT, "ours", str(out)], limit_s=120))
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(RANKS)]


def check(name: str, got: Any, expected: Any) -> None:
    limit = TOLERANCE.get(name, 2e-5)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=limit, atol=limit, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_threads_train_as_torch(name: str, torchs: list[dict[str, Any]], on_threads: list[dict[str, Any]]) -> None:
    for rank in range(RANKS):
        check(name, on_threads[rank][name], torchs[rank][name])


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("name", NAMES)
def test_mpi_trains_as_torch(name: str, mode: str, torchs: list[dict[str, Any]], on_mpi: list[dict[str, Any]]) -> None:
    for rank in range(RANKS):
        check(name, on_mpi[rank][mode][name], torchs[rank][name])
