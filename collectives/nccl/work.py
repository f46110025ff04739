"""`NcclWork`: a collective of device arrays. It is waited for by streams, not by the host.

    launched -> (all ranks are known to come) enqueued on the communication stream -> done there

In: the engine, which moves it. Out: what `Work` promises, with one difference: `wait` returns when the collective is
enqueued, and the thread's current stream, not the host, waits for its end. `is_done` asks the device.
Invariants: it starts after what the launching thread's stream held at the launch (of a held one: at the release);
its arrays are referred to until a stream has waited for it, or it is done: then their memory may be used again.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from collectives.call import Task
from collectives.errors import CollectiveError
from collectives.nccl.clock import Clock
from collectives.nccl.cuda import Event
from collectives.nccl.permit import Permit
from collectives.work import Rows, TimesOfWork, Work, WorkTimes

if TYPE_CHECKING:
    from collectives.nccl.engine import NcclEngine


class DeviceTimes:
    """The times of a collective on a GPU, read when they are asked for; NaN before it is done.

    released_s: when what made its arrays was done: nothing could have started before.
    """

    __slots__ = ("_events", "clock", "launched_s")

    def __init__(self, clock: Clock, launched_s: float, events: tuple[Event | None, ...]) -> None:
        self.clock, self.launched_s, self._events = clock, launched_s, events

    def _time_s(self, place: int) -> float:
        event = self._events[place]
        return math.nan if event is None else self.clock.time_s(event)

    @property
    def released_s(self) -> float:
        return self._time_s(0)

    @property
    def started_s(self) -> float:
        return self._time_s(1)

    @property
    def ended_s(self) -> float:
        return self._time_s(2)


class NcclWork(Work):
    """One collective on one rank. after: the event behind what made its arrays; None while it is held."""

    rows: Rows = ()

    def __init__(self, engine: NcclEngine, task: Task, permit: Permit, after: Event | None) -> None:
        self.engine, self.permit, self.after = engine, permit, after
        self.what, self.rank, self.timeout_s = str(task), engine.rank, engine.timeout_s
        self.nbytes, self.peer = task.nbytes, None
        self.task: Task | None = task
        self.launched_on = engine.cuda.pointer(engine.cuda.current())
        self.is_cancelled = False
        self.settled = threading.Event()  # enqueued, skipped, or failed
        self.began: Event | None = None
        self.ended: Event | None = None
        self.error: CollectiveError | None = None
        self.launched_s = time.perf_counter()
        self.released_s = self.enqueued_s = self.skipped_s = math.nan

    @property
    def times(self) -> WorkTimes:
        """Of one that is not done, only when it was launched. Asks the device: not for a step's path."""
        if self.skipped:
            return WorkTimes(self.launched_s, self.skipped_s, self.skipped_s, self.released_s)
        clock = self.engine.clock
        if self.began is None or self.ended is None or self.error is not None or not self.is_done():
            return WorkTimes(self.launched_s, math.nan, math.nan, self.released_s)
        return WorkTimes(self.launched_s, clock.time_s(self.began), clock.time_s(self.ended), self.released_s)

    def late_times(self) -> TimesOfWork:
        if self.skipped or self.error is not None:
            return self.times
        return DeviceTimes(self.engine.clock, self.launched_s, (self.after, self.began, self.ended))

    @property
    def phase(self) -> str:
        if self.error is not None:
            return "failed"
        if self.skipped:
            return "skipped"
        if self.ended is None:
            return "held until it is released" if self.is_held else self.permit.phase
        return "done" if self.is_done() else "on the GPU, or behind what is"

    @property
    def skipped(self) -> bool:
        return not math.isnan(self.skipped_s)

    @property
    def is_held(self) -> bool:
        return self.after is None and not self.is_cancelled

    def is_done(self) -> bool:
        if not self.settled.is_set():
            self.engine.advance()
            if not self.settled.is_set():
                return False
        return self.ended is None or self.error is not None or self.engine.cuda.is_done(self.ended)

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when it is enqueued; what the current stream is given from now on comes after it.

        The host waits only while ranks are still on their way to this collective. Raises as `Work.wait`.
        """
        if not self.settled.is_set():
            self.engine.enqueue_until(self, timeout_s)
        if self.error is None and self.engine.is_freed and self.ended is not None:
            self.task = None  # whoever asks at the end of the program: it was done before the engine went
            return
        if self.error is not None or self.engine.broken is not None:
            raise self.error or self.engine.broken or AssertionError
        if self.ended is not None:
            cuda = self.engine.cuda
            here = cuda.current()
            cuda.wait(here, self.ended)
            if cuda.pointer(here) == self.launched_on:  # whose memory it is: it may be used again by what comes after
                self.task = None

    def synchronize(self, timeout_s: float | None = None) -> None:
        """Have the host wait until it is done. Raises as `wait`."""
        self.wait(timeout_s)
        if self.ended is not None:
            self.engine.cuda.synchronize(self.ended)
            self.engine.check()

    def release(self) -> None:
        if self.is_held:
            self.after = self.engine.mark()
            self.released_s = time.perf_counter()
            self.engine.nudge()

    def cancel(self) -> None:
        if self.is_held:
            self.is_cancelled = True
            self.permit.withdraw()
            self.engine.nudge()

    # -- the engine's part

    def skip(self) -> None:
        """It ends here, and moved nothing."""
        self.skipped_s, self.task = time.perf_counter(), None
        self.settled.set()

    def fail(self, error: CollectiveError) -> None:
        """It ends with `error`."""
        self.error = self.error or error
        self.settled.set()
