"""One collective as calls of NCCL, enqueued on a stream.

In: a Task on device arrays. Out: calls. What NCCL cannot do is refused before anything is sent (`check`): bitwise
reductions, sums of 16-bit integers. Bools are bytes of 0 and 1: any is a maximum, all a minimum. What is only moved
goes as bytes, whatever its dtype. A sum that travels as a 16-bit float is rounded to it, reduced by NCCL, which rounds
at every hop (between two ranks that is once, as on the CPU), and widened, all on the stream; for an average it is
divided first, in its own dtype, so that float16 does not overflow.
Large sums and averages of floats between the GPUs of one host are not NCCL's: copy engines do them (copies.py), if all
ranks can reach each other's memory (`meet`), also of those that travel as 16-bit floats.
Gather, scatter and all-to-all are groups of sends and receives.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from collectives.call import Array, Task
from collectives.checks import dtype_name
from collectives.errors import CollectiveArgumentError, CopyEnginesWarning
from collectives.nccl.copies import FEWEST, MOST, CopyEngines, is_for_copies
from collectives.nccl.copies_opening import Refused, open_copies
from collectives.nccl.cuda import DeviceArray, Runtime, Stream
from collectives.nccl.library import DTYPES, OPS, NcclLibrary

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
BYTE = DTYPES["uint8"]
LOOK_EVERY_S = 200e-6  # at what ranks tell each other at the start
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
        self, library: NcclLibrary, cuda: Runtime, comm: int, stream: Stream, *, rank: int, world_size: int
    ) -> None:
        self.library, self.cuda, self.comm, self.stream = library, cuda, comm, stream
        self.rank, self.world_size = rank, world_size
        self.pointer = cuda.pointer(stream)
        self.copies: CopyEngines | None = None

    # -- the start and the end

    def meet(self, name: bytes, look: Callable[[], None]) -> None:
        """Agree with all ranks on who does large sums. Before any task; the host waits for all ranks.

        name: NCCL's of the group. look: called meanwhile, every now and then; what it raises ends the wait.
        """
        if not FEWEST <= self.world_size <= MOST:
            return

        def gather(said: bytes) -> list[bytes]:
            return self._gather_bytes(said, look)

        made = open_copies(self.cuda, self.stream, self.rank, self.world_size, gather, name=name)
        if isinstance(made, CopyEngines):
            self.copies = made
        elif self.rank == 0:
            self._tell(made)

    def _tell(self, refused: Refused) -> None:
        text = f"large sums of device arrays are done by NCCL's kernels, not by copy engines: {refused.why}"
        if refused.is_fault:
            warnings.warn(text, CopyEnginesWarning, stacklevel=2)
        else:
            logging.getLogger(__name__).info(text)

    def _gather_bytes(self, said: bytes, look: Callable[[], None]) -> list[bytes]:
        """What every rank says, in as many bytes."""
        byte, row = np.dtype(np.uint8), np.frombuffer(said, np.uint8)
        mine = self.cuda.empty(self.stream, row.size, byte)
        everyones = self.cuda.empty(self.stream, row.size * self.world_size, byte)
        self.cuda.run(self.stream, lambda: self.cuda.fill(mine, row))
        source, target = self.cuda.address(mine), self.cuda.address(everyones)
        self.library.all_gather(source, target, row.size, BYTE, self.comm, self.pointer)
        self._finish(look)
        rows: list[Array] = []
        self.cuda.run(self.stream, lambda: rows.append(self.cuda.to_host(everyones)))
        self._finish(look)
        return [bytes(row) for row in rows[0].reshape(self.world_size, -1)]

    def _finish(self, look: Callable[[], None]) -> None:
        """Have the host wait until what is enqueued is done."""
        done = self.cuda.record(self.stream)
        while not self.cuda.is_done(done):
            look()
            time.sleep(LOOK_EVERY_S)

    def abort(self) -> None:
        """End what is enqueued, and NCCL here. Waits for no rank, and not for long."""
        if self.copies is None or self.copies.abort():  # first: NCCL may wait for the stream
            self.library.abort(self.comm)
        else:  # no call of CUDA comes through now, so NCCL's may not come back: the others should hear of it
            threading.Thread(target=self.library.abort, args=(self.comm,), name="abort of NCCL", daemon=True).start()

    def close(self) -> None:
        """When all that was enqueued is done on this rank."""
        if self.copies is not None:
            self.copies.close()

    def free(self, *, others_may_be_busy: bool) -> None:
        """After all ranks' `close`: let NCCL go, and memory, unless some rank may still reach for it."""
        self.library.abort(self.comm)
        if self.copies is not None and not others_may_be_busy:
            self.copies.free()

    def enqueue(self, task: Task) -> None:
        """Enqueue `task`. Raises NcclError."""
        if max(task.source.size, task.target.size):
            getattr(self, f"_{task.call.kind}")(task)

    # -- reductions

    def _all_reduce(self, task: Task) -> None:
        if task.call.wire:
            self._all_reduce_narrow(task)
            return
        self._all_reduce_array(task.target, task.call.op)

    def _all_reduce_narrow(self, task: Task) -> None:
        flat, wire = task.target, task.call.wire
        narrow = self.cuda.empty(self.stream, flat.size, np.dtype(wire))
        op = task.call.op
        if op == "avg":
            op, share = "sum", flat.dtype.type(1 / self.world_size)
            self.cuda.run(self.stream, lambda: flat.__setitem__(..., flat * share))
        self.cuda.run(self.stream, lambda: narrow.__setitem__(..., flat))
        self._all_reduce_array(narrow, op)
        self.cuda.run(self.stream, lambda: flat.__setitem__(..., narrow))

    def _all_reduce_array(self, flat: DeviceArray, op: str) -> None:
        address, dtype = self.cuda.address(flat), dtype_name(flat.dtype)
        if self.copies is not None and is_for_copies(dtype, op, flat.nbytes):
            self.copies.all_reduce(address, flat.size, dtype, op)
        else:
            numbers = _reduction(dtype, op)
            self.library.all_reduce(address, address, flat.size, *numbers, self.comm, self.pointer)

    def _reduce(self, task: Task) -> None:
        dtype, op = _reduction(dtype_name(task.target.dtype), task.call.op)
        address = self.cuda.address(task.target)
        self.library.reduce(address, address, task.target.size, dtype, op, task.call.root, self.comm, self.pointer)

    def _reduce_scatter(self, task: Task) -> None:
        dtype, op = _reduction(dtype_name(task.target.dtype), task.call.op)
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


def _reduction(dtype: str, op: str) -> tuple[int, int]:
    """NCCL's numbers of a dtype and a reduction."""
    return (BYTE, OPS[_OF_BOOLS.get(op, op)]) if dtype == "bool" else (DTYPES[dtype], OPS[op])
