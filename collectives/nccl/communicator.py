"""`NcclCommunicator`: a host communicator (MPI) that takes arrays on GPUs, too: torch's "cpu:gloo,cuda:nccl".

In: arrays, NumPy's or CuPy's. Out: collectives, each by its array's type: host memory goes the host communicator's
way, unchanged; device arrays go to NCCL (engine.py). Objects, gates, agreement, mismatch detection, time limits, the
end of a job: all the host communicator's. One device for each communicator: that of its first device array.
Messages between two ranks are NCCL's, too (postman.py), or go through host memory (`stages_messages`).
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from collectives.call import NO_STAMP, Array, Stamp, Task
from collectives.communicator import Communicator
from collectives.errors import CollectiveArgumentError, CollectiveError, ForkedProcessError
from collectives.forked import belongs_to_rank
from collectives.nccl import library as nccl
from collectives.nccl.clock import EventMark
from collectives.nccl.cuda import Cuda, DeviceArray, Runtime
from collectives.nccl.engine import NcclEngine
from collectives.nccl.permit import TalliedGate, Tally
from collectives.nccl.postman import Postman
from collectives.nccl.staged import StagedReceive
from collectives.nccl.work import NcclWork
from collectives.work import Gate, Mark, Work
from collectives.work_events import WorkEvents

T = TypeVar("T")


class NcclCommunicator(Communicator):
    """The ranks of `host`, which it owns. Making it waits for nobody.

    library, runtime: NCCL, and what drives device number i; loaded at the first device array.
    """

    transport = "nccl"

    def __init__(
        self,
        host: Communicator,
        *,
        library: Callable[[], nccl.NcclLibrary] = nccl.load,
        runtime: Callable[[int], Runtime] = Cuda,
    ) -> None:
        self.host, self._library, self._runtime = host, library, runtime
        self.rank, self.world_size = host.rank, host.world_size
        self.tally = Tally(self._where())
        self.engine: NcclEngine | None = None
        self.postman: Postman | None = None
        self.stages_messages = False
        self.is_closed = False
        atexit.register(self.close)
        belongs_to_rank(self)

    @property
    def timeout_s(self) -> float:
        return self.host.timeout_s

    @timeout_s.setter
    def timeout_s(self, value: float) -> None:
        self.host.timeout_s = value

    @property
    def host_transport(self) -> str:
        return self.host.transport

    # -- by the array's type

    def takes_device_arrays(self) -> bool:
        return True

    def launch(self, task: Task) -> Work:
        on_host = is_on_host(task.target)
        if on_host != is_on_host(task.source):
            raise CollectiveArgumentError(
                "one collective has an array in host memory and one on a GPU", where=self._where(), got=str(task)
            )
        return self._on_host(task) if on_host else self._engine_for(task.target).launch(task)

    def run(self, task: Task, timeout_s: float | None) -> None:
        if is_on_host(task.target) and is_on_host(task.source):
            self._check()
            self.host.run(task, timeout_s)
        else:
            self.launch(task).wait(timeout_s)

    def _on_host(self, task: Task) -> Work:
        self._check()
        return self.host.launch(task)

    def _check(self) -> None:
        if self.engine is not None:
            self.engine.check()

    def _engine_for(self, array: DeviceArray) -> NcclEngine:
        """The engine, made for the device of its first array."""
        index = int(array.device.id)
        if self.engine is None:
            self.bind(index)
        assert self.engine is not None
        self._check_device(self.engine.cuda, index)
        return self.engine

    def _check_device(self, cuda: Runtime, index: int) -> None:
        if cuda.index != index:
            raise CollectiveArgumentError(
                "a group's arrays are on one GPU",
                where=self._where(),
                expected=f"cuda:{cuda.index}, as the first one's",
                got=f"an array on cuda:{index}",
                remedy="move the tensor there, or use another group (new_group)",
            )

    def bind(self, index: int) -> None:
        """Take device number `index`, and let the ranks begin to start NCCL. Waits for nobody; on all ranks alike."""
        if self.engine is None:
            self.engine = NcclEngine(self.host, self._library(), self._runtime(index), self.tally)

    def open_gate(self, words: Sequence[int], agree: int, label: str = "", *, stamp: Stamp = NO_STAMP) -> Gate:
        self._check()
        gate = self.host.open_gate((*words, self.tally.now()), agree, label, stamp=stamp)
        return TalliedGate(gate.work, agree, self.tally, self.give_up)

    def events(self, groups: Sequence[Sequence[Work]]) -> WorkEvents:
        on_device = any(isinstance(work, NcclWork) for group in groups for work in group)
        return WorkEvents(groups) if on_device else self.host.events(groups)

    def mark(self, array: Array) -> Mark | None:
        if self.engine is None or is_on_host(array):
            return None
        return EventMark(self.engine.clock, self.engine.mark())

    def allocate(self, numel: int, dtype: np.dtype[Any]) -> Array:
        return self.host.allocate(numel, dtype)

    def barrier(self, *, label: str = "", timeout_s: float | None = None) -> None:
        """Return when all ranks are here, and this rank's collectives on its GPU are done."""
        self._finish_flying()
        super().barrier(label=label, timeout_s=timeout_s)

    def barrier_async(self, *, label: str = "") -> Work:
        self._finish_flying()
        return super().barrier_async(label=label)

    def _finish_flying(self) -> None:
        if self.engine is not None:
            self.engine.synchronize()

    # -- messages

    def launch_send(self, array: Array, peer: int, tag: int) -> Work:
        if is_on_host(array):
            return self.host.launch_send(array, peer, tag)
        postman = self._postman_for(array)
        if self.stages_messages:
            return self.host.launch_send(postman.cuda.to_host(array), peer, tag)
        return postman.send(array, peer, tag)

    def launch_receive(self, array: Array, peer: int | None, tag: int) -> Work:
        if is_on_host(array):
            return self.host.launch_receive(array, peer, tag)
        postman = self._postman_for(array)
        if not self.stages_messages:
            return postman.receive(array, peer, tag)
        cuda, landing = postman.cuda, np.empty(array.size, array.dtype)
        return StagedReceive(self.host.launch_receive(landing, peer, tag), lambda: cuda.fill(array, landing))

    def _postman_for(self, array: DeviceArray) -> Postman:
        """Made for the device of its first array, which is the collectives', too. Only this rank need make one."""
        index = int(array.device.id)
        if self.engine is not None:
            self._check_device(self.engine.cuda, index)
        if self.postman is None:
            cuda = self._runtime(index) if self.engine is None else self.engine.cuda
            self.postman = Postman(self.host, self._library(), cuda, give_up=self.give_up, broken=self._broken)
        self._check_device(self.postman.cuda, index)
        return self.postman

    def _broken(self) -> CollectiveError | None:
        return None if self.engine is None else self.engine.broken

    # -- the host communicator's

    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        self._check()
        return self.host.all_gather_object(value, timeout_s=timeout_s)

    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        self._check()
        return self.host.broadcast_object(value, root=root, timeout_s=timeout_s)

    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        made = self.host.subgroup(ranks)
        if made is None:
            return None
        child = NcclCommunicator(made, library=self._library, runtime=self._runtime)
        child.stages_messages = self.stages_messages
        return child

    def give_up(self, error: CollectiveError) -> None:
        if self.postman is not None:
            self.postman.fail(error)
        if self.engine is not None:
            self.engine.fail(error)
        else:
            self.host.give_up(error)

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child, where no CUDA call succeeds: everything ends with `error`, and nothing is closed."""
        self.is_closed = True
        for part in (self.engine, self.postman):
            if part is not None:
                part.become_forked(error)

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        atexit.unregister(self.close)
        if self.engine is not None:
            self.engine.drain(self.timeout_s)
            self.engine.stop()
        if self.postman is not None:
            self.postman.drain(self.timeout_s)
            self.postman.stop()
        self.host.close()  # all ranks have drained then: NCCL may go
        if self.postman is not None:
            self.postman.free()
        if self.engine is not None:
            self.engine.free()

    def abort(self, exit_code: int = 1) -> None:
        self.host.abort(exit_code)


def is_on_host(array: object) -> bool:
    """Whether an array is in host memory: NumPy's."""
    return isinstance(array, np.ndarray)
