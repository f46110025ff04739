"""Who failed first? The rule by which one cause is chosen, and everything else is shown as its consequence.

In: what wardens, ranks and the kernel told (`records.py`), and how mpiexec ended. Out: `Cause`s, the first one first.
The rule:
  1. what happened after the launcher began to end the job, what mpiexec passed on or tore down, and an error that says
     of itself that another rank is its cause, are consequences;
  2. of the rest, the earliest is the cause;
  3. except that a death told by the kernel comes before an exception that was told up to `_NOTICED_S` earlier, if the
     exception can be the noticing of that death (any exception for a signal; an error of the system or of MPI for an
     exit): the kernel closes a dying process's files before it tells the parent, so a peer may notice first;
  4. except that an exit without a word comes after an exception of another rank that was told up to `_NOTICED_S` later,
     if that is no noticing: Open MPI ends a process whose peer has gone, and a far host's word takes longer to arrive;
  5. a SIGKILLed mpiexec is the cause of every death that nobody can explain.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from launch.records import RankRecord

Kind = Literal[
    "exception", "death", "left early", "warden lost", "out of reach", "never started", "orphaned", "mpiexec", "aborted"
]
MPIEXEC = -1
_NOTICED_S = 0.5
_CRASH = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_CRASHES: dict[str, int] = {  # in faulthandler's words
    "Segmentation fault": signal.SIGSEGV, "Bus error": signal.SIGBUS, "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE, "Aborted": signal.SIGABRT, "Illegal instruction": signal.SIGILL,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause:
    """One failure. rank: or MPIEXEC. at: time.monotonic(). what: for a sentence that starts with the rank."""

    kind: Kind
    rank: int
    at: float
    exit_code: int
    what: str
    is_consequence: bool = False
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class MpiexecEnd:
    """How mpiexec ended. signum: the signal that somebody else sent to it, or 0."""

    at: float
    signum: int


def causes(
    records: Sequence[RankRecord], mpiexec: MpiexecEnd | None, ending_at: float | None, unborn: Sequence[Cause] = ()
) -> list[Cause]:
    """Every failure of the job: the first cause, then the rest by time. ending_at: when the launcher began to end it.

    unborn: ranks that died before they could say anything.
    """
    found = [*unborn, *(cause for record in records if (cause := _told(record)) is not None)]
    found = [cause for cause in found if ending_at is None or cause.at <= ending_at]
    if ending_at is None and len(found) == len(records) and all(cause.kind == "left early" for cause in found):
        found = []  # that is how this program ends
    found.sort(key=lambda cause: cause.at)
    first = first_of(found)
    if mpiexec is not None and mpiexec.signum and (ending_at is None or mpiexec.at <= ending_at):
        name = signal.Signals(mpiexec.signum).name
        above = Cause("mpiexec", MPIEXEC, mpiexec.at, 128 + mpiexec.signum, f"mpiexec itself was ended by {name}")
        explains = first is None or first.is_consequence or first.kind == "warden lost" or above.at < first.at
        first = above if explains else first
    return [first, *(cause for cause in found if cause is not first)] if first is not None else []


def _told(record: RankRecord) -> Cause | None:
    rank, end, failure = record.rank, record.end, record.failure
    if failure is not None:
        what = f"failed with exit code {failure.exit_code}"
        is_suspect = failure.suspect
        return Cause("exception", rank, failure.at, failure.exit_code, what, failure.consequence, is_suspect)
    if end is not None and end.status:
        if record.is_orphaned:
            return Cause("orphaned", rank, end.at, end.exit_code, "was ended, for the mpiexec above it had gone", True)
        if end.relayed and end.relayed == end.signum:
            return Cause("death", rank, end.at, end.exit_code, f"{end.how}, which mpiexec passed on", True)
        fell_first = _first_crash(record.fault)
        if end.signum and fell_first not in (0, end.signum):
            how = f"was ended by {_name(fell_first)} (and, as its stacks were written, {_name(end.signum)})"
            return Cause("death", rank, end.at, 128 + fell_first, how)
        return Cause("death", rank, end.at, end.exit_code, end.how)
    if record.left_early:
        assert end is not None
        return Cause("left early", rank, end.at, 1, "left with exit code 0 before the end of its program")
    if record.lost_at is not None and record.is_cut:
        return Cause("out of reach", rank, record.lost_at, 1, "is out of reach: its host does not answer")
    if record.lost_at is not None:
        return Cause(
            "warden lost", rank, record.lost_at, 137, "was ended together with its warden, the process above it"
        )
    return None


def _first_crash(fault: str) -> int:
    """The signal of which Python's handler began to write stacks, or 0: that may fall, over a stack that moves."""
    said = _CRASH.search(fault)
    return _CRASHES.get(said[1], 0) if said else 0


def _name(signum: int) -> str:
    return signal.Signals(signum).name


def first_of(found: Sequence[Cause]) -> Cause | None:
    """The first cause of `found`, which is in order of time."""
    able = [cause for cause in found if not cause.is_consequence]
    known = [cause for cause in able if cause.kind not in ("warden lost", "never started")]
    first = next(iter(known), None) or next(iter(able), None) or next(iter(found), None)
    if first is not None and first.kind == "death" and first.exit_code < 128:
        told = (cause for cause in able if cause.kind == "exception" and not cause.is_suspect)
        return next((cause for cause in told if cause.at < first.at + _NOTICED_S), first)
    if first is None or first.kind != "exception":
        return first
    noticed = [cause for cause in able if cause.at < first.at + _NOTICED_S and _could_be_noticed(cause, first)]
    return noticed[0] if noticed else first


def _could_be_noticed(death: Cause, exception: Cause) -> bool:
    """Whether `exception` can be a peer's noticing of `death`."""
    if death.kind in ("left early", "warden lost") or (death.kind == "death" and death.exit_code < 128):
        return exception.is_suspect
    return death.kind in ("death", "never started")
