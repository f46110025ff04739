"""Recordings of collectives: one rank, alone, does again what it did among others; what differs is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from compiler_core.graph.interpret import interpret
from distcompile import nn, parity
from distcompile.ddp import DistributedDataParallel
from distcompile.distributed import use_communicator
from distcompile.parity.errors import RecordingFileError, ReplayError
from distcompile.parity.replay import RecordingCommunicator, ReplayCommunicator


def train(communicator: Communicator, *, compiled: bool, factor: float = 1.0, steps: int = 3) -> list[np.ndarray]:
    """Parameters after a few steps."""
    with use_communicator(communicator):
        dc.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
        ddp = DistributedDataParallel(model, bucket_cap_mb=1e-5)
        run = dc.compile(ddp) if compiled else ddp
        optimizer = dc.optim.SGD(ddp.parameters(), lr=0.1)
        rng = np.random.default_rng(communicator.rank)
        for _ in range(steps):
            x = dc.from_numpy((factor * rng.standard_normal((5, 4))).astype(np.float32))
            optimizer.zero_grad()
            run(x).square().mean().backward()
            optimizer.step()
        return [p.detach().numpy().copy() for p in ddp.parameters()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_rank_alone_comes_to_the_same_bits(world_size: int, compiled: bool, tmp_path: Path) -> None:
    def record(communicator: Communicator) -> list[np.ndarray]:
        recorder = RecordingCommunicator(communicator, tmp_path / f"rank{communicator.rank}.collectives")
        found = train(recorder, compiled=compiled)
        recorder.flush()
        return found

    together = run_ranks(world_size, record, timeout_s=60)
    for rank, expected in enumerate(together):
        replay = ReplayCommunicator(tmp_path / f"rank{rank}.collectives")
        assert (replay.rank, replay.world_size) == (rank, world_size)
        for mine, theirs in zip(train(replay, compiled=compiled), expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert replay.differences == []


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    def record(communicator: Communicator) -> None:
        recorder = RecordingCommunicator(communicator, tmp_path / f"rank{communicator.rank}")
        train(recorder, compiled=False)
        recorder.flush()

    run_ranks(2, record)
    return tmp_path / "rank1"


def test_other_data_are_listed_with_the_bucket(recording: Path) -> None:
    replay = ReplayCommunicator(recording)
    train(replay, compiled=False, factor=1.5)
    assert replay.differences
    assert "this rank gave other data" in replay.differences[0]
    assert "bucket" in "".join(replay.differences)


def test_another_program_is_a_named_error(recording: Path) -> None:
    with pytest.raises(ReplayError, match="after the end of the recording"):
        train(ReplayCommunicator(recording), compiled=False, steps=4)
    replay = ReplayCommunicator(recording)
    with pytest.raises(ReplayError, match="not the recorded one"):
        replay.all_reduce(np.zeros(3, np.float32), label="mine")


@pytest.mark.parametrize("harm", ["cut", "flip", "other", "missing"])
def test_a_harmed_file_is_a_named_error(harm: str, recording: Path) -> None:
    content = bytearray(recording.read_bytes())
    if harm == "cut":
        recording.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        content[-10] ^= 1
        recording.write_bytes(content)
    elif harm == "other":
        recording.write_bytes(b"something else")
    else:
        recording.unlink()
    with pytest.raises(RecordingFileError):
        ReplayCommunicator(recording)


def test_a_failing_rank_fails_again_alone(tmp_path: Path) -> None:
    def faulty(graph: Any, examples: Sequence[Any]) -> Callable[..., Sequence[Any]]:
        return lambda *tensors: [(1.01 * out).to(out.dtype) for out in interpret(graph.ir, tensors)]

    def check(communicator: Communicator) -> parity.ParityReport:
        with use_communicator(communicator):
            dc.manual_seed(0)
            backend = faulty if communicator.rank == 1 else "aot_eager"
            return parity.check(nn.Linear(4, 2), dc.ones(3, 4), group=communicator, backend=backend)

    def record(communicator: Communicator) -> None:
        recorder = RecordingCommunicator(communicator, tmp_path / str(communicator.rank))
        assert not check(recorder).ok
        recorder.flush()

    run_ranks(2, record)
    again = check(ReplayCommunicator(tmp_path / "1"))
    assert not again.ok
    assert again.rank == 1
