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

from collectives.call import Array, Task
from collectives.reduce import check_splits, is_narrow, reduce_in_rank_order

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
        self.native_ops |= {"band": mpi.BAND, "bor": mpi.BOR, "bxor": mpi.BXOR}
        self.bool_ops = {**self.native_ops, "sum": mpi.MAX, "prod": mpi.MIN}  # of bytes that are 0 or 1

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
        flat, call = task.target, task.call
        if call.wire:
            narrow = flat.astype(call.wire)
            for chunk in self._chunks(narrow.size, narrow.itemsize):
                self._reduce_in_rank_order(narrow[chunk], task)
            flat[...] = narrow
            return
        if self._goes_in_rank_order(flat):
            for chunk in self._chunks(flat.size, flat.itemsize):
                self._reduce_in_rank_order(flat[chunk], task)
            return
        carrier, op = self._carrier(flat, call.op)
        for chunk in self._chunks(flat.size, flat.itemsize):
            self._complete(self.comm.Iallreduce(self.mpi.IN_PLACE, carrier[chunk], op=op))
        if call.op == "avg":
            flat /= flat.dtype.type(self.world_size)

    def _goes_in_rank_order(self, flat: Array) -> bool:
        return self.reduction == "rank_order" or is_narrow(flat.dtype)

    def _carrier(self, flat: Array, op: str) -> tuple[Array, Any]:
        """The array and the operation that MPI knows."""
        if flat.dtype.kind == "b":
            return flat.view(np.uint8), self.bool_ops[op]
        return flat, self.native_ops[op]

    def _reduce(self, task: Task) -> None:
        """To the root: by MPI, or, in rank order, by a gather and a sum there."""
        flat, call, rank = task.target, task.call, self.comm.Get_rank()
        is_root = rank == call.root
        if not self._goes_in_rank_order(flat):
            carrier, op = self._carrier(flat, call.op)
            for chunk in self._chunks(flat.size, flat.itemsize):
                send, receive = (self.mpi.IN_PLACE, carrier[chunk]) if is_root else (carrier[chunk], None)
                self._complete(self.comm.Ireduce(send, receive, op=op, root=call.root))
            if is_root and call.op == "avg":
                flat /= flat.dtype.type(self.world_size)
            return
        for chunk in self._chunks(flat.size, flat.itemsize * self.world_size):
            rows = np.empty((self.world_size if is_root else 0, flat[chunk].size), flat.dtype)
            self._complete(self.comm.Igather(self._raw(flat[chunk]), self._raw(rows) if is_root else None, call.root))
            if is_root:
                flat[chunk] = reduce_in_rank_order(list(rows), call.op)

    def _raw(self, array: Array) -> list[Any]:
        """A contiguous array as MPI's bytes."""
        return [array.reshape(-1).view(np.uint8), self.mpi.BYTE]

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

    def _gather(self, task: Task) -> None:
        is_root = self.comm.Get_rank() == task.call.root
        rows = task.target.reshape(self.world_size, -1) if is_root else task.target
        for chunk in self._chunks(task.source.size, task.source.itemsize * self.world_size):
            part = np.ascontiguousarray(task.source[chunk])
            gathered = np.empty((self.world_size, part.size), part.dtype) if is_root else None
            receive = None if gathered is None else self._raw(gathered)
            self._complete(self.comm.Igather(self._raw(part), receive, root=task.call.root))
            if gathered is not None:
                rows[:, chunk] = gathered

    def _scatter(self, task: Task) -> None:
        is_root = self.comm.Get_rank() == task.call.root
        rows = task.source.reshape(self.world_size, -1) if is_root else task.source
        for chunk in self._chunks(task.target.size, task.target.itemsize * self.world_size):
            sent = self._raw(np.ascontiguousarray(rows[:, chunk])) if is_root else None
            self._complete(self.comm.Iscatter(sent, self._raw(task.target[chunk]), root=task.call.root))

    def _all_to_all(self, task: Task) -> None:
        read, written = task.source.reshape(self.world_size, -1), task.target.reshape(self.world_size, -1)
        for chunk in self._chunks(task.call.count, task.source.itemsize * self.world_size):
            sent = np.ascontiguousarray(read[:, chunk])
            received = np.empty_like(sent)
            self._complete(self.comm.Ialltoall(self._raw(sent), self._raw(received)))
            written[:, chunk] = received

    def _all_to_all_uneven(self, task: Task) -> None:
        """All ranks first see all sizes, so that a misfit is an error on each of them; then rounds of bounded size."""
        assert task.splits is not None
        table = np.empty((self.world_size, 2, self.world_size), np.int64)
        self._complete(self.comm.Iallgather(np.array(task.splits, np.int64), table))
        check_splits([(tuple(sent), tuple(received)) for sent, received in table.tolist()])
        longest = int(table.max(initial=0))
        for chunk in self._chunks(longest, task.source.itemsize * self.world_size):
            send, receive = (
                self._round(array, splits, chunk) for array, splits in zip((task.source, task.target), task.splits)
            )
            self._complete(self.comm.Ialltoallv(send, receive))

    def _round(self, array: Array, splits: tuple[int, ...], chunk: slice) -> list[Any]:
        """One round of an uneven all-to-all: elements `chunk` of each part, as MPI's bytes."""
        counts = np.clip(np.array(splits, np.int64) - chunk.start, 0, chunk.stop - chunk.start)
        starts = np.cumsum((0, *splits[:-1])) + np.minimum(chunk.start, splits)
        return [array.view(np.uint8), (counts * array.itemsize, starts * array.itemsize), self.mpi.BYTE]
