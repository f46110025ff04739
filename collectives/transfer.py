"""One array collective over MPI, once all ranks are present: chunks, data types, reductions.

In: a Task and an MPI communicator. Out: the Task's target is written; the call returns when the data are there.
Invariants: a message holds at most `chunk_nbytes` (most MPIs count in int32); all ranks get the same bits.
A reduction is MPI's own ("fast"; its order of summation depends on message size and rank count), or in rank order
(`reduce.reduce_in_rank_order`): always for 16-bit floats, whose sums are accumulated in float32 at half float32's
traffic, and for everything under reduction="rank_order", which makes results independent of bucket sizes.
Rank order costs what a reduce-scatter by all-to-all and an all-gather cost: the same bytes as a ring.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

from collectives.communicator import Array, Task
from collectives.reduce import is_narrow, reduce_in_rank_order

Reduction: TypeAlias = Literal["fast", "rank_order"]
LOOK_EVERY_S = 20e-6
SPIN_S = 2e-3


class Transfer:
    """Runs tasks on one MPI communicator; every rank must use the same `reduction` and `chunk_nbytes`."""

    def __init__(self, comm: Any, mpi: Any, *, reduction: Reduction, chunk_nbytes: int) -> None:
        self.comm, self.mpi, self.reduction, self.chunk_nbytes = comm, mpi, reduction, chunk_nbytes
        self.is_awaited: Callable[[], bool] = lambda: True
        self.world_size = comm.Get_size()
        self.native_ops = {"sum": mpi.SUM, "avg": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN, "prod": mpi.PROD}

    def run(self, task: Task, is_awaited: Callable[[], bool]) -> None:
        """Do the collective; returns when the data are there. is_awaited: whether somebody sits in `wait`."""
        self.is_awaited = is_awaited
        getattr(self, f"_{task.call.kind}")(task)

    def _complete(self, request: Any) -> None:
        """Drive `request` to its end, looking often only if somebody waits, and not for long even then.

        The core may be wanted: by this rank's computation, or, with more ranks than cores, by the rank waited for.
        """
        began_s = time.perf_counter()
        while not request.Test():
            if self.is_awaited() and time.perf_counter() - began_s < SPIN_S:
                os.sched_yield()
            else:
                time.sleep(LOOK_EVERY_S)

    def _chunks(self, count: int, itemsize: int) -> Iterator[slice]:
        step = max(1, self.chunk_nbytes // itemsize)
        for start in range(0, count, step):
            yield slice(start, min(start + step, count))

    def _barrier(self, task: Task) -> None:
        """The roll call was the barrier."""

    def _all_reduce(self, task: Task) -> None:
        flat = task.target
        if self.reduction == "rank_order" or is_narrow(flat.dtype):
            for chunk in self._chunks(flat.size, flat.itemsize):
                self._reduce_in_rank_order(flat[chunk], task)
            return
        carrier = flat.view(np.uint8) if flat.dtype.kind == "b" else flat
        for chunk in self._chunks(flat.size, flat.itemsize):
            self._complete(self.comm.Iallreduce(self.mpi.IN_PLACE, carrier[chunk], op=self.native_ops[task.call.op]))
        if task.call.op == "avg":
            flat /= flat.dtype.type(self.world_size)

    def _reduce_in_rank_order(self, flat: Array, task: Task) -> None:
        """Each rank reduces one part of `flat`, then all gather the parts."""
        itemsize, rank = flat.itemsize, self.comm.Get_rank()
        bounds = np.linspace(0, flat.size, self.world_size + 1).astype(np.int64)
        nbytes, starts = np.diff(bounds) * itemsize, bounds[:-1] * itemsize
        mine = int(bounds[rank + 1] - bounds[rank])
        parts = np.empty((self.world_size, mine), flat.dtype)
        own_nbytes = np.full(self.world_size, mine * itemsize)
        raw = flat.view(np.uint8)
        send = [raw, (nbytes, starts), self.mpi.BYTE]
        receive = [
            parts.reshape(-1).view(np.uint8),
            (own_nbytes, np.arange(self.world_size) * mine * itemsize),
            self.mpi.BYTE,
        ]
        self._complete(self.comm.Ialltoallv(send, receive))
        reduced = reduce_in_rank_order(list(parts), task.call.op)
        own = [reduced.view(np.uint8), mine * itemsize, self.mpi.BYTE]
        self._complete(self.comm.Iallgatherv(own, [raw, (nbytes, starts), self.mpi.BYTE]))

    def _broadcast(self, task: Task) -> None:
        raw = task.target.view(np.uint8)
        for chunk in self._chunks(raw.size, 1):
            self._complete(self.comm.Ibcast([raw[chunk], self.mpi.BYTE], root=task.call.root))

    def _all_gather(self, task: Task) -> None:
        rows = task.target.reshape(self.world_size, -1)
        for chunk in self._chunks(task.source.size, task.source.itemsize * self.world_size):
            part = np.ascontiguousarray(task.source[chunk])
            gathered = np.empty((self.world_size, part.size), part.dtype)
            self._complete(
                self.comm.Iallgather([part.view(np.uint8), self.mpi.BYTE], [gathered.view(np.uint8), self.mpi.BYTE])
            )
            rows[:, chunk] = gathered

    def _reduce_scatter(self, task: Task) -> None:
        rows = task.source.reshape(self.world_size, -1)
        for chunk in self._chunks(task.target.size, task.target.itemsize * self.world_size):
            sent = np.ascontiguousarray(rows[:, chunk])
            parts = np.empty_like(sent)
            self._complete(
                self.comm.Ialltoall([sent.view(np.uint8), self.mpi.BYTE], [parts.view(np.uint8), self.mpi.BYTE])
            )
            task.target[chunk] = reduce_in_rank_order(list(parts), task.call.op)
