"""Errors before MPI is used: a thread level that is too low, an MPI that is not there, transports that do not exist."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from collectives import connect, was_launched_by_mpi
from collectives.call import CollectiveCall, Task
from collectives.errors import CollectiveArgumentError, MpiNotFoundError, ThreadLevelError, TransportError
from collectives.over_mpi.library import check_thread_level, load_mpi
from collectives.over_mpi.thread_engine import ThreadEngine
from collectives.work import LocalWork


def test_a_thread_level_below_multiple_is_refused() -> None:
    check_thread_level(3, 3)
    with pytest.raises(ThreadLevelError, match="MPI_THREAD_MULTIPLE"):
        check_thread_level(1, 3)


def test_a_missing_mpi_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(MpiNotFoundError, match=r"distcompile\[mpich\]"):
        load_mpi()


def test_a_launcher_is_known_by_its_variables() -> None:
    assert was_launched_by_mpi({"PMI_RANK": "0"})
    assert was_launched_by_mpi({"OMPI_COMM_WORLD_RANK": "1"})
    assert not was_launched_by_mpi({"HOME": "/"})


def test_an_unknown_transport_is_an_error() -> None:
    with pytest.raises(CollectiveArgumentError, match="carrier pigeon"):
        connect("carrier pigeon")  # type: ignore[arg-type]


def test_an_error_inside_mpi_becomes_ours() -> None:
    class Broken(ThreadEngine):
        def __init__(self) -> None:
            self.where, self.broken = "rank 0 of 1", None

        def _run(self, task: Task, work: LocalWork) -> None:
            raise ZeroDivisionError("link down")

    work = LocalWork("bucket 1", rank=0, nbytes=0, timeout_s=1)
    empty = np.empty(0)
    Broken()._serve_one(Task(CollectiveCall("barrier"), empty, empty, "bucket 1"), work)
    with pytest.raises(TransportError, match="link down"):
        work.wait()
