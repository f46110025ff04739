"""All-reduce through shared memory, for ranks of one host: every rank reads the others' buffers where they lie.

In: arrays out of `arena`, whose place each rank tells in the roll call. Out: reduced arrays.
Method: reduce-scatter, then all-gather, without messages: rank r reduces part r of all buffers into its own, all meet,
each copies the other parts, all meet. Between meetings a rank works or sleeps: unlike in an MPI call it never spins, so
the thread that computes on the same core keeps it. A meeting is one counter a rank, read by the others.
Measured (2 ranks, one busy host, Zen 4, medians, hand-over to the thread included): 4 MiB 0.63 ms against 1.5 ms by
MPICH 5.0 and 1.7 by Open MPI 5.0, 24 MiB 5.4 ms against 9.1 by MPICH.
Memory is anonymous (memfd), reached by peers through /proc/<pid>/fd: nothing is left behind, however a job ends.
Invariants: the sum is in rank order, so its bits do not depend on sizes or chunks; a buffer is not read by anyone once
the collective has ended. Limit: Linux; elsewhere, or if a peer's memory cannot be opened, all ranks use MPI.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from collectives.arena import Arena, Place, address_of
from collectives.call import Array, Task
from collectives.errors import CollectiveTimeoutError
from collectives.host import open_host
from collectives.over_mpi.objects import ObjectChannel
from collectives.reduce import UFUNCS, is_narrow, reduce_in_rank_order

HEADER_NBYTES = 64
CHUNK_NBYTES = 1 << 20


def map_peer(process: int, descriptor: int, nbytes: int) -> Array:
    """Another process's segment, as bytes. Raises OSError if it cannot be opened."""
    opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)
    try:
        return np.frombuffer(mmap.mmap(opened, nbytes), np.uint8)
    finally:
        os.close(opened)


class SharedMemory:
    """This rank's shared memory, and its view of the other ranks'. processes: process id by rank."""

    def __init__(self, rank: int, processes: Sequence[int], headers: Sequence[Array]) -> None:
        self.rank, self.processes = rank, processes
        self.world_size = len(processes)
        self.counters = [header[:8].view(np.int64) for header in headers]
        self.meetings = 0
        self.arena = Arena()
        self.mapped: dict[tuple[int, int], Array] = {}

    # -- memory

    def locate(self, array: Array) -> Place:
        """Where `array` lies in this rank's segments; NOWHERE if it is ordinary memory."""
        return self.arena.locate(address_of(array), array.nbytes)

    def view(self, rank: int, location: Place, like: Array) -> Array:
        """Rank `rank`'s array at `location`, flat, of the size and dtype of `like`."""
        serial, descriptor, nbytes, offset = location
        if (rank, serial) not in self.mapped:
            self.mapped[rank, serial] = map_peer(self.processes[rank], descriptor, nbytes)
        return self.mapped[rank, serial][offset : offset + like.nbytes].view(like.dtype)

    # -- the collective

    def all_reduce(self, task: Task, locations: Sequence[Place], pause: Callable[[], None], timeout_s: float) -> None:
        """Reduce `task.target` on all ranks. locations: everyone's, by rank. pause: leaves the core a moment."""
        mine = task.target
        arrays = [mine if r == self.rank else self.view(r, where, mine) for r, where in enumerate(locations)]
        bounds = np.linspace(0, mine.size, self.world_size + 1).astype(np.int64).tolist()
        parts = [slice(start, stop) for start, stop in pairwise(bounds)]
        self._reduce_part(task, [array[parts[self.rank]] for array in arrays], mine[parts[self.rank]])
        self._meet(task, pause, timeout_s)
        for step in range(1, self.world_size):
            other = (self.rank + step) % self.world_size
            mine[parts[other]] = arrays[other][parts[other]]
        self._meet(task, pause, timeout_s)

    def _reduce_part(self, task: Task, sources: Sequence[Array], target: Array) -> None:
        op = task.call.op
        if self.world_size == 2 and not is_narrow(target.dtype):
            UFUNCS[op](sources[0], sources[1], out=target)  # one pass, one release of the GIL
            if op == "avg":
                target /= target.dtype.type(2)
            return
        step = CHUNK_NBYTES // target.itemsize
        for start in range(0, target.size, step):
            chunk = slice(start, start + step)
            target[chunk] = reduce_in_rank_order([source[chunk] for source in sources], op)

    def _meet(self, task: Task, pause: Callable[[], None], timeout_s: float) -> None:
        """Return when every rank has come here."""
        self.meetings += 1
        self.counters[self.rank][0] = self.meetings
        deadline_s = time.perf_counter() + timeout_s
        while missing := [r for r, counter in enumerate(self.counters) if counter[0] < self.meetings]:
            pause()
            if time.perf_counter() > deadline_s:
                raise CollectiveTimeoutError(
                    f"{task}: ranks stopped in the middle, for {timeout_s:g} s",
                    where=f"rank {self.rank}",
                    got=f"waiting for rank(s) {missing}",
                )


def open_shared_memory(channel: ObjectChannel, timeout_s: float) -> SharedMemory | None:
    """Shared memory among all ranks; None on all if some rank cannot reach the others'. Collective."""
    host = open_host(channel, HEADER_NBYTES * (channel.world_size + 1), timeout_s)
    if host is None:
        return None
    rows = np.frombuffer(host.board, np.uint8).reshape(-1, HEADER_NBYTES)
    return SharedMemory(channel.rank, host.processes, list(rows[1:]))
