"""The communication thread in Python: issues array collectives over MPI strictly in launch order.

In: tasks from any thread. Out: finished Works. It is what an `MpiCommunicator` uses where no native engine can be built
(no compiler), and the native engine's oracle.
The thread does not burn a core. Waiting for late ranks is a roll call that sleeps; moving data by MPI is a non-blocking
call that the thread drives, sleeping 20 us between looks while the rank computes, and only yielding once somebody sits
in `wait`. Measured on 2 ranks of one host (MPICH 5.0, Zen 4, medians): alone, a 4 MiB all-reduce takes 0.46 ms
blocking, 1.0 ms driven with sleeps. While both ranks compute on the same two cores, themselves shared with other work
(load 6), 39 ms blocking, as each spins away the time slices in which the other could answer, against 20 ms driven.
Limit: it needs the GIL, so a computation in pure Python delays it by tens of milliseconds.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from collectives.arena import NOWHERE
from collectives.call import Array, CollectiveCall, Task
from collectives.errors import CollectiveError, ForkedProcessError, TransportError
from collectives.over_mpi.rollcall import NEEDED, PLACE, WORDS, Backoff, RollCall
from collectives.over_mpi.transfer import Reduction, Transfer
from collectives.shared_memory import SharedMemory
from collectives.work import LocalWork


class ThreadEngine:
    """Runs the tasks of one MPI communicator. shared: memory that ranks of one host have in common, if they do."""

    def __init__(
        self,
        comm: Any,
        mpi: Any,
        *,
        timeout_s: float,
        reduction: Reduction,
        chunk_nbytes: int,
        shared: SharedMemory | None,
    ) -> None:
        self.rank, self.world_size, self.timeout_s = comm.Get_rank(), comm.Get_size(), timeout_s
        self.where = f"rank {self.rank} of {self.world_size}"
        self.transfer = Transfer(comm, mpi, reduction=reduction, chunk_nbytes=chunk_nbytes)
        self.roll, self.shared = RollCall(comm, mpi), shared
        self.queue: SimpleQueue[tuple[Task, LocalWork] | None] = SimpleQueue()
        self.held: weakref.WeakSet[LocalWork] = weakref.WeakSet()
        self.serving: LocalWork | None = None
        self.broken: CollectiveError | None = None
        self.thread = threading.Thread(target=self._serve, name=f"collectives rank {self.rank}", daemon=True)
        self.thread.start()

    def launch(self, task: Task, *, quiet: bool = False) -> LocalWork:
        """Queue `task`; `quiet` makes no difference here."""
        work = LocalWork(str(task), rank=self.rank, nbytes=task.nbytes, timeout_s=self.timeout_s, held=task.held)
        if task.held:
            self.held.add(work)
        self.queue.put((task, work))
        return work

    def allocate(self, nbytes: int) -> Array | None:
        """Shared bytes, zeroed; None if ranks share no memory."""
        return None if self.shared is None else self.shared.arena.allocate(nbytes)

    def set_timeout(self, timeout_s: float) -> None:
        """The limit of waits that give none, from now on."""
        self.timeout_s = timeout_s

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child, where the thread is not: end what is under way."""
        self.broken = error
        with suppress(Empty):
            while True:
                item = self.queue.get_nowait()
                if item is not None:
                    item[1].become_forked(error)
        if self.serving is not None:
            self.serving.become_forked(error)

    def give_up(self, error: CollectiveError) -> None:
        """End later tasks with `error`; other ranks learn of it when this one closes, or when their time is over."""
        self.broken = self.broken or error

    def leave(self) -> None:
        """Give up what is held, and tell the other ranks, behind what is queued, that this one ends."""
        for work in list(self.held):
            work.cancel()
        self.queue.put(None)

    def stop(self, timeout_s: float) -> None:
        """After `leave`: finish what is queued, and end the thread."""
        self.thread.join(timeout_s)
        self.roll.free()
        if self.shared is not None:
            self.shared.arena.close()

    def _part(self) -> None:
        try:
            self.roll.gather(
                CollectiveCall("close"),
                "close()",
                timeout_s=self.timeout_s,
                is_awaited=lambda: False,
                tell=lambda phase: None,
            )
        except CollectiveError as error:
            self.broken = error

    # -- the thread

    def _serve(self) -> None:
        while (item := self.queue.get()) is not None:
            self.serving = item[1]
            self._serve_one(*item)
            self.serving = None
            del item  # while this thread waits for the next task it must not hold the last one's buffers
        if self.broken is None:
            self._part()
        elif not self.roll.is_receiving:  # nobody waits for an answer to this one's last word
            self.roll.announce(CollectiveCall("close"))

    def _serve_one(self, task: Task, work: LocalWork) -> None:
        try:
            is_void = task.gate is not None and task.gate.passed is False
            if not is_void:
                work.await_release()
            if is_void or work.is_cancelled:
                work.finish(skipped=True)
            elif self.broken is not None:
                work.finish(self.broken)
            else:
                self._run(task, work)
        except CollectiveError as error:
            self.broken = error
            work.finish(error)
        except Exception as error:  # noqa: BLE001 - whoever waits must learn of it, whatever it is
            got = f"{type(error).__name__}: {error}"
            self.broken = TransportError(f"the communication thread failed in {task}", where=self.where, got=got)
            work.finish(self.broken)

    def _run(self, task: Task, work: LocalWork) -> None:
        rows = self._meet(task, work)
        work.start()
        work.rows = tuple(tuple(words) for words in rows[:, WORDS][:, : len(task.words)].tolist())
        is_needed = bool(rows[:, NEEDED].any())
        if is_needed:
            self._move(task, work, rows)
        work.finish(skipped=not is_needed)

    def _meet(self, task: Task, work: LocalWork) -> Array:
        def tell(phase: str) -> None:
            work.phase = phase

        place = NOWHERE if self.shared is None else self.shared.locate(task.target)
        return self.roll.gather(
            task.call,
            str(task),
            timeout_s=self.timeout_s,
            is_awaited=lambda: work.is_awaited,
            tell=tell,
            stamp=task.stamp,
            added=(int(task.needed), *place, *task.words),
        )

    def _move(self, task: Task, work: LocalWork, rows: Array) -> None:
        places = [(a, b, c, d) for a, b, c, d in rows[:, PLACE].tolist()]
        is_shared = self.shared is not None and all(serial != NOWHERE[0] for serial, *_ in places)
        if self.shared is not None and is_shared and task.call.kind == "all_reduce" and not task.call.wire:
            pause = Backoff(lambda: work.is_awaited).pause
            self.shared.all_reduce(task, places, pause, self.timeout_s)
        elif task.call.kind != "gate":
            self.transfer.run(task, lambda: work.is_awaited)
