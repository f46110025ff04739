"""Times of events on the host's clock.

In: events of a device. Out: seconds of `time.perf_counter()`.
Method: an event on a stream without work is recorded and waited for at once; what the host's clock shows then, is its
time (to some ten microseconds); other events are so and so long after it or before it. CUDA tells that in
single-precision milliseconds, so the reference is renewed when it gets old.
"""

from __future__ import annotations

import math
import threading
import time

from collectives.nccl.cuda import Event, Runtime, Stream

RENEW_S = 30.0  # elapsed times are then good to 4 us


class EventMark:
    """An event, as a time."""

    __slots__ = ("clock", "event")

    def __init__(self, clock: Clock, event: Event) -> None:
        self.clock, self.event = clock, event

    @property
    def time_s(self) -> float:
        return self.clock.time_s(self.event)


class Clock:
    """The clock of one device."""

    def __init__(self, cuda: Runtime) -> None:
        self.cuda, self.lock = cuda, threading.Lock()
        self.stream: Stream | None = None
        self.reference: Event | None = None
        self.reference_s = 0.0

    def time_s(self, event: Event) -> float:
        """When `event` happened; NaN if it has not yet."""
        if not self.cuda.is_done(event):
            return math.nan
        with self.lock:
            if self.reference is None or time.perf_counter() - self.reference_s > RENEW_S:
                self._renew()
            return self.reference_s - self.cuda.elapsed_s(event, self.reference)

    def _renew(self) -> None:
        if self.stream is None:
            self.stream = self.cuda.new_stream()
        self.reference = self.cuda.record(self.stream)
        self.cuda.synchronize(self.reference)
        self.reference_s = time.perf_counter()
