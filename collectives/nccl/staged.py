"""A message received into host memory on its way to a device array.

In: the host's Work, and what copies the message to the device. Out: a Work whose `wait` does so, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from collectives.work import Rows, Work, WorkTimes


class StagedReceive(Work):
    """`inner`, and then `land`, by whoever waits first."""

    rows: Rows = ()

    def __init__(self, inner: Work, land: Callable[[], None]) -> None:
        self.inner, self.land, self.lock, self.has_landed = inner, land, threading.Lock(), False
        self.what, self.rank, self.nbytes, self.timeout_s = inner.what, inner.rank, inner.nbytes, inner.timeout_s

    @property
    def peer(self) -> int | None:  # type: ignore[override]
        return self.inner.peer

    @property
    def times(self) -> WorkTimes:
        return self.inner.times

    @property
    def phase(self) -> str:
        return self.inner.phase

    @property
    def skipped(self) -> bool:
        return self.inner.skipped

    @property
    def is_held(self) -> bool:
        return self.inner.is_held

    def is_done(self) -> bool:
        return self.inner.is_done()

    def wait(self, timeout_s: float | None = None) -> None:
        self.inner.wait(timeout_s)
        with self.lock:
            if not self.has_landed:
                self.has_landed = True
                self.land()

    def release(self) -> None:
        self.inner.release()

    def cancel(self) -> None:
        self.inner.cancel()
