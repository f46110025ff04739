"""A worker process of a DataLoader: fetches the batches it is told to, until it is told to stop, or its parent is gone.

In: tasks through a pipe. Out: batches, and errors with their traceback. A thread reads the tasks, so that the loader
never waits to send one, and ends the process when it is told to, whatever the process is doing. Random numbers:
Python's, NumPy's and ours are seeded with the pass's seed plus the worker's number, as in torch.
"""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_core.tensor.making.random import manual_seed
from distcompile.data import messages
from distcompile.data.fetch import BatchRecipe, Fetch

PARENT_CHECK_S = 2.0  # how often a worker looks whether its parent lives
_Connection = Any  # multiprocessing.connection.Connection


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker process runs this. seed: the pass's seed plus id. dataset: this process's copy."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: list[WorkerInfo] = []


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader: which one. Elsewhere None."""
    return _info[-1] if _info else None


@dataclass(frozen=True)
class Failure:
    """An error in a worker. kind: its class, None if that cannot be pickled."""

    kind: type[BaseException] | None
    text: str

    def reraise(self) -> None:
        """Raise it here, as torch: of its class if that takes a message, else a RuntimeError."""
        kind = self.kind or RuntimeError
        try:
            error = _KeyErrorText(self.text) if kind is KeyError else kind(self.text)
        except Exception:  # noqa: BLE001  # its constructor may do anything
            error = RuntimeError(self.text)
        raise error


class _KeyErrorText(KeyError):
    def __str__(self) -> str:
        return str(self.args[0])


def failure(error: BaseException, worker_id: int) -> Failure:
    """`error` in a form that can be sent."""
    kind: type[BaseException] | None = type(error)
    try:
        pickle.dumps(kind)
    except Exception:  # noqa: BLE001  # pickle raises many kinds
        kind = None
    where = f"in DataLoader worker process {worker_id}"
    return Failure(kind, f"Caught {type(error).__name__} {where}.\nOriginal {traceback.format_exc()}")


def run_worker(
    connection: _Connection,
    not_ours: list[_Connection],
    recipe: BatchRecipe,
    init: Callable[[int], None] | None,
    worker_id: int,
    num_workers: int,
    seed: int,
) -> None:
    """The process. not_ours: ends of pipes that came here by fork, and would keep others from seeing them closed."""
    for end in not_ours:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process hears it, and stops this one
    own = seed + worker_id
    random.seed(own)
    manual_seed(own)
    np.random.seed(np.random.SeedSequence([worker_id, seed & 0xFFFFFFFF, seed >> 32]).generate_state(4))
    _info.append(WorkerInfo(worker_id, num_workers, own, recipe.dataset))
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read_tasks, args=(connection, tasks, os.getppid()), daemon=True).start()
    _Worker(connection, recipe, init, worker_id).run(tasks)


def _read_tasks(connection: _Connection, tasks: queue.SimpleQueue[Any], parent: int) -> None:
    """Tasks from the pipe to the queue. At a stop, or without a parent, the process ends here and now."""
    try:
        while True:
            while not connection.poll(PARENT_CHECK_S):
                if os.getppid() != parent:
                    os._exit(1)
            task = connection.recv()
            if task is None:
                break
            tasks.put(task)
    except (EOFError, OSError):
        pass
    os._exit(0)


class _Worker:
    def __init__(
        self, connection: _Connection, recipe: BatchRecipe, init: Callable[[int], None] | None, worker_id: int
    ) -> None:
        self.connection, self.recipe, self.worker_id = connection, recipe, worker_id
        self.broken: Failure | None = None
        self.fetch: Fetch | None = None
        self.epoch = 0
        try:
            if init is not None:
                init(worker_id)
        except Exception as error:  # noqa: BLE001  # whatever it is, the loader raises it
            self.broken = failure(error, worker_id)

    def run(self, tasks: queue.SimpleQueue[Any]) -> None:
        """Do one task after the other; the thread that reads them ends the process."""
        while True:
            epoch, number, entry = tasks.get()
            if epoch != self.epoch:
                self.epoch, self.fetch = epoch, None
            kind, result = self._result(entry)
            try:
                messages.send(self.connection, (epoch, number), kind, result)
            except (BrokenPipeError, ConnectionResetError):
                os._exit(0)  # nobody reads
            except Exception as error:  # noqa: BLE001  # what was fetched cannot be pickled
                messages.send(self.connection, (epoch, number), "error", failure(error, self.worker_id))

    def _result(self, entry: Any) -> tuple[str, Any]:
        if self.broken is not None:
            broken, self.broken = self.broken, None
            return "error", broken
        try:
            if self.fetch is None:
                self.fetch = self.recipe.fetcher()
            return "batch", self.fetch(entry)
        except Exception as error:  # noqa: BLE001  # whatever it is, the loader raises it
            if isinstance(error, StopIteration) and self.recipe.is_stream:
                return "end", None
            return "error", failure(error, self.worker_id)
