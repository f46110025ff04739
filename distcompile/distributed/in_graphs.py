"""Collectives of graphs, run: the `Runner` of compiler_core/ops/collectives/runner.py.

In: a collective of a graph, whose group is named by a key; arrays. Out: what arrives. The key is "world" for the
default group of this thread, or the one that `new_group` gave a group of it: so a graph, and what is compiled of it, is
the same for all ranks, and for threads that are ranks.
Method: collectives of graphs have a communicator of their own beside the group's (`group.twin`), for they come in the
middle of a backward whose buckets are on their way. A native call launches all of its collectives, held, in the order
of its graph (their memory: launch_memory.py).
Stamps: each carries a hash of all that its graph launches in its group, and its number among them: ranks that run other
graphs get CollectiveMismatchError, which names both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from collectives import Communicator, Work
from collectives.work_events import WorkEvents
from compiler_core.device import copy_of, device_of
from compiler_core.meta import Shape
from compiler_core.ops.collectives import runner as core
from compiler_core.ops.collectives.runner import Collective, Launch
from compiler_core.ops.registry import Array
from distcompile.ddp.in_graph import Flown, InGraph, LaunchedBucket, reducer_of
from distcompile.ddp.overlap.recorder import Time
from distcompile.distributed.errors import GroupRankError
from distcompile.distributed.group import group_of_key, twin
from distcompile.distributed.launch_memory import Kept, Memory, task_of
from distcompile.distributed.seen import TimedEvents, watched


def use_groups() -> None:
    """Graphs run their collectives in the process groups of this module."""
    core.use(GroupRunner())


class GroupRunner:
    """See the head of this file."""

    def __init__(self) -> None:
        self._free: WeakKeyDictionary[Communicator, dict[int, Kept]] = WeakKeyDictionary()
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
        kept = self._free.setdefault(ranks[0], {}).setdefault(id(launches), Kept(launches, shown))
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


class GroupFlight:
    """See `Flight` in compiler_core/ops/collectives/runner.py."""

    def __init__(
        self,
        kept: Kept,
        memory: list[Memory],
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
            self.events = TimedEvents(self.events, seen, partial(ranks[0].mark, memory[0].task.target))

    def land(self) -> None:
        events = self.events
        if isinstance(events, TimedEvents):
            events.note(self.kept.launches, self.works)
            events = events.events
        if isinstance(events, _Checked):
            events.tell(self.kept.launches, self.works)
        self.kept.give(self.memory)

    def fail(self) -> None:
        for work in self.works:
            work.cancel()


class _Checked:
    """Events of collectives that stand behind a reducer's gate: a wait for one that was skipped raises."""

    def __init__(self, events: Any, reducers: Sequence[InGraph | None]) -> None:
        self.events, self.reducers = events, reducers
        self.waits: dict[int, tuple[float, float]] = {}
        self.reached: dict[int, Time] = {}

    def signal(self, event: int) -> None:
        self.events.signal(event)

    def wait(self, event: int) -> None:
        began_s, reducer = time.perf_counter(), self.reducers[event]
        if reducer is not None:
            self.reached[event] = reducer.books.now()
        self.events.wait(event)
        self.waits[event] = began_s, time.perf_counter()
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
            waits = [self.waits.get(k, (now_s, now_s)) for k in ours]
            reducer.flown = Flown(buckets, [works[k] for k in ours], waits, [self.reached.get(k) for k in ours])


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
