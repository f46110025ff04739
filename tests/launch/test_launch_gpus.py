"""GPUs as the launcher sees them: by /dev and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.machine import gpus


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with four GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("named", "count"),
    [(None, 4), ("", 0), ("-1", 0), ("2", 1), ("0,3", 2), ("1,-1,2", 1), ("GPU-8a1b,GPU-77", 2), ("0,1,2,3,4,5", 4)],
)
def test_gpus_are_those_that_cuda_shows(host: Path, named: str | None, count: int) -> None:
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    assert gpus.count(environment, host) == count


def test_a_rank_takes_the_gpu_of_its_local_rank_unless_the_user_chose(host: Path, tmp_path: Path) -> None:
    assert gpus.choice(2, {}, host) == {"DISTCOMPILE_CUDA_DEVICE": "2"}
    assert gpus.choice(5, {}, host) == {"DISTCOMPILE_CUDA_DEVICE": "1"}
    assert gpus.choice(3, {"CUDA_VISIBLE_DEVICES": "3"}, host) == {"DISTCOMPILE_CUDA_DEVICE": "0"}
    assert gpus.choice(2, {"DISTCOMPILE_CUDA_DEVICE": "0"}, host) == {}
    assert gpus.choice(2, {}, tmp_path / "none") == {}


def test_more_ranks_than_gpus_are_told(host: Path, tmp_path: Path) -> None:
    assert gpus.shortage(5, {}, host).startswith("5 ranks on this host, and 4 GPUs: NCCL takes one rank a GPU")
    assert "and 1 GPU: " in gpus.shortage(2, {"CUDA_VISIBLE_DEVICES": "1"}, host)
    assert gpus.shortage(4, {}, host) == gpus.shortage(9, {}, tmp_path / "none") == ""


def test_ranks_of_several_hosts_take_what_was_not_measured_unless_the_user_chose() -> None:
    assert gpus.alike(several_hosts=True, environ={}) == {"DISTCOMPILE_MEASURE": "0"}
    assert gpus.alike(several_hosts=False, environ={}) == {}
    assert gpus.alike(several_hosts=True, environ={"DISTCOMPILE_MEASURE": "1"}) == {}
