"""The stand-in's NCCL: communicators between threads, whose collectives are matched by order, as NCCL's are.

In: each rank's calls, which enqueue on its stream. Out: when a rank's stream gets to a collective, the others are
driven to theirs; the sources of all are read, then each rank's target is written when its own stream gets there.
A rank that never calls leaves the others waiting, as a kernel of NCCL does, until `abort`.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from collectives import Communicator, run_ranks
from collectives.errors import NcclError
from collectives.nccl.communicator import NcclCommunicator
from collectives.nccl.library import DTYPES, OPS
from tests.fake_nccl.memory import Machine, PeerMemory
from tests.fake_nccl.streams import HANG_S, Runtime, Stream

R = TypeVar("R")
NAMES = {number: name for name, number in DTYPES.items()}
REDUCE = {number: name for name, number in OPS.items()}


def memory(address: int, count: int, dtype: int) -> np.ndarray[Any, Any]:
    """`count` elements at an address."""
    kind = np.dtype(NAMES[dtype])
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind)


@dataclass(eq=False)
class Op:
    """One rank's part in a collective. parts: of a group, its sends and receives."""

    kind: str
    arguments: tuple[Any, ...]
    stream: Stream
    number: int
    sources: list[Any] = field(default_factory=list)
    results: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] | None = None


class Fabric:
    """What the ranks of one test share. shared_gpus: ranks use this many GPUs."""

    def __init__(self, world_size: int, *, shared_gpus: int | None = None) -> None:
        self.world_size, self.gpus = world_size, shared_gpus or world_size
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.streams: dict[int, Stream] = {}
        self.comms: dict[bytes, dict[int, list[Op]]] = {}
        self.aborted: set[int | bytes] = set()  # communicators, and the ids of those that a member left
        self.errors: dict[int, str] = {}
        self.ids = 0
        self.machine = Machine()

    def library(self, rank: int) -> Library:
        return Library(self, rank)

    def runtime(self, rank: int) -> Runtime:
        runtime = Runtime(self.lock, self.streams, identity=1 + rank % self.gpus)
        runtime.memory = PeerMemory(self.machine, runtime, rank)
        return runtime

    def communicator(self, host: Communicator) -> NcclCommunicator:
        runtime = self.runtime(host.rank)
        return NcclCommunicator(host, library=lambda: self.library(host.rank), runtime=lambda index: runtime)


class _Group(threading.local):
    """A thread's group of sends and receives, as NCCL's."""

    messages: list[tuple[str, tuple[int, ...]]] | None = None
    comm = stream = 0


class Library:
    """NCCL as rank `rank` of the fabric has loaded it."""

    def __init__(self, fabric: Fabric, rank: int) -> None:
        self.fabric, self.rank = fabric, rank
        self.comms: dict[int, tuple[bytes, int]] = {}
        self.groups = _Group()
        self.calls: list[str] = []

    def version(self) -> int:
        return 22809

    def unique_id(self) -> bytes:
        with self.fabric.lock:
            self.fabric.ids += 1
            return f"fabric {self.fabric.ids}".encode().ljust(128, b"\xff")

    def init(self, world_size: int, unique_id: bytes, rank: int) -> int:
        fabric = self.fabric
        with fabric.changed:
            members = fabric.comms.setdefault(unique_id, {})
            members[rank] = []
            fabric.changed.notify_all()
            assert fabric.changed.wait_for(lambda: len(members) == world_size, HANG_S), "ncclCommInitRank hangs"
            comm = 1000 * (self.rank + 1) + len(self.comms)
            self.comms[comm] = unique_id, rank
            return comm

    def abort(self, comm: int) -> None:
        with self.fabric.changed:
            self.fabric.aborted.update((comm, self.comms[comm][0]))
            self.fabric.changed.notify_all()

    def async_error(self, comm: int) -> str:
        return self.fabric.errors.get(self.rank, "")

    # -- enqueuing

    def all_reduce(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
        self._add("all_reduce", (source, target, count, dtype, op), comm, stream)

    def reduce(
        self, source: int, target: int, count: int, dtype: int, op: int, root: int, comm: int, stream: int
    ) -> None:
        self._add("reduce", (source, target, count, dtype, op, root), comm, stream)

    def broadcast(self, source: int, target: int, count: int, dtype: int, root: int, comm: int, stream: int) -> None:
        self._add("broadcast", (source, target, count, dtype, root), comm, stream)

    def all_gather(self, source: int, target: int, count: int, dtype: int, comm: int, stream: int) -> None:
        self._add("all_gather", (source, target, count, dtype), comm, stream)

    def reduce_scatter(self, source: int, target: int, count: int, dtype: int, op: int, comm: int, stream: int) -> None:
        self._add("reduce_scatter", (source, target, count, dtype, op), comm, stream)

    def send(self, source: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._message("send", source, count, dtype, peer, comm, stream)

    def receive(self, target: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        self._message("receive", target, count, dtype, peer, comm, stream)

    def group_start(self) -> None:
        self.groups.messages = []

    def group_end(self) -> None:
        group = self.groups
        messages, group.messages = group.messages, None
        self._add("group", tuple(messages or ()), group.comm, group.stream)

    def _message(self, kind: str, address: int, count: int, dtype: int, peer: int, comm: int, stream: int) -> None:
        group = self.groups
        assert group.messages is not None, "sends that are not in a group may wait for each other"
        group.messages.append((kind, (address, count, dtype, peer)))
        group.comm, group.stream = comm, stream

    def _add(self, kind: str, arguments: tuple[Any, ...], comm: int, stream_number: int) -> None:
        fabric, stream = self.fabric, self.fabric.streams[stream_number]
        if comm in fabric.aborted:
            raise NcclError("the communicator was aborted")
        is_made_there = kind == "all_gather" and stream.makes  # ranks that meet at the start
        assert stream.has_waited or is_made_there, f"{kind} does not wait for what made its arrays"
        stream.has_waited = stream.makes = False
        self.calls.append(kind)
        unique_id, rank = self.comms[comm]
        with fabric.changed:
            ops = fabric.comms[unique_id][rank]
            op = Op(kind, arguments, stream, len(ops))
            ops.append(op)
            stream.add(execute := Execution(lambda: self._execute(op, comm), lambda: self._all_there(op, comm)))
            op.execute = execute  # type: ignore[attr-defined]
            fabric.changed.notify_all()

    # -- when a stream gets there

    def _all_there(self, op: Op, comm: int) -> bool:
        """Where another rank aborted, the host would go on, and this stream hang."""
        fabric, (unique_id, _) = self.fabric, self.comms[comm]
        return unique_id in fabric.aborted or all(len(ops) > op.number for ops in fabric.comms[unique_id].values())

    def _execute(self, op: Op, comm: int) -> None:
        fabric, (unique_id, rank) = self.fabric, self.comms[comm]
        members = fabric.comms[unique_id]
        if op.results is None:
            is_there = fabric.changed.wait_for(lambda: self._all_there(op, comm), HANG_S)
            assert is_there, f"{op.kind} hangs on rank {rank}"
            if unique_id in fabric.aborted and op.results is None:
                return
            everyones = [members[r][op.number] for r in sorted(members)]
            for other in everyones:
                if other is not op and other.results is None:
                    _drive_to(other)
            if op.results is None:
                _compute(everyones)
        assert op.results is not None
        for target, values in op.results:
            target[...] = values
        op.results = []


@dataclass(eq=False)
class Execution:
    """A collective in a stream's queue. is_ready: whether all ranks have enqueued theirs; else it waits for them."""

    run: Callable[[], None]
    is_ready: Callable[[], bool]

    def __call__(self) -> None:
        self.run()


def _drive_to(op: Op) -> None:
    """Do what is before `op` on its stream."""
    stream = op.stream
    while stream.queue and stream.queue[0] is not op.execute:  # type: ignore[attr-defined]
        stream.drive(stream.queue[0])


def _compute(ops: list[Op]) -> None:
    """Read all sources; say what each rank's targets become."""
    kinds = {(op.kind, *(op.arguments[2:] if op.kind != "group" else ())) for op in ops}
    assert len(kinds) == 1, f"NCCL would hang, or give anything: {kinds}"
    kind, arguments = ops[0].kind, ops[0].arguments
    if kind == "group":
        _compute_group(ops)
        return
    count, dtype = arguments[2:4]
    factor = len(ops) if kind == "reduce_scatter" else 1
    sources = [memory(op.arguments[0], count * factor, dtype).copy() for op in ops]
    if kind == "broadcast":
        made = [sources[arguments[4]]] * len(ops)
    elif kind == "all_gather":
        made = [np.concatenate(sources)] * len(ops)
    else:
        total = _reduced(sources, REDUCE[arguments[4]])
        made = list(total.reshape(len(ops), -1)) if kind == "reduce_scatter" else [total] * len(ops)
    for rank, (op, values) in enumerate(zip(ops, made)):
        is_written = kind != "reduce" or rank == arguments[5]
        op.results = [(memory(op.arguments[1], values.size, dtype), values)] if is_written else []


def _reduced(sources: list[np.ndarray[Any, Any]], op: str) -> np.ndarray[Any, Any]:
    kind = sources[0].dtype
    wide = [source.astype(np.float32) if kind.itemsize == 2 else source for source in sources]
    functions: dict[str, Callable[..., Any]] = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}
    total = wide[0]
    for source in wide[1:]:
        total = functions.get(op, np.add)(total, source)
    if op == "avg":
        total = total / total.dtype.type(len(sources))
    return np.asarray(total).astype(kind)


def _compute_group(ops: list[Op]) -> None:
    boxes: dict[tuple[int, int], list[np.ndarray[Any, Any]]] = {}
    for rank, op in enumerate(ops):
        for kind, (address, count, dtype, peer) in op.arguments:
            if kind == "send":
                boxes.setdefault((rank, peer), []).append(memory(address, count, dtype).copy())
    for rank, op in enumerate(ops):
        op.results = []
        for kind, (address, count, dtype, peer) in op.arguments:
            if kind == "receive":
                op.results.append((memory(address, count, dtype), boxes[peer, rank].pop(0)))
    assert not any(boxes.values()), "messages that nobody received"


def nccl_ranks(
    world_size: int, function: Callable[[NcclCommunicator], R], *, timeout_s: float = 20.0, fabric: Fabric | None = None
) -> list[R]:
    """Run `function` on ranks that are threads, each with an NcclCommunicator. Returns results by rank."""
    shared = fabric or Fabric(world_size)

    def run(host: Communicator) -> R:
        communicator = shared.communicator(host)
        try:
            return function(communicator)
        finally:
            atexit.unregister(communicator.close)
            if communicator.engine is not None:
                communicator.engine.stop()
            if communicator.postman is not None:
                communicator.postman.stop()

    began_s = time.perf_counter()
    results = run_ranks(world_size, run, timeout_s=timeout_s)
    assert time.perf_counter() - began_s < timeout_s
    return results
