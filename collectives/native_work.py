"""`Work` of the native engine: a view of a task that lives in C++, and the waits that Python does for it.

In: a task's address. Out: what `Work` promises. State and times are read in place, without a call. A wait is native; it
comes back four times a second, to let signals in, and to say when it gets long.
Invariant: the task's memory lives as long as this object, and its buffers until it is done: the engine's list of
pending works sees to that.
"""

from __future__ import annotations

import ctypes
import math
import time
from typing import TYPE_CHECKING

from collectives.call import GATE_WORDS, Array, Task
from collectives.errors import CollectiveError, CollectiveTimeoutError
from collectives.observer import ASK_EVERY_S, LONG_WAIT_S
from collectives.over_mpi.rollcall import LENGTH, WORDS, Patience
from collectives.programs import MessageProgram
from collectives.work import QUEUED, Rows, Work, WorkTimes

if TYPE_CHECKING:
    from collectives.native_engine import NativeEngine

DONE = 3
RECORD_WORDS = 48


class TaskView(ctypes.Structure):
    """The beginning of `struct Task` (native/state.h)."""

    _fields_ = (
        ("state", ctypes.c_uint32),
        ("held", ctypes.c_uint32),
        ("cancelled", ctypes.c_uint32),
        ("skipped", ctypes.c_uint32),
        ("awaited", ctypes.c_uint32),
        ("refs", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("passed", ctypes.c_uint32),
        ("launched_ns", ctypes.c_int64),
        ("released_ns", ctypes.c_int64),
        ("started_ns", ctypes.c_int64),
        ("ended_ns", ctypes.c_int64),
        ("next", ctypes.c_void_p),
        ("record", ctypes.c_int64 * RECORD_WORDS),
    )


class NativeWork(Work):
    """One collective in the native engine."""

    def __init__(
        self,
        engine: NativeEngine,
        task: Task,
        pointer: int,
        nbytes: int,
        program: MessageProgram | None,
        table: Array | None,
    ) -> None:
        self.engine, self.pointer, self.program, self.table = engine, pointer, program, table
        self.rank, self.timeout_s, self.nbytes, self.peer = engine.rank, engine.timeout_s, nbytes, None
        self.call, self.label = task.call, task.label
        self.task: Task | None = task  # its buffers live until it is done
        self.view = TaskView.from_address(pointer)
        self.drop = engine.library.quick.dc_drop

    def __del__(self) -> None:
        self.drop(self.pointer)

    @property
    def what(self) -> str:  # type: ignore[override]
        return f"{self.label}: {self.call}" if self.label else str(self.call)

    @property
    def times(self) -> WorkTimes:
        view = self.view
        return WorkTimes(
            _seconds(view.launched_ns), _seconds(view.started_ns), _seconds(view.ended_ns), _seconds(view.released_ns)
        )

    @property
    def phase(self) -> str:
        view = self.view
        if view.state == DONE:
            return "failed" if view.error else "skipped" if view.skipped else "done"
        if view.held:
            return "held until it is released"
        if view.state == 0:
            return QUEUED
        return f"waiting for rank(s) {self.engine.missing()}" if view.state == 1 else "moving data"

    @property
    def skipped(self) -> bool:
        return bool(self.view.skipped)

    @property
    def is_held(self) -> bool:
        return bool(self.view.held) and self.view.state != DONE

    @property
    def rows(self) -> Rows:
        view = self.view
        if view.state != DONE or view.error or view.skipped or self.call.kind != "gate":
            return ()
        address = self.pointer + ctypes.sizeof(TaskView)
        words = (ctypes.c_int64 * (LENGTH * self.engine.world_size)).from_address(address)
        starts = range(WORDS.start, len(words), LENGTH)
        return tuple(tuple(words[start : start + min(self.call.count, GATE_WORDS)]) for start in starts)

    @property
    def failed_while_mpi_moved(self) -> bool:
        """Whether messages from and into its arrays may still be posted. One that never started ended as it started."""
        view = self.view
        return bool(view.error) and self.program is not None and view.started_ns < view.ended_ns

    def is_done(self) -> bool:
        return bool(self.view.state == DONE)

    def wait(self, timeout_s: float | None = None) -> None:
        if self.view.state != DONE:
            self._wait(self.timeout_s if timeout_s is None else timeout_s, is_own=timeout_s is None)
        self.engine.settle()
        if self.view.error:
            raise self.engine.failure()

    def _wait(self, limit_s: float, *, is_own: bool) -> None:
        """Native; once it gets long, in slices. is_own: the limit is the communicator's, which breaks with it."""
        first_s = min(limit_s, LONG_WAIT_S)
        if self.engine.wait(self.pointer, first_s):
            return
        deadline_s = time.perf_counter() + limit_s - first_s
        patience = Patience(self.what, self.rank, limit_s if is_own else math.inf, self.engine.world)
        try:
            while (left_s := deadline_s - time.perf_counter()) > 0 or is_own:
                if self.engine.wait(self.pointer, min(ASK_EVERY_S, max(left_s, 0.0))):
                    return
                patience.check(self.engine.missing())
                if left_s < 0:
                    self.engine.excuse()
        except CollectiveError as error:
            self.engine.give_up(error)
            raise
        finally:
            patience.end()
        raise self.timeout_error(limit_s)

    def release(self) -> None:
        self.engine.release(self.pointer, cancels=False)

    def cancel(self) -> None:
        self.engine.release(self.pointer, cancels=True)

    def late_error(self, limit_s: float, missing: list[int]) -> CollectiveTimeoutError:
        """The error of a roll call that was over its limit."""
        return CollectiveTimeoutError(
            f"{self.what}: not all ranks came within {limit_s:g} s",
            where=f"rank {self.rank}",
            got=f"rank(s) {missing} missing",
            remedy="those ranks are still computing or compiling, in another collective, or gone",
        )


def _seconds(ns: int) -> float:
    return ns * 1e-9 if ns else math.nan
