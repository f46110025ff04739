"""The engine of one NCCL communicator: collectives of device arrays, enqueued strictly in launch order on one stream.

In: tasks, from any thread. Out: `NcclWork`.
Method: a task waits for its permit (permit.py: what ranks tell each other over MPI) and is then enqueued by whoever
looks first: the thread that launches the next one, or waits; or else our own thread, so that a rank which looks at
nothing any more keeps nobody waiting. DDP's buckets have one permit, the gate at the start of the backward; it is
there, mostly, before the first bucket is: then a launch enqueues at once, and no host waits for another in a step.
Our thread watches, too: errors that NCCL tells behind our back, ranks that the launcher knows to be gone, and
collectives that do not end within the time limit. Each ends NCCL here (`ncclCommAbort`: its kernels end, so nobody
hangs in a synchronisation) and every collective with a named error; the host communicator tells the other ranks.
Invariant: one thread at a time calls NCCL (`enqueuing`), but for the abort.
Source: NCCL user guide, "Fault tolerance"; torch's ProcessGroupNCCL for what its watchdog looks at.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from collectives.call import Task
from collectives.errors import CollectiveError, CollectiveTimeoutError, ForkedProcessError, NcclError, TransportError
from collectives.nccl import moves
from collectives.nccl.clock import Clock
from collectives.nccl.cuda import Event, Runtime
from collectives.nccl.library import NcclLibrary
from collectives.nccl.opening import Opening
from collectives.nccl.permit import Permit, Splits, Tally, roll_call
from collectives.nccl.work import NcclWork

if TYPE_CHECKING:
    from collectives.communicator import Communicator

LOOK_EVERY_S = 0.1  # at what is in flight
OWN_S = 300e-6  # so long a collective is left to who launched it: mostly it waits at once, and two would only collide
HEAR_S = 1.0  # so long an error at the start waits for its cause
SLICE_S = 0.05  # of a wait that our thread, or a waiting one, comes back from to look around


class NcclEngine:
    """Runs the tasks of `host`'s ranks on device arrays. All ranks make theirs at the same place in the order."""

    def __init__(self, host: Communicator, library: NcclLibrary, cuda: Runtime, tally: Tally) -> None:
        self.host, self.library, self.cuda, self.tally = host, library, cuda, tally
        self.rank, self.world_size = host.rank, host.world_size
        self.where = f"rank {self.rank} of {self.world_size}"
        self.stream, self.clock = cuda.new_stream(), Clock(cuda)
        self.pending: deque[NcclWork] = deque()
        self.flying: deque[NcclWork] = deque()
        self.launching, self.enqueuing, self.failing = threading.Lock(), threading.Lock(), threading.Lock()
        self.changed = threading.Condition()
        self.moves: moves.Moves | None = None
        self.broken: CollectiveError | None = None
        self.is_closing = self.is_idle = False  # idle: our thread sleeps until it is told of something
        self.is_freed = False  # closed in order: all that was enqueued is done
        self.opening = Opening(host, library, cuda)
        self.thread = threading.Thread(target=self._serve, name=f"nccl rank {self.rank}", daemon=True)
        self.thread.start()

    @property
    def timeout_s(self) -> float:
        """The limit of waits that give none, in seconds: the host communicator's."""
        return self.host.timeout_s

    def check(self) -> None:
        """Raise the error that ended this communicator, if one did."""
        if self.broken is not None:
            raise self.broken

    def mark(self) -> Event:
        """An event behind what this thread has enqueued so far."""
        return self.cuda.record(self.cuda.current())

    # -- launching

    def launch(self, task: Task) -> NcclWork:
        """Queue `task`, which starts after what the current stream holds now. Does not wait for other ranks."""
        self.check()
        moves.check(task, self.where)
        with self.launching:
            try:
                permit = self._permit(task)
            except CollectiveError as error:  # the host communicator's, which may have been told of ours
                raise self.broken or error from None
            work = NcclWork(self, task, permit, None if task.held else self.mark())
            self.pending.append(work)
        if self.broken is not None:  # meanwhile
            work.fail(self.broken)
        self.nudge()
        return work

    def _permit(self, task: Task) -> Permit:
        """Behind a gate no roll call of its own is needed: all launch the same there, or the tally tells."""
        if task.gate is not None and task.needed:
            self.tally.add(task.gate)
            return Permit(task.gate, None, task, self.tally)
        roll = roll_call(self.host, task, self.tally)
        splits = None if task.splits is None else Splits(self.host, task)
        return Permit(task.gate, roll, task, self.tally, splits)

    def nudge(self) -> None:
        """Something was launched or released: enqueue what may be, and have our thread look after the rest."""
        self.advance()
        if self.pending or self.is_idle:
            with self.changed:
                self.changed.notify_all()

    def advance(self) -> None:
        """Enqueue what has its permit. Never waits for other ranks."""
        while self.pending and self.broken is None and self.enqueuing.acquire(blocking=False):
            try:
                if self.moves is None or not self._advance_one(self.moves):
                    return
            except CollectiveError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - whoever waits must learn of it, whatever it is
                self.fail(NcclError("a collective could not be enqueued", where=self.where, got=repr(error)))
            finally:
                self.enqueuing.release()

    def _advance_one(self, made: moves.Moves) -> bool:
        """Enqueue, or skip, the first one; False if it cannot be yet."""
        if not self.pending or self.pending[0].is_held:
            return False
        work = self.pending[0]
        if work.is_cancelled:
            work.skip()
        elif not work.permit.is_known():
            return False
        elif work.permit.is_given():
            self._enqueue(work, made)
        else:
            work.skip()
        self.pending.popleft()
        return True

    def _enqueue(self, work: NcclWork, made: moves.Moves) -> None:
        task = work.task
        assert task is not None
        self.cuda.wait(self.stream, work.after)
        work.began = self.cuda.record(self.stream)
        made.enqueue(task)
        work.ended = self.cuda.record(self.stream)
        work.enqueued_s = time.perf_counter()
        self.flying.append(work)
        work.settled.set()

    def enqueue_until(self, work: NcclWork, timeout_s: float | None) -> None:
        """Have the host wait until `work` is enqueued, skipped or failed."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        deadline_s = time.perf_counter() + limit_s
        while not work.settled.is_set():
            self.check()
            try:
                if self.moves is None:
                    self.opening.wait(timeout_s)
                for earlier in list(self.pending):
                    if not earlier.is_held:
                        earlier.permit.wait(timeout_s)
                    if earlier is work:
                        break
            except CollectiveError as error:
                if timeout_s is None or not isinstance(error, CollectiveTimeoutError):
                    self.fail(error)
                raise self.broken or error from None
            self.advance()
            left_s = deadline_s - time.perf_counter()
            if not work.settled.wait(min(SLICE_S, max(left_s, 0.0))) and left_s <= 0:
                raise work.timeout_error(limit_s)

    # -- our thread

    def _serve(self) -> None:
        self.cuda.use()
        self._open()
        while not self.is_closing and self.broken is None:
            self._look_after_first()
            try:
                self.watch()
            except Exception as error:  # noqa: BLE001 - the GPU's; whoever waits must learn of it
                self.fail(NcclError("the GPU failed in or before a collective", where=self.where, got=repr(error)))

    def _open(self) -> None:
        """Start NCCL, once all ranks are known to do so: it waits for them, and cannot be told to stop."""
        while not self.is_closing and self.broken is None and self.moves is None:
            try:
                if not self.opening.is_known():
                    self.opening.wait(SLICE_S)
                self._start()
            except CollectiveError as error:
                if not isinstance(error, CollectiveTimeoutError) or self.opening.is_known():
                    self.fail(error)
            except Exception as error:  # noqa: BLE001 - whoever waits must learn of it, whatever it is
                self.fail(NcclError("NCCL could not be started", where=self.where, got=repr(error)))

    def _start(self) -> None:
        name = self.opening.identity()
        comm = self.library.init(self.world_size, name, self.rank)
        made = moves.Moves(self.library, self.cuda, comm, self.stream, rank=self.rank, world_size=self.world_size)
        until_s = time.perf_counter() + self.timeout_s
        try:
            made.meet(name, lambda: self._look_for_cause(until_s))
        except BaseException as error:
            made.abort()
            if isinstance(
                error, TransportError
            ):  # as when a rank gave up in the middle, for a reason that we may learn
                self._hear()
            raise
        with self.failing:  # whoever fails from now on ends `moves`, too
            if self.broken is None:
                self.moves = made
        if self.moves is None:
            made.abort()

    def _look_for_cause(self, until_s: float) -> None:
        """Raise what ends the start: an error here, ranks that differ in the first collective, or the time."""
        self.check()
        first = self.pending[0] if self.pending else None
        if first is not None and first.permit.is_known():
            first.permit.is_given()
        if time.perf_counter() > until_s:
            what = f"the ranks' GPUs did not meet within {self.timeout_s:g} s"
            raise CollectiveTimeoutError(what, where=self.where)

    def _hear(self) -> None:
        """Give the cause of an error the time to get here."""
        until_s = time.perf_counter() + HEAR_S
        while time.perf_counter() < until_s:
            self._look_for_cause(math.inf)
            time.sleep(SLICE_S)

    def _look_after_first(self) -> None:
        """See the first pending collective enqueued; sleep if there is none."""
        with self.changed:
            if self.is_closing:
                return
            if not self.pending or self.pending[0].is_held:
                self.is_idle = not (self.pending or self.flying)
                self.changed.wait(None if self.is_idle else LOOK_EVERY_S)
                self.is_idle = False
                return
            first = self.pending[0]
            if time.perf_counter() - first.launched_s < OWN_S:
                self.changed.wait(OWN_S)
                return
        with contextlib.suppress(CollectiveError):  # if it is an error, `advance` finds it
            first.permit.wait(SLICE_S)
        self.advance()
        if first.permit.is_known() and not first.settled.is_set():
            time.sleep(50e-6)  # another thread is at it

    def watch(self) -> None:
        """Let go of what is done; find what went wrong."""
        while self.flying and self.cuda.is_done(self.flying[0].ended):
            self.flying.popleft()
        if self.moves is None or self.broken is not None:
            return
        said = self.library.async_error(self.moves.comm)
        first = self.flying[0] if self.flying else None
        if said:
            what = "NCCL failed" if first is None else f"NCCL failed in or before {first.what}"
            self.fail(NcclError(what, where=self.where, got=said, remedy="see the output of the other ranks"))
        elif first is not None and time.perf_counter() - first.enqueued_s > self.timeout_s:
            self.fail(first.timeout_error(self.timeout_s))

    def fail(self, error: CollectiveError) -> None:
        """End all collectives, and later ones, with `error`; the kernels of those in flight end, too."""
        with self.failing:
            if self.broken is not None:
                return
            self.broken = error
        if self.moves is not None:
            self.moves.abort()
        for work in (*self.pending, *self.flying):
            work.fail(error)
        self.host.give_up(error)
        with self.changed:
            self.changed.notify_all()

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child: what is under way ends with `error`."""
        self.broken = error
        for work in (*self.pending, *self.flying):
            work.fail(error)

    # -- the end

    def synchronize(self) -> None:
        """Have the host wait until all that was launched is done. Raises what it ended with."""
        for work in (*self.pending, *self.flying):
            work.synchronize()

    def drain(self, timeout_s: float) -> None:
        """Give up what is held, and have the host wait until the rest is done. Raises nothing: see `broken`."""
        for work in list(self.pending):
            work.cancel()
        try:
            for work in (*self.pending, *self.flying):
                self.enqueue_until(work, timeout_s)
            deadline_s = time.perf_counter() + timeout_s
            while self.broken is None and self.flying:
                self.watch()
                if time.perf_counter() > deadline_s and self.flying:
                    self.fail(self.flying[0].timeout_error(timeout_s))
                time.sleep(20e-6)
        except CollectiveError as error:
            self.fail(error)

    def stop(self) -> None:
        """After `drain`: end our thread, and let go of the other ranks' memory."""
        with self.changed:
            self.is_closing = True
            self.changed.notify_all()
        self.thread.join(self.timeout_s)
        if self.moves is not None:
            self.moves.close()

    def free(self) -> None:
        """After `stop`, when all ranks have stopped: let NCCL and memory go, waiting for nobody."""
        if self.moves is not None and self.broken is None:
            self.moves.free(others_may_be_busy=getattr(self.host, "broken", None) is not None)
        self.is_freed = self.broken is None
        self.broken = self.broken or NcclError("this communicator is closed", where=self.where)
