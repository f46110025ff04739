"""The object channel of an MPI communicator: pickled values, exchanged in the calling thread, within a time limit.

In: a duplicated MPI communicator. Out: every rank's value, or one rank's on all. Each exchange begins with a roll call,
so a rank that calls something else is a named error; the data then move by non-blocking calls that are driven until a
deadline, so that a rank that dies in the middle ends in a time-out and not in a hang.
Limit: gathered in one message up to 1 GiB in total, above that rank by rank in pieces of 256 MiB (MPI counts in int32).
"""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import numpy as np

from collectives.call import Array, CollectiveCall
from collectives.errors import CollectiveTimeoutError
from collectives.over_mpi.kept import keep_for_ever
from collectives.over_mpi.rollcall import Backoff, RollCall

PIECE_NBYTES = 256 << 20
GATHERED_NBYTES = 1 << 30


class ObjectChannel:
    """One thread at a time; the others wait for it. comm: this channel's own."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self.comm, self.mpi = comm, mpi
        self.rank, self.world_size = comm.Get_rank(), comm.Get_size()
        self.roll = RollCall(comm, mpi)
        self.lock = threading.Lock()

    def meet(self, call: CollectiveCall, timeout_s: float) -> None:
        """Return when all ranks make `call` here."""
        self.roll.gather(call, str(call), timeout_s=timeout_s, is_awaited=lambda: True, tell=lambda phase: None)

    def all_gather(self, value: Any, timeout_s: float) -> list[Any]:
        """Every rank's `value`, by rank."""
        with self.lock:
            deadline_s = time.perf_counter() + timeout_s
            self.meet(CollectiveCall("all_gather_object"), timeout_s)
            mine = np.frombuffer(pickle.dumps(value), np.uint8)
            sizes = self._sizes(mine.size, deadline_s)
            return [pickle.loads(part.data) for part in self._parts(mine, sizes, deadline_s)]

    def broadcast(self, value: Any, root: int, timeout_s: float) -> Any:
        """Rank `root`'s value."""
        with self.lock:
            deadline_s = time.perf_counter() + timeout_s
            self.meet(CollectiveCall("broadcast_object", root=root), timeout_s)
            mine = np.frombuffer(pickle.dumps(value), np.uint8) if self.rank == root else np.empty(0, np.uint8)
            size = np.array([mine.size], np.int64)
            self._drive(self.comm.Ibcast(size, root=root), size, deadline_s)
            return pickle.loads(self._one(mine, int(size[0]), root, deadline_s).data)

    def _sizes(self, nbytes: int, deadline_s: float) -> list[int]:
        mine, sizes = np.array([nbytes], np.int64), np.zeros(self.world_size, np.int64)
        self._drive(self.comm.Iallgather(mine, sizes), (mine, sizes), deadline_s)
        listed: list[int] = sizes.tolist()
        return listed

    def _parts(self, mine: Array, sizes: list[int], deadline_s: float) -> list[Array]:
        if sum(sizes) > GATHERED_NBYTES:
            return [self._one(mine, size, root, deadline_s) for root, size in enumerate(sizes)]
        everything = np.empty(sum(sizes), np.uint8)
        request = self.comm.Iallgatherv([mine, self.mpi.BYTE], [everything, (sizes, None), self.mpi.BYTE])
        self._drive(request, (mine, everything), deadline_s)
        return np.split(everything, np.cumsum(sizes)[:-1].tolist())

    def _one(self, mine: Array, size: int, root: int, deadline_s: float) -> Array:
        """`size` bytes from `root`."""
        data = mine if self.rank == root else np.empty(size, np.uint8)
        for start in range(0, size, PIECE_NBYTES):
            piece = data[start : start + PIECE_NBYTES]
            self._drive(self.comm.Ibcast([piece, self.mpi.BYTE], root=root), data, deadline_s)
        return data

    def _drive(self, request: Any, buffers: Any, deadline_s: float) -> None:
        """Complete `request`. Raises CollectiveTimeoutError at the deadline (perf_counter seconds)."""
        backoff = Backoff(lambda: True, stretched_s=0.0)
        while not request.Test():
            if time.perf_counter() > deadline_s:
                keep_for_ever(request, buffers)
                raise CollectiveTimeoutError(
                    "an exchange of objects stopped in the middle",
                    where=f"rank {self.rank}",
                    got="a rank that took part in its roll call no longer answers",
                    remedy="see the output of the other ranks: one of them has ended or hangs",
                )
            backoff.pause()
