"""The MPI transport: three duplicated communicators, and one engine that runs the array collectives.

In: tasks from the main thread. Out: finished Works. mpi4py (and with it MPI) is imported by `MpiCommunicator()` only.
The engine issues array collectives strictly in launch order on the first communicator (engines.py says which); object
exchange runs in the calling thread on the second (objects.py); messages between two ranks go over the third
(point_to_point.py). The user's COMM_WORLD is left alone but for one roll call, with a tag of ours, by which the ranks
find each other within the time limit.
Ranks of one host share memory; otherwise MPI moves the data.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from collectives.call import Array, CollectiveCall, Task
from collectives.communicator import Communicator
from collectives.engines import open_engine
from collectives.errors import ClosedError, CollectiveError, ForkedProcessError
from collectives.forked import belongs_to_rank
from collectives.native import Build
from collectives.native_work import NativeWork
from collectives.over_mpi.library import load_mpi
from collectives.over_mpi.objects import ObjectChannel
from collectives.over_mpi.point_to_point import PointToPoint
from collectives.over_mpi.rollcall import RollCall
from collectives.over_mpi.transfer import Reduction
from collectives.work import DEFAULT_TIMEOUT_S, Work
from collectives.work_events import NativeWorkEvents, WorkEvents

T = TypeVar("T")
CHUNK_NBYTES = 256 << 20


class MpiCommunicator(Communicator):
    """All ranks of COMM_WORLD (or of `comm`). Creating and closing it are collective.

    timeout_s: limit of every wait, also of the one for all ranks to come here. reduction: "fast" or "rank_order", see
    transfer.py. chunk_nbytes: largest message.
    share_memory: ranks of one host reduce arrays made by `allocate` through shared memory (in rank order, always).
    build: makes a shared object of the native engine's source; without it, a Python thread runs the collectives.
    Raises CollectiveTimeoutError, naming the ranks that did not come.
    """

    transport = "mpi"

    def __init__(
        self,
        comm: Any = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        reduction: Reduction = "fast",
        chunk_nbytes: int = CHUNK_NBYTES,
        share_memory: bool = True,
        build: Build | None = None,
    ) -> None:
        self.mpi = load_mpi()
        parent = self.mpi.COMM_WORLD if comm is None else comm
        self.rank, self.world_size, self.timeout_s = parent.Get_rank(), parent.Get_size(), timeout_s
        self.settings: dict[str, Any] = {
            "reduction": reduction, "chunk_nbytes": chunk_nbytes, "share_memory": share_memory, "build": build
        }  # fmt: skip
        self.broken: CollectiveError | None = None
        self.is_closed = self.is_forked = False
        _assemble(parent, self.mpi, timeout_s)
        self.buckets, self.control, self.messages = parent.Dup(), parent.Dup(), parent.Dup()
        self.objects = ObjectChannel(self.control, self.mpi)
        self.point_to_point = PointToPoint(self.messages, self.mpi, timeout_s=timeout_s)
        self.engine = open_engine(self.buckets, self.mpi, self.objects, timeout_s=timeout_s, **self.settings)
        atexit.register(self.close)
        belongs_to_rank(self)

    def launch(self, task: Task) -> Work:
        self._check_usable()
        self.engine.set_timeout(self.timeout_s)
        return self.engine.launch(task)

    def run(self, task: Task, timeout_s: float | None) -> None:
        self._check_usable()
        self.engine.set_timeout(self.timeout_s)
        self.engine.launch(task, quiet=True).wait(timeout_s)

    def allocate(self, numel: int, dtype: np.dtype[Any]) -> Array:
        raw = self.engine.allocate(numel * dtype.itemsize)
        return super().allocate(numel, dtype) if raw is None else raw[: numel * dtype.itemsize].view(dtype)

    def events(self, groups: Sequence[Sequence[Work]]) -> WorkEvents:
        native = [[work for work in group if isinstance(work, NativeWork)] for group in groups]
        is_native = any(native) and all(len(mine) == len(group) for mine, group in zip(native, groups))
        return NativeWorkEvents(native) if is_native else WorkEvents(groups)

    def launch_send(self, array: Array, peer: int, tag: int) -> Work:
        self._check_usable()
        self.point_to_point.timeout_s = self.timeout_s
        return self.point_to_point.send(array, peer, tag)

    def launch_receive(self, array: Array, peer: int | None, tag: int) -> Work:
        self._check_usable()
        self.point_to_point.timeout_s = self.timeout_s
        return self.point_to_point.receive(array, peer, tag)

    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        members = self._agreed_members(ranks)
        is_member = self.rank in members
        key = members.index(self.rank) if is_member else 0
        with self.objects.lock:
            comm = self.control.Split(0 if is_member else self.mpi.UNDEFINED, key)
        if not is_member:
            return None
        child = MpiCommunicator(comm, timeout_s=self.timeout_s, **self.settings)
        comm.Free()  # the child duplicated it
        return child

    def _check_usable(self) -> None:
        if self.is_closed:
            raise ClosedError("this communicator is closed", where=self._where())
        broken = self.broken or self.engine.broken
        if broken is not None:
            raise broken

    def give_up(self, error: CollectiveError) -> None:
        self.broken = self.broken or error
        self.engine.give_up(error)

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child: nothing here reaches MPI any more."""
        self.is_forked, self.broken = True, error
        self.engine.become_forked(error)
        self.point_to_point.become_forked(error)

    # -- the control channel

    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        self._check_usable()
        gathered: list[T] = self._exchange(lambda limit_s: self.objects.all_gather(value, limit_s), timeout_s)
        return gathered

    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        self._check_root(root)
        self._check_usable()
        received: T = self._exchange(lambda limit_s: self.objects.broadcast(value, root, limit_s), timeout_s)
        return received

    def _exchange(self, exchange: Callable[[float], Any], timeout_s: float | None) -> Any:
        try:
            return exchange(self.timeout_s if timeout_s is None else timeout_s)
        except CollectiveError as error:
            self.broken = error
            raise

    # -- the end

    def close(self) -> None:
        """Finish what is queued, wait (sleeping) until all ranks close, and free the communicators. Idempotent.

        Work that is still held is given up. In a forked child it does nothing.
        """
        if self.is_closed or self.is_forked:
            return
        atexit.unregister(self.close)
        self.engine.leave()  # both channels at once: another rank may wait for this one on either
        is_clean = self._part()
        self.engine.stop(self.timeout_s)
        is_clean &= self.engine.broken is None
        self.is_closed = True
        are_messages_done = self.point_to_point.close()
        self.objects.roll.free()
        if is_clean:
            self.buckets.Free()
            self.control.Free()
        if is_clean and are_messages_done:
            self.messages.Free()

    def _part(self) -> bool:
        """Tell the others on the control channel that this rank ends; False if they were in the middle of something.

        Nobody is waited for by a rank that has given up. It said what it was in the middle of, or says that it ends.
        """
        if self.broken is not None or self.engine.broken is not None:
            if not self.objects.roll.is_receiving:
                self.objects.roll.announce(CollectiveCall("close"))
            return False
        try:
            self.objects.meet(CollectiveCall("close"), self.timeout_s)
        except CollectiveError as error:
            self.broken = error
            return False
        return True

    def abort(self, exit_code: int = 1) -> None:
        if self.is_forked:
            self._check_usable()
        world = self.mpi.COMM_WORLD if self.is_closed else self.buckets  # closing frees ours; the job still must end
        world.Abort(exit_code)


def _assemble(comm: Any, mpi: Any, timeout_s: float) -> None:
    """Return when all ranks of `comm` are here. Raises CollectiveTimeoutError naming those that are not.

    Duplicating a communicator has no time limit, so it is done only when everybody is known to be there.
    """
    roll = RollCall(comm, mpi)
    try:
        roll.gather(
            CollectiveCall("connect"),
            "the start of the process group",
            timeout_s=timeout_s,
            is_awaited=lambda: False,
            tell=lambda phase: None,
        )
    finally:
        roll.free()
