"""What the launcher takes for the cause of a rank's death."""

from __future__ import annotations

import errno
import signal

import pytest

from launch.cause import causes
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
