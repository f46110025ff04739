"""torch.multiprocessing: processes that fail are named with their traceback, and the others end; judged by torch."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from process_functions import WAIT_S, die, fail, leave, step_and_send, write

import distcompile as dc
from distcompile import multiprocessing as ours
from distcompile.errors import ArgumentError

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.multiprocessing")


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


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_in_other_processes_are_on_the_same_memory(method: str) -> None:
    """Sent either way, and written on either side."""
    for library, names in ((dc, ours), (torch, theirs)):
        context = names.get_context(method)
        sent, seen = context.Queue(), context.Queue()
        model, given = library.nn.Linear(2, 2), library.zeros(3).share_memory_()
        library.nn.init.ones_(model.weight)
        library.nn.init.zeros_(model.bias)
        model.share_memory()
        started = names.start_processes(
            step_and_send,
            (library.__name__, model, given, sent, seen),
            nprocs=1,
            join=False,
            start_method=method,
        )
        made = sent.get(timeout=WAIT_S)
        assert made.tolist() == [1, 1, 1]
        seen.put(None)
        sent.get(timeout=WAIT_S)
        assert made.tolist() == [2, 2, 2]
        seen.put(None)
        assert started.join(WAIT_S)
        assert (given.tolist(), given.is_shared(), model.weight.requires_grad) == ([5, 5, 5], True, True)
        assert (model.weight.tolist(), model.bias.tolist()) == ([[0.5, 0.5], [0.5, 0.5]], [-0.5, -0.5])


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
