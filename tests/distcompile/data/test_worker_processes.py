"""Worker processes: batches in torch's order, errors with their traceback, nothing that hangs or is left over."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets_for_tests import Squares, Stream

import distcompile as dc
import distcompile.utils.data as ours
from distcompile.errors import ArgumentError, DataLoaderError

LIMIT_S = 60


def workers_alive() -> int:
    """How many workers this process has, but for those of loaders that nothing refers to."""
    gc.collect()
    return sum(process.name.startswith("DataLoader worker") for process in multiprocessing.active_children())


def values(loader: Any) -> list[Any]:
    return [batch.tolist() if hasattr(batch, "tolist") else batch for batch in loader]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [None, 1, 3, 20])
def test_batches_come_in_the_sampler_s_order(workers: int, batch_size: int | None) -> None:
    loader = ours.DataLoader(Squares(10), batch_size, num_workers=workers, prefetch_factor=1)
    assert values(loader) == values(ours.DataLoader(Squares(10), batch_size))
    assert len(loader) == len(list(loader))


class Mixed(Squares):
    """Arrays small and large, and what else a sample may hold."""

    def __getitem__(self, i: int) -> Any:
        big = np.full((50, 100), i, np.float32)
        return {"big": big, "bf16": dc.full((3,), i, dtype=dc.bfloat16), "text": str(i), "pair": (i, big.T[:2])}


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_every_kind_of_batch_through_every_kind_of_process(context: str) -> None:
    loader = ours.DataLoader(Mixed(6), 2, num_workers=2, multiprocessing_context=context)
    for got, want in zip(loader, ours.DataLoader(Mixed(6), 2), strict=True):
        assert got["text"] == want["text"]
        pairs = [(got["big"], want["big"]), (got["bf16"], want["bf16"]), *zip(got["pair"], want["pair"], strict=True)]
        for a, b in pairs:
            assert a.dtype is b.dtype
            assert dc.equal(a, b)
            assert dc.equal(a * 2 + 1, b * 2 + 1)


class Shared(ours.IterableDataset[Any]):
    """A stream of n numbers, shared out among the workers."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        info = ours.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.n, step))


@pytest.mark.parametrize("batch_size", [None, 2, 4])
def test_streams_in_turn_as_in_torch(batch_size: int | None) -> None:
    torch_data = pytest.importorskip("torch.utils.data")

    class Theirs(torch_data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            info = torch_data.get_worker_info()
            return iter(range(info.id, 11, info.num_workers))

    for workers in (1, 2, 3):
        got = values(ours.DataLoader(Shared(11), batch_size, num_workers=workers))
        assert got == values(torch_data.DataLoader(Theirs(), batch_size, num_workers=workers))
    assert values(ours.DataLoader(Shared(11), 3)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    everything = values(ours.DataLoader(Stream(), None, num_workers=2))  # each worker reads it whole, as in torch
    assert sorted(everything) == sorted([*range(10)] * 2)


class Told(Squares):
    def __getitem__(self, i: int) -> Any:
        info = ours.get_worker_info()
        assert info is not None
        assert info.dataset is self
        draws = (random.random(), float(np.random.rand()), dc.rand(()).item())
        return info.id, info.num_workers, info.seed, dc.initial_seed(), os.getpid(), draws, os.environ.get("TOLD")


def tell(worker: int) -> None:
    os.environ["TOLD"] = str(worker)


def told(generator_seed: int, workers: int = 2) -> list[Any]:
    generator = dc.Generator().manual_seed(generator_seed)
    return list(ours.DataLoader(Told(8), None, num_workers=workers, worker_init_fn=tell, generator=generator))


def test_workers_know_who_they_are_and_have_seeds_of_their_own() -> None:
    first, again, other = told(1), told(1), told(2)
    assert [sample[0] for sample in first] == [0, 1] * 4
    assert {sample[1] for sample in first} == {2}
    assert all(sample[2] == sample[3] for sample in first)
    assert first[1][2] == first[0][2] + 1
    assert len({sample[4] for sample in first}) == 2
    assert os.getpid() not in {sample[4] for sample in first}
    assert [sample[6] for sample in first] == ["0", "1"] * 4
    assert [sample[5] for sample in first] == [sample[5] for sample in again]
    assert len({draw for sample in (*first, *other) for draw in sample[5]}) == 3 * 16
    assert ours.get_worker_info() is None
    assert "TOLD" not in os.environ


class Faulty(Squares):
    def __init__(self, n: int, error: Any) -> None:
        super().__init__(n)
        self.error = error

    def __getitem__(self, i: int) -> int:
        if i == 5:
            raise self.error
        return i


class Odd(Exception):
    """One that takes no message."""

    def __init__(self) -> None:
        super().__init__("odd")

    def __reduce__(self) -> Any:
        return Odd, ()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("sample five"), ValueError),
        (KeyError("sample five"), KeyError),
        (StopIteration("sample five"), StopIteration),
        (Odd(), RuntimeError),
    ],
)
def test_errors_come_with_their_batch_and_traceback_and_the_rest_follows(error: Exception, expected: Any) -> None:
    loader = iter(ours.DataLoader(Faulty(10, error), 2, num_workers=2))
    assert [next(loader).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(expected) as found:
        next(loader)
    assert "in DataLoader worker process 0" in str(found.value)
    assert "raise self.error" in str(found.value)
    assert [batch.tolist() for batch in loader] == [[6, 7], [8, 9]]


def broken_start(worker: int) -> None:
    raise OSError("no such disk")


class Secret(Squares):
    def __getitem__(self, i: int) -> Any:
        return lambda: i


def same(batch: Any) -> Any:
    return batch


def test_errors_of_a_worker_s_start_and_of_what_cannot_be_sent() -> None:
    with pytest.raises(OSError, match=r"worker process 0(.|\n)*no such disk"):
        next(iter(ours.DataLoader(Squares(4), num_workers=2, worker_init_fn=broken_start)))
    with pytest.raises((pickle.PicklingError, AttributeError, RuntimeError), match="worker process"):
        next(iter(ours.DataLoader(Secret(4), 2, num_workers=1, collate_fn=same)))


class Deadly(Squares):
    def __getitem__(self, i: int) -> int:
        if i == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


class Leaving(Squares):
    def __getitem__(self, i: int) -> int:
        os._exit(7)


@pytest.mark.parametrize(("dataset", "how"), [(Deadly(8), "SIGKILL"), (Leaving(8), "exit code 7")])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_that_dies_is_named(dataset: Any, how: str, persistent: bool) -> None:
    begin = time.monotonic()
    loader = ours.DataLoader(dataset, 2, num_workers=2, persistent_workers=persistent)
    with pytest.raises(RuntimeError, match=rf"worker \(pid\(s\) \d+\) exited unexpectedly(.|\n)*{how}"):
        list(loader)
    assert time.monotonic() - begin < LIMIT_S
    assert workers_alive() == 0


class Slow(Squares):
    def __getitem__(self, i: int) -> int:
        time.sleep(LIMIT_S)
        return i


def test_a_slow_batch_times_out_and_leaves_nothing() -> None:
    iterator = iter(ours.DataLoader(Slow(4), 2, num_workers=1, timeout=0.2))
    with pytest.raises(DataLoaderError, match=r"timed out after 0\.2 seconds"):
        next(iterator)
    begin = time.monotonic()
    del iterator
    assert workers_alive() == 0
    assert time.monotonic() - begin < LIMIT_S


def test_persistent_workers_stay_and_others_end_with_the_pass() -> None:
    loader = ours.DataLoader(Told(4), None, num_workers=2, persistent_workers=True)
    first, second = list(loader), list(loader)
    pids = {sample[4] for sample in first}
    assert pids == {sample[4] for sample in second}
    assert [s[5] for s in first] != [s[5] for s in second]
    broken_off = iter(loader)
    next(broken_off)
    assert [s[0] for s in loader] == [0, 1, 0, 1]
    with pytest.raises(DataLoaderError, match="after the next one"):
        next(broken_off)
    assert workers_alive() == 2
    del loader, broken_off
    assert workers_alive() == 0
    fleeting = ours.DataLoader(Told(4), None, num_workers=2)
    assert {s[4] for s in fleeting}.isdisjoint({s[4] for s in fleeting})
    assert workers_alive() == 0
    streams = ours.DataLoader(Shared(5), 2, num_workers=2, persistent_workers=True)
    assert values(streams) == values(streams) == [[0, 2], [1, 3], [4]]


def test_out_of_order_gives_all_batches() -> None:
    loader = ours.DataLoader(Squares(20), 2, num_workers=3, in_order=False)
    assert sorted(values(loader)) == values(ours.DataLoader(Squares(20), 2))


def test_large_index_lists_do_not_block() -> None:
    entries = [list(range(4)) * 100_000 for _ in range(6)]
    loader = ours.DataLoader(Squares(4), batch_sampler=entries, num_workers=1, prefetch_factor=6)
    assert [len(batch) for batch in loader] == [400_000] * 6


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"multiprocessing_context": "fork"}, ArgumentError),
        ({"num_workers": 1, "multiprocessing_context": "magic"}, ArgumentError),
        ({"num_workers": 1, "multiprocessing_context": 3}, TypeError),
        ({"num_workers": 1, "prefetch_factor": 0}, ArgumentError),
        ({"persistent_workers": True}, ArgumentError),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ours.DataLoader(Squares(4), **arguments)
    loader = ours.DataLoader(Squares(4))
    with pytest.raises(ArgumentError, match="after DataLoader is initialized"):
        loader.batch_size = 3


SCRIPT = """
import os, sys, time
import distcompile as dc
import distcompile.distributed as dist
from distcompile import nn
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group()
dc.manual_seed(0)
data = TensorDataset(dc.randn(64, 8), dc.randn(64, 1))
loader = DataLoader(data, 4, sampler=DistributedSampler(data), num_workers=2, persistent_workers=True)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)))
model = dc.compile(ddp)
optimizer = dc.optim.SGD(ddp.parameters(), 0.05)
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
total = dc.tensor([sum(p.sum().item() for p in ddp.parameters())])
high = total.clone()
dist.all_reduce(high, dist.ReduceOp.MAX)
assert high.item() == total.item()
print("trained", dist.get_rank(), flush=True)
"""


@pytest.mark.long
def test_workers_beside_mpi_and_its_threads(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "launch", "-n", "2", str(tmp_path / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("trained") == 2


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_workers_end_when_the_loader_s_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        textwrap.dedent(
            """
            import os, time
            from distcompile.utils.data import DataLoader, Dataset
            class Slow(Dataset):
                def __len__(self): return 9
                def __getitem__(self, i):
                    os.write(1, b"%d\\n" % os.getpid())  # one write: those of two workers do not mix
                    time.sleep(300)
            next(iter(DataLoader(Slow(), num_workers=2)))
            """
        )
    )
    process = subprocess.Popen([sys.executable, str(tmp_path / "s.py")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(2)]
    process.kill()
    process.wait(LIMIT_S)
    end = time.monotonic() + LIMIT_S
    while any(map(lives, pids)):
        assert time.monotonic() < end, "workers outlive their loader"
        time.sleep(0.1)
    process.stdout.close()
