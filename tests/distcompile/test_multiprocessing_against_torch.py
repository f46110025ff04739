"""torch.multiprocessing: processes that fail are named with their traceback, and the others end; judged by torch."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import distcompile as dc
from distcompile import multiprocessing as ours
from distcompile.errors import ArgumentError

theirs = pytest.importorskip("torch.multiprocessing")


def write(number: int, folder: str, text: str) -> None:
    (Path(folder) / str(number)).write_text(text)


def fail(number: int) -> None:
    if number == 1:
        raise ValueError("the second one")
    time.sleep(60)


def leave(number: int) -> None:
    if number == 0:
        sys.exit(5)
    time.sleep(60)


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_every_process_is_called_with_its_number(method: str, tmp_path: Path) -> None:
    assert ours.start_processes(write, (str(tmp_path), "x"), nprocs=3, start_method=method) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1", "2"]
    started = ours.spawn(write, (str(tmp_path), "y"), nprocs=1, join=False)
    assert started is not None
    assert len(started.pids()) == 1
    while not started.join(0.05):
        pass
    assert (tmp_path / "0").read_text() == "y"
    assert started.join()


@pytest.mark.parametrize("function", [fail, leave, die])
def test_failures_are_torchs(function: Any) -> None:
    found = []
    for library in (ours, theirs):
        begin = time.monotonic()
        with pytest.raises((library.ProcessRaisedException, library.ProcessExitedException)) as raised:
            library.start_processes(function, nprocs=2, start_method="fork")
        error = raised.value
        assert time.monotonic() - begin < 30
        text = str(error).strip().splitlines()
        number = getattr(error, "error_index", None)
        found.append([type(error).__name__, number, getattr(error, "exit_code", None), text[0], text[-1]])
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.error_pid) == (type(error), str(error), error.error_pid)
    if function is die:
        for one in found:  # either may be seen first
            one[1], one[3], one[4] = 0, one[3].replace("process 1", "process 0"), one[4].replace("s 1", "s 0")
    assert found[0] == found[1]


def double(number: int, given: Any, results: Any) -> None:
    results.put((given * 2).tolist())


def test_tensors_go_to_other_processes_as_copies() -> None:
    results: Any = ours.get_context("spawn").SimpleQueue()
    ours.spawn(double, (dc.ones(3), results), nprocs=1)
    assert results.get() == [2.0, 2.0, 2.0]


def test_names_of_sharing_and_of_start_methods() -> None:
    assert ours.get_all_sharing_strategies() == theirs.get_all_sharing_strategies()
    assert ours.get_sharing_strategy() == theirs.get_sharing_strategy()
    ours.set_sharing_strategy("file_system")
    assert ours.get_sharing_strategy() == "file_system"
    ours.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError):
        ours.set_sharing_strategy("magic")
    with pytest.raises(ArgumentError, match="start method"):
        ours.start_processes(write, start_method="magic")
    assert {"Process", "Queue", "Pool", "Manager", "set_start_method"} <= set(ours.__all__)
