"""Lazy streams and their events, and the runtime that a communicator sees them by.

In: work, as functions. Out: it is done in order, up to an event, by whoever needs that event. All streams of a fabric
are driven under its one lock. A stream that waits for a word of memory (`Until`) is blocked until it is there: whoever
drives it does the work of other streams meanwhile, one piece at a time, for that may write the word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fake_cupy.array import ndarray


class Event:
    """A point in a stream: done once all before it is."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.time_s = stream, 0.0
        self.is_done = False


HANG_S = 60.0  # a test that hangs fails


class Until:
    """Work that is done when `ready` says so, and not before."""

    def __init__(self, runtime: Runtime, ready: Callable[[], bool], what: str) -> None:
        self.runtime, self.ready, self.what = runtime, ready, what

    def __call__(self) -> None:
        until_s = time.perf_counter() + HANG_S
        while not self.ready():
            if not self._step_another():
                self.runtime.news.wait(0.001)  # others enqueue meanwhile
            assert time.perf_counter() < until_s, f"{self.what} hangs"

    def is_ready(self) -> bool:
        return self.ready()

    def _step_another(self) -> bool:
        """Do one piece of work of any stream that is not blocked: by a wait like this one, or by ranks that have not
        come to a collective (one of them may wait for us, who would wait here in its place).
        """
        for stream in list(self.runtime.streams.values()):
            first = stream.queue[0] if stream.queue else None
            if first is not None and getattr(first, "is_ready", lambda: True)():
                stream.drive(first)
                return True
        return False


class Stream:
    """A queue of work. is_eager: what computes; its work is done when it is given."""

    def __init__(self, lock: threading.RLock, *, is_eager: bool = False) -> None:
        self.lock, self.is_eager = lock, is_eager
        self.queue: list[Callable[[], None] | Event] = []
        self.has_waited = False  # for what computes, since the last collective
        self.follows = False  # it has ever waited for what computes
        self.makes = False  # it computes itself what it sends

    def add(self, work: Callable[[], None] | Event) -> None:
        with self.lock:
            self.queue.append(work)
            if self.is_eager:
                self.drive(None)

    def drive(self, last: Any) -> None:
        """Do the work up to `last`, an event or a function of the queue; None: all. The caller holds the lock."""
        while self.queue:
            first = self.queue[0]
            if isinstance(first, Event):
                first.is_done, first.time_s = True, time.perf_counter()
            else:
                first()
            if self.queue and self.queue[0] is first:
                self.queue.pop(0)
            if first is last:
                return

    def reach(self, event: Event) -> None:
        with self.lock:
            if not event.is_done:
                self.drive(event)


class Runtime:
    """One rank's device. identity: of its GPU."""

    def __init__(self, lock: threading.RLock, streams: dict[int, Stream], *, identity: int, index: int = 0) -> None:
        self.lock, self.streams, self.index, self._identity = lock, streams, index, identity
        self.computes = self._made(Stream(lock, is_eager=True))
        self.news = threading.Condition(lock)
        self.memory: Any = None  # what `peer_memory` gives; None: this GPU has no such thing

    def _made(self, stream: Stream) -> Stream:
        self.streams[id(stream)] = stream
        return stream

    def use(self) -> None:
        return None

    def current(self) -> Stream:
        return self.computes

    def new_stream(self) -> Stream:
        return self._made(Stream(self.lock))

    def pointer(self, stream: Stream) -> int:
        return id(stream)

    def address(self, array: Any) -> int:
        assert type(array) is ndarray
        return array.data.ptr

    def record(self, stream: Stream) -> Event:
        event = Event(stream)
        stream.add(event)
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        if stream.is_eager:
            event.stream.reach(event)
        else:
            stream.has_waited |= event.stream.is_eager
            stream.follows |= event.stream.is_eager
            stream.add(lambda: event.stream.reach(event))

    def is_done(self, event: Event) -> bool:
        """A program that asks gives the GPU time to get there; the engine's own thread, which looks on, does not.

        But at the start, when nothing that was computed is under way, that thread itself waits.
        """
        if not (threading.current_thread().name.startswith("nccl") and event.stream.follows):
            event.stream.reach(event)
        return event.is_done

    def synchronize(self, event: Event) -> None:
        event.stream.reach(event)

    def elapsed_s(self, first: Event, last: Event) -> float:
        assert (first.is_done, last.is_done) == (True, True)
        return last.time_s - first.time_s

    def empty(self, stream: Stream, numel: int, dtype: np.dtype[Any]) -> Any:
        from tests.fake_cupy.module import current

        return current().empty(numel, dtype)  # type: ignore[attr-defined]

    def run(self, stream: Stream, function: Callable[[], None]) -> None:
        stream.makes = True
        stream.add(function)

    def to_host(self, array: Any) -> Any:
        return array.get()

    def fill(self, array: Any, values: Any) -> None:
        array.set(values)

    def identity(self) -> int:
        return self._identity

    def peer_memory(self) -> Any:
        if self.memory is None:
            raise RuntimeError("no memory that others reach")
        return self.memory
