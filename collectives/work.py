"""`Work`: the handle on a collective in flight, with the times of its life; `Gate`: agreement in launch order.

In: a transport, which moves it queued -> gathering -> running -> done. Out: `wait`, `is_done`, `skipped`, `times`.
A Work that was launched *held* starts only once it is released; `cancel` gives it up instead. A Work behind a gate that
did not pass ends as skipped, on all ranks, without any data moved.
Times are `time.perf_counter()` seconds of this process: launched (handed over), released (NaN unless held), started
(all ranks present, data move), ended. Invariants: launched <= started <= ended; a Work ends once, with or without an
error; every wait has a time limit.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from collectives.errors import CollectiveError, CollectiveTimeoutError
from collectives.observer import ASK_EVERY_S, EXCUSED_S, LONG_WAIT_S, current

GRACE_S = 5.0  # for the transport, which knows more, to say first that the limit is over
DEFAULT_TIMEOUT_S = 1800.0  # torch.distributed's default for CPU groups
QUEUED = "queued behind earlier collectives"
Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class WorkTimes:
    """When a collective was launched, started moving data, ended, and was released: perf_counter s; NaN: not yet.

    One that was skipped started when it ended; released_s stays NaN for one that was never held.
    """

    launched_s: float
    started_s: float
    ended_s: float
    released_s: float = math.nan


class TimesOfWork(Protocol):
    """As `WorkTimes`."""

    @property
    def launched_s(self) -> float: ...
    @property
    def started_s(self) -> float: ...
    @property
    def ended_s(self) -> float: ...
    @property
    def released_s(self) -> float: ...


class Mark(Protocol):
    """A point in the work of a GPU."""

    @property
    def time_s(self) -> float:
        """When it got there, in seconds of perf_counter; NaN: not yet."""


class Work(ABC):
    """One collective in flight on one rank.

    what: describes it in messages. nbytes: the larger buffer's size. timeout_s: the limit of a wait that gives none.
    peer: of a message between two ranks, the other one, once it is known.
    """

    what: str
    rank: int
    nbytes: int
    timeout_s: float
    peer: int | None

    @property
    @abstractmethod
    def times(self) -> WorkTimes:
        """When it was launched, released, started, ended."""

    def late_times(self) -> TimesOfWork:
        """Its times, once it was waited for. What is on a GPU may go on: then they are read from it when asked for."""
        return self.times

    @property
    @abstractmethod
    def phase(self) -> str:
        """What it is doing, in words."""

    @property
    @abstractmethod
    def skipped(self) -> bool:
        """Whether it ended without moving data: its gate did not pass, nobody needed it, or it was given up."""

    @property
    @abstractmethod
    def is_held(self) -> bool:
        """Whether it still waits for `release`."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """Of a gate: what each rank said; empty before."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether it ended, well or not. Never blocks."""

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the collective ended. timeout_s: seconds; None: the communicator's own limit.

        Raises CollectiveTimeoutError after that time (the collective stays in flight), or the error it ended with.
        """

    def synchronize(self, timeout_s: float | None = None) -> None:
        """As `wait`; of what is on a GPU, too, the host waits until it is done there."""
        self.wait(timeout_s)

    @abstractmethod
    def release(self) -> None:
        """Let a held collective start as soon as the earlier ones have ended. Once is enough; more does nothing."""

    @abstractmethod
    def cancel(self) -> None:
        """Give a held collective up: it ends here as skipped, and was never started.

        The other ranks, if they release theirs, meet this rank's next call instead and get a mismatch that names both.
        """

    def timeout_error(self, limit_s: float) -> CollectiveTimeoutError:
        """The error that says how far this collective came in `limit_s` seconds."""
        return CollectiveTimeoutError(
            f"{self.what} did not finish within {limit_s:g} s",
            where=f"rank {self.rank}",
            got=self.phase,
            remedy="look at the named ranks: still computing or compiling, in another collective, or gone; "
            "raise timeout_s if they are only slow",
        )


class LocalWork(Work):
    """A Work that Python moves along."""

    phase = QUEUED
    skipped = False
    is_held = False
    rows: Rows = ()

    def __init__(self, what: str, *, rank: int, nbytes: int, timeout_s: float, held: bool = False) -> None:
        self.what, self.rank, self.nbytes, self.timeout_s, self.peer = what, rank, nbytes, timeout_s, None
        self.is_awaited = False  # someone sits in wait(): the transport may then spend the core on being quick
        self.is_cancelled = False
        if held:
            self.phase, self.is_held = "held until it is released", True
        self._released = threading.Event()
        self.on_release: Callable[[], None] = self._released.set  # what the transport does then
        self.on_end: Callable[[], object] | None = (
            None  # called by whoever ends it, maybe with a lock of the transport's
        )
        self._launched_s = time.perf_counter()
        self._started_s = self._ended_s = self._released_s = math.nan
        self._error: CollectiveError | None = None
        self._ended = threading.Event()

    @property
    def times(self) -> WorkTimes:
        return WorkTimes(self._launched_s, self._started_s, self._ended_s, self._released_s)

    def is_done(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> None:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if not self._ended.is_set():
            self.is_awaited = True
            if not self._ended.wait(min(limit_s, LONG_WAIT_S)):
                self._wait_long(limit_s, is_own=timeout_s is None)
        if self._error is not None:
            raise self._error

    def _wait_long(self, limit_s: float, *, is_own: bool) -> None:
        """Go on, telling the observer. is_own: the limit is the communicator's, which a compiling rank stretches."""
        observer, deadline_s = current(), time.perf_counter() + limit_s - LONG_WAIT_S
        deadline_s += GRACE_S if is_own else 0.0
        try:
            while True:
                observer.waiting(self.what, ())
                left_s = deadline_s - time.perf_counter()
                if self._ended.wait(min(max(left_s, 0.0), ASK_EVERY_S)):
                    return
                if left_s <= 0:
                    if not (is_own and observer.excuses((), limit_s)):
                        raise self.timeout_error(limit_s)
                    deadline_s += EXCUSED_S
        finally:
            self.is_awaited = False
            observer.settled()

    def release(self) -> None:
        if self.is_held:
            self._released_s = time.perf_counter()
            self.is_held = False
            self.phase = QUEUED
            self.on_release()

    def cancel(self) -> None:
        if self.is_held:
            self.is_cancelled = True
            self.release()

    def become_forked(self, error: CollectiveError) -> None:
        """Transport only, in a forked child: nobody will end it, and whoever held its locks is not here."""
        is_over, self._ended, self.on_end = self._ended.is_set(), threading.Event(), None
        self.on_release = lambda: None
        if is_over:
            self._ended.set()
        else:
            self.finish(error)

    def await_release(self) -> None:
        """Transport only: return when this Work is not held (any more)."""
        if self.is_held:
            self._released.wait()

    def start(self) -> None:
        """Transport only: all ranks are present, data begins to move."""
        self.phase, self._started_s = "moving data", time.perf_counter()

    def finish(self, error: CollectiveError | None = None, *, skipped: bool = False) -> None:
        """Transport only: it ended; `error` is raised in wait()."""
        self._error, self._ended_s, self.skipped = error, time.perf_counter(), skipped
        if math.isnan(self._started_s):
            self._started_s = self._ended_s
        self.phase = "failed" if error is not None else "skipped" if skipped else "done"
        self._ended.set()
        if self.on_end is not None:
            self.on_end()


class Gate:
    """An asynchronous all-gather of a few words, in launch order with the collectives that depend on it.

    It passes if the first `agree` words are equal on all ranks. Work launched with `gate=` this gate is skipped on
    all ranks if it does not.
    """

    def __init__(self, work: Work, agree: int) -> None:
        self.work, self.agree = work, agree

    def wait(self, timeout_s: float | None = None) -> Rows:
        """All ranks' words, by rank. Blocks; raises what `Work.wait` raises."""
        self.work.wait(timeout_s)
        return self.work.rows

    @property
    def passed(self) -> bool | None:
        """Whether the ranks agreed; None while it is not known (or never will be: `wait` raises)."""
        rows = self.work.rows
        return len({row[: self.agree] for row in rows}) == 1 if rows else None
