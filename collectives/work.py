"""`Work`: the handle on a collective in flight, with the times of its life.

In: a transport, which moves it queued -> gathering -> running -> done. Out: `wait`, `is_done`, `times`.
Times are `time.perf_counter()` seconds of this process: launched (handed over), started (all ranks present, data
move), ended. Invariants: launched <= started <= ended; a Work ends once, with or without an error; every wait has a
time limit.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from collectives.errors import CollectiveError, CollectiveTimeoutError

DEFAULT_TIMEOUT_S = 1800.0  # torch.distributed's default for CPU groups


@dataclass(frozen=True, slots=True)
class WorkTimes:
    """When a collective was launched, started moving data, and ended: perf_counter seconds; NaN: not yet."""

    launched_s: float
    started_s: float
    ended_s: float


class Work:
    """One collective in flight on one rank. `what` describes it in messages; `nbytes` is the buffer's size."""

    def __init__(self, what: str, *, rank: int, nbytes: int, timeout_s: float) -> None:
        self.what, self.rank, self.nbytes, self.timeout_s = what, rank, nbytes, timeout_s
        self.phase = "queued behind earlier collectives"
        self.peer: int | None = None  # of a message between two ranks: the other one, once it is known
        self.is_awaited = False  # someone sits in wait(): the transport may then spend the core on being quick
        self._launched_s = time.perf_counter()
        self._started_s = self._ended_s = math.nan
        self._error: CollectiveError | None = None
        self._ended = threading.Event()

    @property
    def times(self) -> WorkTimes:
        return WorkTimes(self._launched_s, self._started_s, self._ended_s)

    def is_done(self) -> bool:
        """Whether it ended, well or not. Never blocks."""
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the collective ended. timeout_s: seconds; None: the communicator's own limit.

        Raises CollectiveTimeoutError after that time (the collective stays in flight), or the error it ended with.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        if not self._ended.is_set():
            self.is_awaited = True
            if not self._ended.wait(limit_s):
                self.is_awaited = False
                raise self.timeout_error(limit_s)
        if self._error is not None:
            raise self._error

    def timeout_error(self, limit_s: float) -> CollectiveTimeoutError:
        """The error that says how far this collective came in `limit_s` seconds."""
        return CollectiveTimeoutError(
            f"{self.what} did not finish within {limit_s:g} s",
            where=f"rank {self.rank}",
            got=self.phase,
            remedy="look at the named ranks: still computing or compiling, in another collective, or gone; "
            "raise timeout_s if they are only slow",
        )

    def start(self) -> None:
        """Transport only: all ranks are present, data begins to move."""
        self.phase, self._started_s = "moving data", time.perf_counter()

    def finish(self, error: CollectiveError | None = None) -> None:
        """Transport only: it ended; `error` is raised in wait()."""
        self._error, self._ended_s = error, time.perf_counter()
        if math.isnan(self._started_s):
            self._started_s = self._ended_s
        self.phase = "done" if error is None else "failed"
        self._ended.set()
