"""Futures: values that come later, as torch.futures has them: what hooks return and what `Work.get_future()` gives.

In: `set_result`, `set_exception`, or a wait that produces the value. Out: `wait`, `then`, `done`, `value`.
A Future made from a collective looks when it is asked: its callbacks run in the thread that first waits for it (or asks
`done` and finds it so), in the order in which they were added. Nothing here blocks the communication thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from distcompile.errors import ArgumentError

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that is there, or will be. devices: taken for torch's sake."""

    def __init__(self, *, devices: object = None) -> None:
        self._ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], Any]] = []
        self._is_ready: Callable[[], bool] | None = None
        self._produce: Callable[[], T] | None = None
        self._needs: Sequence[Future[Any]] = ()
        self._lock = threading.RLock()

    @classmethod
    def produced_by(
        cls, produce: Callable[[], T], is_ready: Callable[[], bool], needs: Sequence[Future[Any]] = ()
    ) -> Future[T]:
        """A Future whose value `produce()` makes, at the first wait; is_ready: whether that would not block.

        needs: Futures that have their values by then.
        """
        future = cls()
        future._produce, future._is_ready, future._needs = produce, is_ready, needs
        return future

    def done(self) -> bool:
        """Whether there is a value, or an error. Never blocks."""
        if not self._ended.is_set() and self._is_ready is not None and self._is_ready():
            self._settle()
        return self._ended.is_set()

    def wait(self) -> T:
        """Block until there is a value, and return it; or raise its error."""
        self.ends_by(math.inf)
        return self.value()

    def ends_by(self, deadline_s: float) -> bool:
        """Block until there is a value, or an error, but no longer than until perf_counter says `deadline_s`.

        Returns whether there is. What collectives produce it keep to time limits of their own.
        """
        if not all(future.ends_by(deadline_s) for future in self._needs):
            return False
        self._settle()
        left_s = deadline_s - time.perf_counter()
        return self._ended.wait(None if left_s == math.inf else max(left_s, 0.0))

    def value(self) -> T:
        """The value, which must be there. Raises its error."""
        if not self.done():
            raise ArgumentError("the future has no value yet", remedy="wait() for it")
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def set_result(self, result: T) -> None:
        """Give the value, once."""
        self._end(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Give an error instead of a value, once."""
        self._end(None, result)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A Future of what `callback(self)` returns, called when this one has its value."""

        chained: Future[S] = Future.produced_by(lambda: callback(self), self.done, needs=[self])
        self.add_done_callback(lambda _: chained._settle())
        return chained

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call `callback(self)` once this Future has its value: at once if it has."""
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def _settle(self) -> None:
        """Make the value, if this Future makes its own. What goes wrong in that is its error."""
        with self._lock:
            produce, self._produce = self._produce, None
            if produce is None:
                return
            try:
                result, error = produce(), None
            except Exception as raised:  # noqa: BLE001 - raised again by whoever asks for the value
                result, error = None, raised
        self._end(result, error)

    def _end(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._ended.is_set():
                raise ArgumentError("the future has a value already", remedy="set it once")
            self._result, self._error = result, error
            self._ended.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A Future of all these futures, done when they are."""

    return Future.produced_by(
        lambda: list(futures), lambda: all(future.done() for future in futures), needs=list(futures)
    )


def wait_all(futures: Sequence[Future[T]]) -> list[T]:
    """Wait for all values. Raises the first error."""
    return [future.wait() for future in futures]
