"""What the launcher takes for the cause of a rank's death."""

from __future__ import annotations

import errno
import signal

import pytest

from launch.cause import Cause, causes, first_of
from launch.channel import Link
from launch.records import RankRecord
from launch.screen import verdict

STACKS = 'Fatal Python error: {}\n\nCurrent thread 0x1 (most recent call first):\n  File "train.py", line 3 in step\n'


def died(status: int, fault: str) -> RankRecord:
    record = RankRecord(0)
    record.take({"event": "started", "at": 0.0, "pid": 1})
    record.take({"event": "ended", "at": 1.0, "status": status, "relayed": 0})
    record.fault = fault
    return record


@pytest.mark.parametrize(
    ("status", "fault", "exit_code", "what"),
    [
        (signal.SIGSEGV, STACKS.format("Segmentation fault"), 139, "was ended by SIGSEGV"),
        (signal.SIGSEGV, "", 139, "was ended by SIGSEGV"),
        (signal.SIGBUS, STACKS.format("Segmentation fault"), 139, "SIGSEGV (and, as its stacks were written, SIGBUS)"),
        (signal.SIGSEGV, STACKS.format("Aborted"), 134, "SIGABRT (and, as its stacks were written, SIGSEGV)"),
        (signal.SIGKILL, STACKS.format("the GIL was lost"), 137, "was ended by SIGKILL"),
        (3 << 8, STACKS.format("Segmentation fault"), 3, "left with exit code 3"),
    ],
)
def test_a_crash_is_the_signal_whose_stacks_were_being_written(
    status: int, fault: str, exit_code: int, what: str
) -> None:
    """Python's handler reads the stacks of threads that run on, and may fall itself."""
    (cause,) = causes([died(status, fault)], None, None)
    assert (cause.exit_code, cause.kind) == (exit_code, "death")
    assert cause.what.endswith(what)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(errno.ETIMEDOUT, "nobody answers"), "out of reach"),
        (OSError(errno.EHOSTUNREACH, "no route"), "out of reach"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "warden lost"),
        (None, "warden lost"),
    ],
)
def test_a_host_that_does_not_answer_is_no_death(error: OSError | None, kind: str) -> None:
    """A rank whose death nobody saw did not run out of memory: its network was cut."""
    link = Link(_Line(error), is_far=True)  # type: ignore[arg-type]
    assert link.receive() == ([], "")
    assert link.closed
    record = RankRecord(1, is_far=True)
    record.take({"event": "started", "at": 0.0, "pid": 1})
    record.lose_warden(is_cut=link.is_cut)
    (cause,) = causes([record], None, None)
    assert cause.kind == kind
    assert ("memory" in verdict._hint(cause)) == (kind == "warden lost")
    assert ("network" in verdict._hint(cause)) == (kind == "out of reach")


class _Line:
    """A socket that ends so."""

    def __init__(self, error: OSError | None) -> None:
        self.error = error

    def setblocking(self, _: bool) -> None: ...

    def recv(self, _: int) -> bytes:
        if self.error is not None:
            raise self.error
        return b""


def failed(rank: int, at: float, *, consequence: bool = False, suspect: bool = False) -> Cause:
    return Cause("exception", rank, at, 1, "failed", consequence, suspect)


def fell(rank: int, at: float, exit_code: int) -> Cause:
    return Cause("death", rank, at, exit_code, "ended")


@pytest.mark.parametrize(
    ("told", "first"),
    [
        ([failed(1, 1.0), failed(0, 1.2)], 1),  # the earliest
        ([failed(1, 1.0, consequence=True), failed(0, 1.2)], 0),  # but not one that names another rank as its cause
        ([failed(1, 1.0, consequence=True)], 1),  # unless there is no other
        ([failed(0, 1.0), fell(1, 1.3, 137)], 1),  # a peer noticed the death before the kernel told of it
        ([failed(0, 1.0), fell(1, 1.7, 137)], 0),  # which takes no longer than half a second
        ([failed(0, 1.0), fell(1, 1.3, 3)], 0),  # who leaves with a code of its own is noticed as an error of MPI
        ([failed(0, 1.0, suspect=True), fell(1, 1.3, 3)], 1),
        ([fell(0, 1.0, 14), failed(1, 1.3)], 1),  # MPI ended it, as its peer had gone, whose word took longer
        ([fell(0, 1.0, 14), failed(1, 1.7)], 0),
        ([fell(0, 1.0, 14), failed(1, 1.3, suspect=True)], 0),  # its own code, which a peer noticed
        ([fell(0, 1.0, 137), failed(1, 1.3)], 0),
        ([Cause("warden lost", 0, 1.0, 137, "lost"), failed(1, 1.5)], 1),  # of this nobody knows what it was
    ],
)
def test_the_first_cause(told: list[Cause], first: int) -> None:
    found = first_of(told)
    assert found is not None
    assert found.rank == first
