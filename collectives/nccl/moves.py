"""One collective as calls of NCCL, enqueued on a stream.

In: a Task on device arrays. Out: calls. What NCCL cannot do is refused before anything is sent (`check`): bitwise
reductions, sums of 16-bit integers. Bools are bytes of 0 and 1: any is a maximum, all a minimum. What is only moved
goes as bytes, whatever its dtype. A sum that travels as a 16-bit float is rounded to it, reduced by NCCL, which rounds
at every hop (between two ranks that is once, as on the CPU), and widened, all on the stream; for an average it is
divided first, in its own dtype, so that float16 does not overflow.
Gather, scatter and all-to-all are groups of sends and receives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from collectives.call import Array, Task
from collectives.checks import dtype_name
from collectives.errors import CollectiveArgumentError
from collectives.nccl.cuda import Runtime, Stream
from collectives.nccl.library import DTYPES, OPS, Library

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
BYTE = DTYPES["uint8"]
_OF_BOOLS = {"sum": "max", "prod": "min"}


def check(task: Task, where: str) -> None:
    """Raise CollectiveArgumentError for a reduction that NCCL does not have."""
    call = task.call
    if call.kind not in REDUCTIONS:
        return
    if call.op not in OPS:
        raise CollectiveArgumentError(
            f"NCCL does not reduce by {call.op}", where=where, got=str(call), remedy="reduce tensors on the CPU"
        )
    if call.dtype not in DTYPES and call.dtype != "bool":
        raise CollectiveArgumentError(
            f"NCCL does not reduce {call.dtype}",
            where=where,
            expected=", ".join(DTYPES),
            remedy="convert the tensor, or reduce it on the CPU",
        )


class Moves:
    """Calls of one NCCL communicator on one stream. To be used by one thread at a time."""

    def __init__(
        self, library: Library, cuda: Runtime, comm: int, stream: Stream, *, rank: int, world_size: int
    ) -> None:
        self.library, self.cuda, self.comm, self.stream = library, cuda, comm, stream
        self.rank, self.world_size = rank, world_size
        self.pointer = cuda.pointer(stream)

    def enqueue(self, task: Task) -> None:
        """Enqueue `task`. Raises NcclError."""
        if max(task.source.size, task.target.size):
            getattr(self, f"_{task.call.kind}")(task)

    # -- reductions

    def _all_reduce(self, task: Task) -> None:
        if task.call.wire:
            self._all_reduce_narrow(task)
            return
        dtype, op = _reduction(task)
        address = self.cuda.address(task.target)
        self.library.all_reduce(address, address, task.target.size, dtype, op, self.comm, self.pointer)

    def _all_reduce_narrow(self, task: Task) -> None:
        flat, wire = task.target, task.call.wire
        narrow = self.cuda.empty(self.stream, flat.size, np.dtype(wire))
        op = task.call.op
        if op == "avg":
            op, share = "sum", flat.dtype.type(1 / self.world_size)
            self.cuda.run(self.stream, lambda: flat.__setitem__(..., flat * share))
        self.cuda.run(self.stream, lambda: narrow.__setitem__(..., flat))
        address = self.cuda.address(narrow)
        self.library.all_reduce(address, address, flat.size, DTYPES[wire], OPS[op], self.comm, self.pointer)
        self.cuda.run(self.stream, lambda: flat.__setitem__(..., narrow))

    def _reduce(self, task: Task) -> None:
        dtype, op = _reduction(task)
        address = self.cuda.address(task.target)
        self.library.reduce(address, address, task.target.size, dtype, op, task.call.root, self.comm, self.pointer)

    def _reduce_scatter(self, task: Task) -> None:
        dtype, op = _reduction(task)
        source, target = self.cuda.address(task.source), self.cuda.address(task.target)
        self.library.reduce_scatter(source, target, task.target.size, dtype, op, self.comm, self.pointer)

    # -- moves

    def _broadcast(self, task: Task) -> None:
        address = self.cuda.address(task.target)
        self.library.broadcast(address, address, task.target.nbytes, BYTE, task.call.root, self.comm, self.pointer)

    def _all_gather(self, task: Task) -> None:
        source, target = self.cuda.address(task.source), self.cuda.address(task.target)
        self.library.all_gather(source, target, task.source.nbytes, BYTE, self.comm, self.pointer)

    def _gather(self, task: Task) -> None:
        root, nbytes = task.call.root, task.source.nbytes

        def move() -> None:
            self._send(task.source, 0, nbytes, root)
            if self.rank == root:
                for peer in range(self.world_size):
                    self._receive(task.target, peer * nbytes, nbytes, peer)

        self._group(move)

    def _scatter(self, task: Task) -> None:
        root, nbytes = task.call.root, task.target.nbytes

        def move() -> None:
            if self.rank == root:
                for peer in range(self.world_size):
                    self._send(task.source, peer * nbytes, nbytes, peer)
            self._receive(task.target, 0, nbytes, root)

        self._group(move)

    def _all_to_all(self, task: Task) -> None:
        self._exchange(task, [task.call.count] * self.world_size, [task.call.count] * self.world_size)

    def _all_to_all_uneven(self, task: Task) -> None:
        assert task.splits is not None
        self._exchange(task, *task.splits)

    def _exchange(self, task: Task, sent: Sequence[int], received: Sequence[int]) -> None:
        """sent, received: elements for each rank, and from each."""
        itemsize = task.source.dtype.itemsize

        def move() -> None:
            for peer, start in enumerate(accumulate(sent[:-1], initial=0)):
                self._send(task.source, start * itemsize, sent[peer] * itemsize, peer)
            for peer, start in enumerate(accumulate(received[:-1], initial=0)):
                self._receive(task.target, start * itemsize, received[peer] * itemsize, peer)

        self._group(move)

    def _group(self, move: Callable[[], None]) -> None:
        self.library.group_start()
        try:
            move()
        finally:
            self.library.group_end()

    def _send(self, array: Array, start: int, nbytes: int, peer: int) -> None:
        if nbytes:
            self.library.send(self.cuda.address(array) + start, nbytes, BYTE, peer, self.comm, self.pointer)

    def _receive(self, array: Array, start: int, nbytes: int, peer: int) -> None:
        if nbytes:
            self.library.receive(self.cuda.address(array) + start, nbytes, BYTE, peer, self.comm, self.pointer)


def _reduction(task: Task) -> tuple[int, int]:
    """NCCL's numbers of a task's dtype and reduction."""
    name, op = dtype_name(task.target.dtype), task.call.op
    return (BYTE, OPS[_OF_BOOLS.get(op, op)]) if name == "bool" else (DTYPES[name], OPS[op])
