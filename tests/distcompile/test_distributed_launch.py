"""How a job was started: what environment and arguments promise is checked, and never becomes a world of one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import distcompile as dc
from distcompile import distributed as dist
from distcompile.ddp.errors import NotInitializedError
from distcompile.distributed.environment import (
    check_after,
    check_before,
    promises_of_arguments,
    promises_of_environment,
)
from distcompile.distributed.errors import LaunchError

ROOT = Path(__file__).resolve().parents[2]
LAUNCHERS = {
    "torchrun": {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"},
    "a later rank of torchrun": {"RANK": "3", "WORLD_SIZE": "4"},
    "srun without MPI": {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
    "srun's step": {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "2"},
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher's variables, and no group left behind."""
    for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MPI_LOCALRANKID", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("variables", LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_launcher_without_mpi_is_named_with_the_command_to_use(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["/home/me/train.py"])
    with pytest.raises(LaunchError, match=r"(?s)would train alone.*distcompile-run -n 4 train\.py"):
        dist.init_process_group()
    assert not dist.is_initialized()
    dist.init_process_group(world_size=1, rank=0)  # on purpose
    assert dist.get_world_size() == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"world_size": 2},
        {"rank": 1},
        {"init_method": "tcp://10.0.0.1:23456", "world_size": 2, "rank": 0},
        {"init_method": "tcp://10.0.0.1:23456?world_size=2&rank=0"},
        {"init_method": "file:///tmp/shared", "world_size": 3, "rank": 2},
    ],
)
def test_arguments_that_promise_more_ranks_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(LaunchError, match=r"(?s)would train alone.*distcompile-run"):
        dist.init_process_group("gloo", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["env://", "tcp://localhost:1234", "file:///tmp/store"])
def test_torchs_rendezvous_are_taken_when_they_agree(method: str) -> None:
    dist.init_process_group("gloo", init_method=method, world_size=1, rank=0, timeout=timedelta(seconds=5))
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)


def test_other_rendezvous_stores_and_backends_are_refused() -> None:
    with pytest.raises(LaunchError, match="no rendezvous"):
        dist.init_process_group(init_method="etcd://host")
    with pytest.raises(LaunchError, match="no store"):
        dist.init_process_group(store=object())
    with pytest.raises(LaunchError, match="time limit"):
        dist.init_process_group(timeout=0)
    with pytest.raises(NotInitializedError, match=r"(?s)nccl.*there is no NCCL transport here"):
        dist.init_process_group("nccl")


def test_under_mpi_the_promises_of_arguments_and_launcher_are_compared_with_the_world() -> None:
    environment = {"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_NTASKS": "8"}  # mpiexec inside an allocation of 8
    promises = promises_of_environment(environment)
    check_before(promises, environment)
    check_after(promises, 2, 1, "mpi")
    with pytest.raises(LaunchError, match="did another MPI's launcher start it"):
        check_after(promises, 1, 0, "mpi")
    with pytest.raises(LaunchError, match=r"(?s)arguments promised.*world_size=4.*rank 1 of 2"):
        check_after(promises_of_arguments(None, 4, 1), 2, 1, "mpi")
    with pytest.raises(LaunchError, match="torchrun"):
        check_after(promises_of_environment({**environment, "WORLD_SIZE": "8", "RANK": "1"}), 2, 1, "mpi")


def test_the_local_rank_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert dist.get_node_local_rank(fallback_rank=3) == 3
    with pytest.raises(LaunchError, match="LOCAL_RANK"):
        dist.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert dist.get_node_local_rank() == 2


def test_backends_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy and NCCL are loaded by the first tensor on a GPU, not before."""
    for module in ("collectives.connect", "distcompile.distributed.backend"):
        monkeypatch.setattr(sys.modules[module], "is_there", lambda: True)
    for backend, config in {
        "nccl": "cpu:threaded,cuda:nccl", "cpu:gloo,cuda:nccl": "cpu:threaded,cuda:nccl", "gloo": "cpu:threaded"
    }.items():  # fmt: skip
        dist.init_process_group(backend, world_size=1, rank=0)
        assert dist.get_backend_config() == config
        assert dist.get_backend() == ("threaded" if backend == "gloo" else "nccl")
        x = dc.ones(2)
        dist.all_reduce(x)  # on the CPU
        group = dist.new_group([0], backend="nccl")
        assert dist.get_backend(group) == "nccl"
        dist.destroy_process_group()
    assert dist.is_nccl_available()
    assert dist.is_backend_available("nccl")


def test_what_is_available() -> None:
    assert dist.is_backend_available("gloo")
    assert not dist.is_nccl_available()
    assert not dist.is_gloo_available()
    assert not dist.is_ucc_available()
    assert isinstance(dist.is_mpi_available(), bool)
    assert not dist.is_torchelastic_launched()
    assert dist.Backend("GLOO") == "gloo"


def test_a_rank_that_never_comes_ends_the_start_in_time(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "late.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, time
            from distcompile import distributed as dist
            if (os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
                time.sleep(200)
            began = time.monotonic()
            try:
                dist.init_process_group(timeout=1.0)
            finally:
                print(f"gave up after {time.monotonic() - began:.1f} s")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "launch", "-n", "2", "--bind", "none", "--timeout=100", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "CollectiveTimeoutError" in said, said
    (seconds,) = re.findall(r"gave up after ([0-9.]+) s", said)
    assert 1 <= float(seconds) < 60, said


def rank_by_spawn(number: int) -> None:
    import distcompile.distributed as dist

    dist.init_process_group("gloo", rank=number, world_size=2)


def test_a_script_that_spawns_its_ranks_is_told_how_to_start_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from distcompile import multiprocessing

    monkeypatch.setenv("PMI_SIZE", "2")  # of the rank that spawns: not of what it spawns
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(multiprocessing.ProcessRaisedException, match=r"(?s)LaunchError.*distcompile-run -n 2"):
        multiprocessing.spawn(rank_by_spawn, nprocs=2)


def test_torchs_longer_paths_lead_to_the_same_classes() -> None:
    from distcompile import nn
    from distcompile.nn.modules.batchnorm import _BatchNorm
    from distcompile.nn.modules.utils import consume_prefix_in_state_dict_if_present
    from distcompile.nn.parallel.distributed import DistributedDataParallel

    assert DistributedDataParallel is nn.parallel.DistributedDataParallel
    assert issubclass(nn.SyncBatchNorm, _BatchNorm)
    state = {"module.a": 1, "b": 2, "module.c": 3}
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state.items()) == [("a", 1), ("b", 2), ("c", 3)]
