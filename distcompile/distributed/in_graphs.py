"""Collectives of graphs, run: the `Runner` of compiler_core/ops/collectives/runner.py.

In: a collective of a graph, whose group is named by a key; arrays. Out: what arrives. The key is "world" for the
default group of this thread, or the one that `new_group` gave a group of it: so a graph, and what is compiled of it, is
the same for all ranks, and for threads that are ranks.
Method: collectives of graphs have a communicator of their own beside the group's (`group.twin`), for they come in the
middle of a backward whose buckets are on their way. A native call launches all of its collectives, held, in the order
of its graph; their memory is kept from call to call.
Stamps: each carries a hash of all that its graph launches in its group, and its number among them: ranks that run other
graphs get CollectiveMismatchError, which names both.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import getrefcount
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from collectives import Communicator, Gate, Work
from collectives.call import Stamp, Task
from collectives.work_events import WorkEvents
from compiler_core.device import copy_of, device_of
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.collectives import runner as core
from compiler_core.ops.collectives.runner import Collective, Launch
from compiler_core.ops.registry import Array
from distcompile.ddp.in_graph import Flown, InGraph, LaunchedBucket, reducer_of
from distcompile.distributed.errors import GroupRankError
from distcompile.distributed.group import group_of_key, twin
from distcompile.distributed.seen import TimedEvents, watched


def use_groups() -> None:
    """Graphs run their collectives in the process groups of this module."""
    core.use(GroupRunner())


class GroupRunner:
    """See the head of this file."""

    def __init__(self) -> None:
        self._free: WeakKeyDictionary[Communicator, dict[int, _Kept]] = WeakKeyDictionary()
        self._sending: list[Work] = []

    def run(self, what: Collective, source: Array, shape: Shape) -> Array:
        """One collective, now."""
        reducer = reducer_of(what.group)
        group = _group(what, reducer)
        source = source if source.flags.c_contiguous else copy_of(source)
        if what.kind == "send":
            self._sending = [work for work in self._sending if not work.is_done()]
            self._sending.append(group.send_async(copy_of(source), what.root, tag=what.tag))
            return np.zeros(shape, np.uint8)
        target: Array = device_of(source).empty(shape, source.dtype)
        if what.kind == "receive":
            group.receive_async(target, what.root, tag=what.tag).wait()
            return target
        if _is_in_place(what.kind):
            target[...] = source
            source = target
        if reducer is not None:
            task = task_of(group, what, target, source, what.kind)
            task.gate = reducer.gate
            group.run(task, None)
            reducer.check()
            return target
        ranks = twin(group)
        ranks.run(task_of(ranks, what, target, source, what.kind), None)
        return _of_root(ranks, what, target)

    def launch(self, launches: Sequence[Launch], shown: Sequence[tuple[int, int]]) -> GroupFlight:
        """Begin those of one native call. launches: the same object for all calls of one executable."""
        reducers = [reducer_of(launch.what.group) for launch in launches]
        groups = [_group(launch.what, reducer) for launch, reducer in zip(launches, reducers)]
        ranks = [twin(group) if reducer is None else group for group, reducer in zip(groups, reducers)]
        kept = self._free.setdefault(ranks[0], {}).setdefault(id(launches), _Kept(launches, shown))
        return GroupFlight(kept, kept.take(ranks), ranks, reducers)


def _group(what: Collective, reducer: InGraph | None) -> Communicator:
    """The group of a collective. Raises GroupRankError if it has another size than when the graph was made."""
    found = group_of_key(what.group) if reducer is None else reducer.books.communicator
    if found.world_size != what.ranks:
        raise GroupRankError(
            f"a compiled {what.kind} is of a group of {what.ranks} ranks",
            got=f"{found.world_size} in {what.group!r}",
            remedy="compile again: distcompile.compiler.reset()",
        )
    return found


def _is_in_place(kind: str) -> bool:
    return kind in ("all_reduce", "broadcast_from", "reduce_to")


def _of_root(ranks: Communicator, what: Collective, target: Array) -> Array:
    """What a collective for one rank gives: zeros on the others."""
    if what.kind in ("reduce_to", "gather_to") and ranks.rank != what.root:
        target[...] = 0
    return target


def task_of(ranks: Communicator, what: Collective, target: Array, source: Array, label: str) -> Task:
    """A collective on flat arrays, checked, not yet launched. In place, they are one."""
    rows = source.shape[0] if source.ndim else 1
    row = source.size // rows if rows else 0
    splits = tuple(tuple(n * row for n in counts) for counts in (what.sent, what.received)) if what.sent else None
    kind = _KINDS.get(what.kind, what.kind)
    return ranks.task(kind, target, source, op=what.reduction, root=what.root, splits=splits, label=label)  # type: ignore[arg-type]


_KINDS = {
    "broadcast_from": "broadcast", "reduce_to": "reduce", "gather_to": "gather", "scatter_from": "scatter",
    "all_to_all_uneven": "all_to_all",
}  # fmt: skip


@dataclass(eq=False)
class _Kept:
    """What an executable's calls use again. stamps: of each launch, a hash of all in its group, and its number."""

    launches: Sequence[Launch]
    shown: Sequence[tuple[int, int]]
    free: list[list[_Memory]] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)

    def __post_init__(self) -> None:
        of: dict[str, list[str]] = {}
        numbers = []
        for launch in self.launches:
            texts = of.setdefault(launch.what.group, [])
            numbers.append(len(texts))
            texts.append(launch.said)
        plans = {group: _hash("\n".join(texts)) for group, texts in of.items()}
        self.stamps = [Stamp(plans[one.what.group], 0, k) for one, k in zip(self.launches, numbers)]

    def take(self, ranks: Sequence[Communicator]) -> list[_Memory]:
        """Memory to whose results nobody refers any more."""
        for place, memory in enumerate(self.free):
            if not self.shown or self._is_idle(memory):
                return self.free.pop(place)
        if len(self.free) == MOST_KEPT:
            del self.free[0]  # who holds its results keeps it
        return [_Memory(launch, one) for launch, one in zip(self.launches, ranks)]

    def _is_idle(self, memory: Sequence[_Memory]) -> bool:
        owners = [one for one in memory for _ in one.results]
        firsts = [k for one in memory for k in range(len(one.results))]
        return all(getrefcount(owners[k].results[firsts[k]]) == _IDLE for _, k in self.shown)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class _Memory:
    """Of one launch: its operands and results, and the task over them."""

    def __init__(self, launch: Launch, ranks: Communicator) -> None:
        dtype = launch.dtype.numpy
        self.launch = launch
        operands = [part.operand for part in launch.parts]
        results = [part.result for part in launch.parts]
        source = ranks.allocate(sum(meta.numel for meta in operands), dtype)
        target = source if launch.in_place else ranks.allocate(sum(meta.numel for meta in results), dtype)
        self.operands = _views(source, operands)
        self.results = self.operands if launch.in_place else _views(target, results)
        label = f"collective of a graph ({launch.where})" if launch.where else "collective of a graph"
        whole = (source, target) if launch.in_place else (self.operands[0], self.results[0])
        self.task = task_of(ranks, launch.what, whole[1], whole[0], label)

    def started(self, ranks: Communicator, stamp: Stamp, gate: Gate | None) -> Work:
        """Its collective, launched and held."""
        task = self.task
        return ranks.launch(Task(task.call, task.source, task.target, task.label, task.splits, stamp, gate, held=True))


def _views(flat: Array, metas: Sequence[TensorMeta]) -> list[Array]:
    """Arrays that lie in `flat`, one behind the other. Each rests on a buffer, not on an array: so views of it refer
    to it, and it can be told whether there are any."""
    found, start = [], 0
    for meta in metas:
        nbytes = meta.numel * flat.itemsize
        if nbytes:
            memory = memoryview(flat.view(np.uint8))[start : start + nbytes]  # type: ignore[arg-type]
            found.append(np.ndarray(meta.shape, flat.dtype, buffer=memory))
        else:
            found.append(np.empty(meta.shape, flat.dtype))
        start += nbytes
    return found


def _idle_references() -> int:
    memory = SimpleNamespace(results=[np.zeros(1)])
    return getrefcount(memory.results[0])


_IDLE = _idle_references()
MOST_KEPT = 4  # memories of an executable that wait for their results to be let go of


class GroupFlight:
    """See `Flight` in compiler_core/ops/collectives/runner.py."""

    def __init__(
        self,
        kept: _Kept,
        memory: list[_Memory],
        ranks: Sequence[Communicator],
        reducers: Sequence[InGraph | None],
    ) -> None:
        self.kept, self.memory, self.ranks = kept, memory, ranks
        self.operands = [one.operands for one in memory]
        self.results = [one.results for one in memory]
        self.works = [
            one.started(group, stamp, None)
            if reducer is None
            else one.started(group, reducer.stamp(stamp.plan, stamp.bucket), reducer.gate)
            for one, group, stamp, reducer in zip(memory, ranks, kept.stamps, reducers)
        ]
        groups = [[work] for work in self.works]
        one = all(group is ranks[0] for group in ranks)
        events = ranks[0].events(groups) if one else WorkEvents(groups)
        only_here = any(memory.launch.what.kind in ("reduce_to", "gather_to") for memory in memory)
        self.events: Any = _ZeroElsewhere(events, self) if only_here else events
        if any(reducer is not None and reducer.gate is not None for reducer in reducers):
            self.events = _Checked(self.events, reducers)
        seen = watched()
        if seen is not None:
            self.events = TimedEvents(self.events, seen)

    def land(self) -> None:
        events = self.events
        if isinstance(events, TimedEvents):
            events.note(self.kept.launches, self.works)
            events = events.events
        if isinstance(events, _Checked):
            events.tell(self.kept.launches, self.works)
        self.kept.free.append(self.memory)

    def fail(self) -> None:
        for work in self.works:
            work.cancel()


class _Checked:
    """Events of collectives that stand behind a reducer's gate: a wait for one that was skipped raises."""

    def __init__(self, events: Any, reducers: Sequence[InGraph | None]) -> None:
        self.events, self.reducers = events, reducers
        self.waits: dict[int, tuple[float, float]] = {}

    def signal(self, event: int) -> None:
        self.events.signal(event)

    def wait(self, event: int) -> None:
        began_s = time.perf_counter()
        self.events.wait(event)
        self.waits[event] = began_s, time.perf_counter()
        reducer = self.reducers[event]
        if reducer is not None:
            reducer.check()

    def tell(self, launches: Sequence[Launch], works: Sequence[Work]) -> None:
        """The call is over: each reducer is told of its launches. Nobody waited for a result that nobody read."""
        now_s = time.perf_counter()
        for reducer in {id(one): one for one in self.reducers if one is not None}.values():
            ours = [k for k, one in enumerate(self.reducers) if one is reducer]
            buckets = tuple(
                LaunchedBucket(range(len(launches[k].parts)), sum(part.operand.nbytes for part in launches[k].parts))
                for k in ours
            )
            reducer.flown = Flown(buckets, [works[k] for k in ours], [self.waits.get(k, (now_s, now_s)) for k in ours])


class _ZeroElsewhere:
    """Events of collectives some of whose results are there on one rank alone: zeros on the others, after the wait."""

    def __init__(self, events: Any, flight: GroupFlight) -> None:
        self.events, self.flight = events, flight

    def signal(self, event: int) -> None:
        self.events.signal(event)

    def wait(self, event: int) -> None:
        self.events.wait(event)
        for result in self.flight.results[event]:
            _of_root(self.flight.ranks[event], self.flight.memory[event].launch.what, result)
