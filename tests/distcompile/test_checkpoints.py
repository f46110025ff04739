"""Checkpoints: resumed to equal bits at any number of ranks; damaged, half-written and unwritable ones are named."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import nn
from distcompile.data import DistributedSampler
from distcompile.distributed import use_communicator
from distcompile.distributed.checkpoint import Checkpoints, Position
from distcompile.distributed.optim import ZeroRedundancyOptimizer
from distcompile.errors import ArgumentError, CheckpointError
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.optim import Adam
from distcompile.optim.lr_scheduler import StepLR

DATA = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
BATCH = 2


class Job:
    """A model with dropout and batch norm, an optimizer, a scheduler and a sampler: all that has state."""

    def __init__(self, folder: Path, *, zero: bool = False, compiled: bool = False, overlap: Any = "backward") -> None:
        dc.manual_seed(7)
        net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.ddp = DistributedDataParallel(net, overlap=overlap)
        self.model: Any = dc.compile(self.ddp) if compiled else self.ddp
        make: Any = (lambda p: ZeroRedundancyOptimizer(p, Adam, lr=0.05)) if zero else (lambda p: Adam(p, lr=0.05))
        self.optimizer = make(self.ddp.parameters())
        self.scheduler = StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.sampler = DistributedSampler(DATA)
        self.checkpoints = Checkpoints(folder)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def resume(self) -> Position:
        at = self.checkpoints.load(**self.parts)
        self.sampler.set_position(at.epoch, at.samples)
        return at

    def train(self, steps: int, at: Position) -> Position:
        indices = iter(self.sampler)
        for step in range(at.step, at.step + steps):
            batch = dc.from_numpy(DATA[[next(indices) for _ in range(BATCH)]])
            self.optimizer.zero_grad()
            noise = float(np.random.random() + random.random())
            (self.model(batch).square().mean() * (1 + 0 * noise)).backward()
            self.optimizer.step()
            self.scheduler.step()
            samples = at.samples + (step + 1 - at.step) * BATCH * self.sampler.num_replicas
            position = Position(step + 1, at.epoch, samples)
        return position

    def bits(self) -> dict[str, bytes]:
        tensors = {name: tensor.numpy().tobytes() for name, tensor in self.ddp.module.state_dict().items()}
        return {**tensors, "draws": repr((dc.rand(3).tolist(), np.random.random(), random.random())).encode()}


@pytest.fixture(autouse=True)
def generators() -> Any:
    state, numpys = random.getstate(), np.random.get_state()
    yield
    random.setstate(state)
    np.random.set_state(numpys)


@pytest.mark.parametrize(
    ("ranks", "options"),
    [(1, {}), (3, {}), (2, {"zero": True}), (2, {"compiled": True}), (2, {"compiled": True, "overlap": "step"})],
)
def test_a_resumed_job_is_the_uninterrupted_one_bit_by_bit(ranks: int, options: dict[str, Any], tmp_path: Path) -> None:
    def whole(world: Communicator) -> dict[str, bytes]:
        with use_communicator(world):
            job = Job(tmp_path, **options)
            job.train(5, Position())
            return {name: value for name, value in job.bits().items() if name != "draws"}

    def begun(world: Communicator) -> None:
        with use_communicator(world):
            job = Job(tmp_path, **options)
            assert job.resume() == Position()
            job.checkpoints.save(job.train(2, Position()), **job.parts)

    def resumed(world: Communicator) -> dict[str, bytes]:
        with use_communicator(world):
            job = Job(tmp_path, **options)
            dc.rand(11)  # what happened before loading makes no difference
            at = job.resume()
            assert at == Position(2, 0, 2 * BATCH * ranks)
            job.train(3, at)
            return {name: value for name, value in job.bits().items() if name != "draws"}

    expected = run_ranks(ranks, whole)
    run_ranks(ranks, begun)
    assert run_ranks(ranks, resumed) == expected


def test_the_state_is_the_same_at_any_number_of_ranks_and_without_ddp(tmp_path: Path) -> None:
    def begun(world: Communicator) -> None:
        with use_communicator(world):
            job = Job(tmp_path)
            job.checkpoints.save(job.train(2, Position()), **job.parts)

    def resumed(world: Communicator) -> tuple[dict[str, bytes], bytes]:
        with use_communicator(world):
            job = Job(tmp_path)
            at = job.resume()
            state = job.optimizer.state_dict()["state"]
            moments = b"".join(state[i]["exp_avg"].numpy().tobytes() for i in sorted(state))
            read = [x for rank in range(world.world_size) for x in indices(rank, world.world_size, at)]
            assert sorted(read)[: 40 - at.samples] is not None
            return {k: v for k, v in job.bits().items() if k != "draws"}, moments

    def indices(rank: int, replicas: int, at: Position) -> list[int]:
        sampler = DistributedSampler(DATA, replicas, rank)
        sampler.set_position(at.epoch, at.samples)
        return list(sampler)

    run_ranks(2, begun)
    results = [result for ranks in (1, 2, 4) for result in run_ranks(ranks, resumed)]
    assert all(result == results[0] for result in results)
    at = Position(2, 0, 8)
    left = {replicas: sorted(i for r in range(replicas) for i in indices(r, replicas, at)) for replicas in (1, 2, 4)}
    assert left[1] == left[2] == left[4]
    assert len(left[1]) == len(set(left[1])) == 32
    plain = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = Adam(plain.parameters(), lr=0.05)
    parts = {"model": plain, "optimizer": optimizer, "scheduler": StepLR(optimizer, 2)}
    assert Checkpoints(tmp_path).load(**parts).step == 2
    assert plain.state_dict()["0.weight"].numpy().tobytes() == results[0][0]["0.weight"]


def saved_steps(folder: Path, steps: int = 3) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in range(1, steps + 1):
        model = nn.Linear(2, 2)
        with dc.no_grad():
            model.weight.fill_(float(step))
        checkpoints.save(Position(step), model=model)
    return checkpoints


def test_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = saved_steps(tmp_path, 4)
    assert [path.name for path in checkpoints.paths()] == [f"step-{n:010d}.safetensors" for n in (4, 3)]
    assert len(os.listdir(tmp_path)) == 2
    with pytest.raises(ArgumentError):
        Checkpoints(tmp_path, keep=0)


def test_whatever_is_damaged_is_never_loaded(tmp_path: Path) -> None:
    """Truncations and changed bytes, most in the header: the checkpoint before is taken, or an error names all."""
    checkpoints = saved_steps(tmp_path)
    newest, before = checkpoints.paths()
    good = newest.read_bytes()
    rng = random.Random(0)
    cuts = [good[: rng.randrange(len(good))] for _ in range(30)]
    places = sorted({*range(0, len(good), 397), *range(0, min(2000, len(good)), 17)})
    flips = [good[:i] + bytes([good[i] ^ (1 << rng.randrange(8))]) + good[i + 1 :] for i in places]
    for data in [b"", *cuts, *flips]:
        newest.write_bytes(data)
        model = nn.Linear(2, 2)
        at = checkpoints.load(model=model)
        if at.step == 3:  # a byte that means nothing, such as a blank in the header
            assert (model.weight.detach().numpy() == 3).all()
        else:
            assert at.step == 2
            assert (model.weight.detach().numpy() == 2).all()
    newest.write_bytes(good[:100])
    before.write_bytes(good[:200])

    def step(world: Communicator) -> None:
        with use_communicator(world), pytest.raises(CheckpointError, match=r"(?s)step-0000000003.*step-0000000002"):
            Checkpoints(tmp_path).load(model=nn.Linear(2, 2))

    run_ranks(2, step)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_checkpoint_that_cannot_be_written_is_an_error_on_all_ranks_and_leaves_the_others(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = saved_steps(tmp_path)
    before = sorted(os.listdir(tmp_path))

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)

    def step(world: Communicator) -> None:
        with use_communicator(world), pytest.raises(CheckpointError, match=r"(?s)step 9.*No space left"):
            Checkpoints(tmp_path).save(Position(9), model=nn.Linear(2, 2))

    run_ranks(2, step)
    assert sorted(os.listdir(tmp_path)) == before
    assert checkpoints.load(model=nn.Linear(2, 2)).step == 3


def test_other_parts_are_named(tmp_path: Path) -> None:
    saved_steps(tmp_path)
    model = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"(?s)other parts.*model, optimizer.*model"):
        Checkpoints(tmp_path).load(model=model, optimizer=Adam(model.parameters()))


def test_generators_of_ranks_that_differ_go_on_where_they_were(tmp_path: Path) -> None:
    def run(world: Communicator, loads: bool) -> list[float]:
        with use_communicator(world):
            model = nn.Linear(2, 2)
            checkpoints = Checkpoints(tmp_path)
            if loads:
                checkpoints.load(model=model)
            else:
                dc.manual_seed(world.rank)
                checkpoints.save(Position(1), model=model)
            return list(dc.rand(3).tolist())

    drawn = run_ranks(2, lambda world: run(world, False))
    assert drawn[0] != drawn[1]
    assert run_ranks(2, lambda world: run(world, True)) == drawn
    with pytest.warns(match="generators of 2 ranks differed"):
        run_ranks(1, lambda world: run(world, True))


def test_a_sampler_goes_on_within_an_epoch_and_starts_the_next_one_whole() -> None:
    whole = list(DistributedSampler(DATA[:11], 2, 1))
    sampler = DistributedSampler(DATA[:11], 2, 1)
    sampler.set_position(0, 4)
    assert list(sampler)[:3] == whole[2:5]
    assert len(sampler) == len(list(sampler)) == 4
    sampler.set_epoch(1)
    assert len(list(sampler)) == 6
    sampler.set_position(0, 99)
    assert list(sampler) == []
    with pytest.raises(ArgumentError):
        sampler.set_position(0, -1)
