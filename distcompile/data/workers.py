"""A DataLoader's worker processes, seen from the loader: tasks go out in turn, batches come back in order.

In: a recipe for batches, and the sampler's entries. Out: an iterator over batches. Each worker has a pipe of its own,
and nothing else is shared: no lock that a killed process could hold. While it waits, the loader watches the pipes, so a
worker that dies is a DataLoaderError that names it. Processes end when the iterator is dropped (or, kept for the next
pass, with the loader), at the latest with this process.
Order is torch's: task k goes to the next worker in turn that is not at the end of its stream.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from multiprocessing import connection as connections
from typing import Any

from distcompile.data import messages
from distcompile.data.fetch import BatchRecipe
from distcompile.data.worker import Failure, run_worker
from distcompile.errors import DataLoaderError

STOP_S = 5.0  # how long a worker may take to end before it is killed


class Workers:
    """`count` processes. context: of the module multiprocessing."""

    def __init__(
        self, context: Any, count: int, recipe: BatchRecipe, init: Callable[[int], None] | None, seed: int
    ) -> None:
        self.pipes: list[Any] = []
        self.processes: list[Any] = []
        self.epoch = -1
        self._stop = weakref.finalize(self, _stop, os.getpid(), self.pipes, self.processes)
        forks = context.get_start_method() == "fork"
        for worker_id in range(count):
            ours, theirs = context.Pipe(duplex=True)
            self.pipes.append(ours)
            foreign = list(self.pipes) if forks else []
            process = context.Process(
                target=run_worker,
                args=(theirs, foreign, recipe, init, worker_id, count, seed),
                name=f"DataLoader worker {worker_id}",
                daemon=True,
            )
            process.start()
            theirs.close()
            self.processes.append(process)

    @property
    def is_open(self) -> bool:
        """Whether they have not been ended."""
        return self._stop.alive

    def close(self) -> None:
        """End the processes."""
        self._stop()

    def send(self, worker: int, task: tuple[int, int, Any]) -> None:
        """Give a worker something to do. Raises DataLoaderError if it is dead."""
        try:
            self.pipes[worker].send(task)
        except (BrokenPipeError, ConnectionResetError):
            raise self._dead(worker) from None

    def receive(self, wanted: set[int], timeout_s: float) -> tuple[int, tuple[int, int], str, Any]:
        """(worker, number, kind, result): the next that comes of one of `wanted`. timeout_s 0: however long it takes.

        Raises DataLoaderError for a worker that died, and after the time.
        """
        pipes = {id(self.pipes[w]): w for w in wanted}
        ready = connections.wait([self.pipes[w] for w in wanted], timeout_s or None)
        if not ready:
            raise DataLoaderError(f"DataLoader timed out after {timeout_s:g} seconds")
        worker = pipes[id(ready[0])]
        try:
            return (worker, *messages.receive(self.pipes[worker]))
        except (EOFError, OSError):
            raise self._dead(worker) from None

    def _dead(self, worker: int) -> DataLoaderError:
        process = self.processes[worker]
        process.join(STOP_S)
        code = process.exitcode
        how = f"killed by signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        self.close()
        return DataLoaderError(
            f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly",
            got=f"worker {worker}: {how}",
            remedy="num_workers=0 runs the data set in this process, where its error is seen",
        )


def _stop(owner: int, pipes: list[Any], processes: list[Any]) -> None:
    if os.getpid() != owner:  # a copy of the loader in a process that was forked
        return
    for pipe in pipes:
        with contextlib.suppress(OSError, ValueError):
            pipe.send(None)
    for pipe in pipes:
        pipe.close()
    end = time.monotonic() + STOP_S
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


class DataPass:
    """One pass over the data: an iterator over batches."""

    def __init__(
        self, workers: Workers, entries: Iterator[Any], ahead: int, in_order: bool, timeout_s: float, keep: bool
    ) -> None:
        workers.epoch += 1
        self.workers, self.entries, self.in_order, self.timeout_s, self.keep = (
            workers, entries, in_order, timeout_s, keep,
        )  # fmt: skip
        self.epoch: int = workers.epoch
        self.sent = self.turn = 0
        self.owner: dict[int, int] = {}  # task -> worker, of those not given yet
        self.arrived: dict[int, tuple[str, Any]] = {}
        self.live = set(range(len(workers.pipes)))
        for _ in range(ahead * len(workers.pipes)):
            self._send_next()

    def __iter__(self) -> DataPass:
        return self

    def __next__(self) -> Any:
        while True:
            number = self._next_number()
            if number is None:
                if not self.keep:
                    self.workers.close()
                raise StopIteration
            kind, result = self.arrived.pop(number)
            worker = self.owner.pop(number)
            if kind == "end":
                self.live.discard(worker)
                self._send_next()
                continue
            self._send_next()
            if isinstance(result, Failure) and kind == "error":
                result.reraise()
            return result

    def _next_number(self) -> int | None:
        """The task whose result is next, once it is here; None: there is none left."""
        while self.owner:
            if self.epoch != self.workers.epoch:
                raise DataLoaderError("an iterator of a DataLoader with persistent workers was used after the next one")
            first = min(self.owner)
            if self.arrived and not self.in_order:
                return min(self.arrived)
            if first in self.arrived:
                return first
            awaited = {w for n, w in self.owner.items() if n not in self.arrived}
            _, (epoch, number), kind, result = self.workers.receive(awaited, self.timeout_s)
            if epoch == self.epoch:
                self.arrived[number] = (kind, result)
        return None

    def _send_next(self) -> None:
        """Give the next entry to the next worker in turn."""
        if not self.live:
            return
        try:
            entry = next(self.entries)
        except StopIteration:
            return
        count = len(self.workers.pipes)
        worker = next(w % count for w in range(self.turn, self.turn + count) if w % count in self.live)
        self.turn = worker + 1
        self.owner[self.sent] = worker
        self.workers.send(worker, (self.epoch, self.sent, entry))
        self.sent += 1


def context_of(asked: Any) -> Any:
    """The multiprocessing context meant by a start method, a context, or None."""
    return multiprocessing.get_context(asked) if asked is None or isinstance(asked, str) else asked
