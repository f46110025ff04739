"""Which definitions share a kernel: greedy merging, most bytes saved first.

In: definitions, the sizes of all values, how urgent each value is. Out: groups in an executable order. Candidates are
(producer, consumer) pairs, worth the bytes of the value that need not be written and read again, then pairs that read
the same large value; on a GPU also small ones that are worth a launch. Each is merged if `legality.can_fuse` allows it
and no path between the two leads through a third group. Every decision is logged under "fusion".
Urgency: values that the first event announces, and what they need, are more urgent than those of the second, and so
on. More urgent groups run first, so that events come as early as the graph allows. A merge of an announced value with a
later one is taken if it makes the earlier wait for nothing but the merged values themselves, or for no more than
`patience` announced values after it. That is judged value by value, in graph order, whatever the events announce
together: so the kernels, and with them the order of every sum, do not depend on how values are grouped into events (on
DDP's buckets).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from compiler_core import log
from compiler_core.errors import LoweringError
from compiler_core.lowering import definition as d
from compiler_core.records import dataclass
from compiler_core.schedule.legality import Group, Hazard, Info, Legal, can_fuse, describe, initial_group, merged


@dataclass(frozen=True, slots=True)
class Order:
    """An order that is not that of who reads whom: of collectives, which all ranks begin in one.

    turns: values that are computed in this order. behind: input -> the values that must be complete before it is read:
    a collective makes it of some of them, and begins when those before it have begun. cost: of each of these inputs,
    how much work covers its way, in bytes moved.
    """

    turns: Sequence[str] = ()
    behind: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cost: Mapping[str, int] = field(default_factory=dict)


Urgency = Mapping[str, int]  # value -> the first event that needs it; a large number if none does

_FLOPS_A_BYTE = 16  # operations of a library routine in the time of a byte moved
_MIN_SHARED = 1024  # elements: sharing less than this is not worth a wider kernel
_MOST_TRIED = 64  # readers of a value that each of them is tried with: all pairs of thousands would take minutes
_MOST_SMALL = 32  # values of a kernel that are together for the launch's sake


class Grouping:
    """Groups and the reads between them, while they are merged. patience: see the file's head."""

    def __init__(
        self, infos: Mapping[str, Info], urgency: Urgency | None = None, patience: int = 0, order: Order | None = None
    ) -> None:
        self.infos, self.patience = infos, patience
        urgency = urgency or {}
        self.urgency = {
            k: urgency.get(name, 0) for k, name in enumerate(infos)
        }  # a group's is its most urgent member's
        self.position = {name: k for k, name in enumerate(infos)}
        self.group_of = {name: k for k, name in enumerate(infos)}
        self.groups: dict[int, Group] = {k: initial_group(info) for k, info in enumerate(infos.values())}
        self.readers: dict[int, set[int]] = {k: set() for k in self.groups}
        self.sources: dict[int, set[int]] = {k: set() for k in self.groups}
        for name, info in infos.items():
            for source in d.definition_reads(info.definition):
                if source in self.group_of and source != name:
                    self.readers[self.group_of[source]].add(self.group_of[name])
                    self.sources[self.group_of[name]].add(self.group_of[source])
        self.parted: dict[int, set[int]] = {k: set() for k in self.groups}  # groups with a collective between them
        self.waits: dict[int, set[str]] = {k: set() for k in self.groups}  # the results of collectives that each reads
        self._put_in_order(order or Order())
        self.latest = {k: k for k in self.groups}  # position of the last member
        self.bits = {k: 1 << k for k in self.groups}  # a group as a set of bits: one for each of its members
        self.after: dict[int, int] = {}  # the groups that depend on a group: of each at least one bit
        for k in reversed(self._topological() if order else list(self.groups)):
            self.after[k] = 0
            for reader in self.readers[k]:
                self.after[k] |= self.after[reader] | 1 << reader

    def _put_in_order(self, order: Order) -> None:
        """What comes before what, though it is not read there."""
        for first, second in pairwise(name for name in order.turns if name in self.group_of):
            self._edge(self.group_of[first], self.group_of[second])
        for name, info in self.infos.items():
            for read in d.definition_reads(info.definition):
                if read in order.behind:
                    self.waits[self.group_of[name]].add(read)
                for source in order.behind.get(read, ()):
                    a, b = self.group_of[source], self.group_of[name]
                    self._edge(a, b)
                    self.parted[a].add(b)
                    self.parted[b].add(a)

    def _topological(self) -> list[int]:
        """The groups, each behind those that it needs. What turns ask for may stand later."""
        waiting = {k: len(sources) for k, sources in self.sources.items()}
        found = [k for k, count in waiting.items() if count == 0]
        for k in found:
            for reader in self.readers[k]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    found.append(reader)
        return found

    def _edge(self, a: int, b: int) -> None:
        self.readers[a].add(b)
        self.sources[b].add(a)

    def has_path(self, a: int, b: int, *, indirect: bool) -> bool:
        """Whether group b depends on group a (indirect: through a third group)."""
        if not indirect:
            return bool(self.after[a] & self.bits[b])
        return any(self.after[reader] & self.bits[b] for reader in self.readers[a] if reader != b)

    def try_merge(self, a: int, b: int) -> Legal | Hazard:
        """Merge b into a if that is legal; b may read from a."""
        if b in self.parted[a]:
            return Hazard("event", "the one reads what a collective makes of the other")
        if self.waits[a] != self.waits[b] and b not in self.readers[a] and a not in self.readers[b]:
            return Hazard("event", "the one would wait for a collective that the other does not read")
        verdict = can_fuse(self.groups[a], self.groups[b], self.infos)
        if isinstance(verdict, Hazard):
            return verdict
        if self.has_path(a, b, indirect=True) or self.has_path(b, a, indirect=True):
            return Hazard("cycle", "a third group lies between them")
        if self._delays(a, b) or self._delays(b, a):
            return Hazard("event", "an event that announces the one would wait for what the other needs")
        members = tuple(sorted((*self.groups[a].members, *self.groups[b].members), key=self.position.__getitem__))
        self.groups[a] = merged(self.groups[a], self.groups[b], members, verdict.shape, self.infos)
        self._absorb(a, b)
        return verdict

    def _delays(self, a: int, b: int) -> bool:
        """Whether group b, merged into the more urgent group a, would make it wait for less urgent groups."""
        limit = self.urgency[a]
        allowed = limit + self.patience
        return limit < self.urgency[b] and any(self.urgency[s] > allowed for s in self.sources[b] if s != a)

    def hasten(self, k: int, urgency: dict[int, int]) -> None:
        """What group k needs is as urgent as it is. urgency: of each group; changed."""
        limit, todo = urgency[k], [*self.sources[k]]
        while todo:
            source = todo.pop()
            if urgency[source] > limit:
                urgency[source] = limit
                todo += self.sources[source]

    def _absorb(self, a: int, b: int) -> None:
        for name in self.groups.pop(b).members:
            self.group_of[name] = a
        tables = ((self.readers, self.sources), (self.sources, self.readers), (self.parted, self.parted))
        for mine, other in tables:
            for neighbour in mine.pop(b):
                other[neighbour].discard(b)
                if neighbour != a:
                    other[neighbour].add(a)
                    mine[a].add(neighbour)
            mine[a].discard(b)
        self.waits[a] |= self.waits.pop(b)
        self.latest[a] = max(self.latest[a], self.latest.pop(b))
        self.urgency[a] = min(self.urgency[a], self.urgency.pop(b))
        self.hasten(a, self.urgency)
        self.bits[a] |= self.bits.pop(b)
        beyond = (self.after[a] | self.after.pop(b)) & ~self.bits[a]
        self.after[a] = beyond
        todo = [*self.sources[a]]
        while todo:  # what already reaches all of it is preceded by groups that do, too
            k = todo.pop()
            if self.after[k] | beyond != self.after[k]:
                self.after[k] |= beyond
                todo += self.sources[k]


def fuse(
    definitions: Mapping[str, d.Definition],
    numel_of: Mapping[str, int],
    itemsize_of: Mapping[str, int],
    events: Sequence[Sequence[str]] = (),
    *,
    enabled: bool,
    patience: int = 0,
    small: int = 0,
    order: Order | None = None,
) -> list[tuple[Group, dict[str, Info]]]:
    """Groups in executable order, each with the Infos of its members. events: the values that each announces.

    small: elements of what is computed in less time than a launch takes.
    """
    infos = {name: describe(definition, numel_of) for name, definition in definitions.items()}
    announced = {name for names in events for name in names}
    urgency = urgency_of(definitions, [(name,) for name in definitions if name in announced])
    partition = Grouping(infos, urgency, patience, order)
    if enabled:
        _merge_chains(partition, numel_of, itemsize_of)
        _merge_siblings(partition, numel_of, itemsize_of)
        _merge_small(partition, small)
    ordered = executable_order(partition, urgency_of(definitions, events), order)
    return [(group, {name: infos[name] for name in group.members}) for group in ordered]


def urgency_of(definitions: Mapping[str, d.Definition], events: Sequence[Iterable[str]]) -> dict[str, int]:
    """The urgency of every definition: the first event that needs it, or their number if none does.

    events: the values that each announces, in the order in which they shall come.
    """
    urgency: dict[str, int] = {}
    for number, names in enumerate(events):
        todo = [*names]
        while todo:
            name = todo.pop()
            if name in definitions and name not in urgency:
                urgency[name] = number
                todo += d.definition_reads(definitions[name])
    return {name: urgency.get(name, len(events)) for name in definitions}


def _merge_chains(partition: Grouping, numel_of: Mapping[str, int], itemsize_of: Mapping[str, int]) -> None:
    """Producer into consumer, largest intermediate value first."""
    edges = []
    for name, info in partition.infos.items():
        for source in dict.fromkeys(read.source for read in info.reads):
            if source in partition.group_of:
                edges.append((-numel_of[source] * itemsize_of[source], partition.position[name], source, name))
    for cost, _, source, name in sorted(edges):
        a, b = partition.group_of[source], partition.group_of[name]
        if a != b:
            _report(source, name, -cost, partition.try_merge(a, b))


def _merge_siblings(partition: Grouping, numel_of: Mapping[str, int], itemsize_of: Mapping[str, int]) -> None:
    """Groups that stream the same value."""
    readers: dict[str, list[str]] = {}
    for name, info in partition.infos.items():
        for read in info.reads:
            if read.cols is None and numel_of[read.source] >= _MIN_SHARED:
                readers.setdefault(read.source, []).append(name)
    shared = [(-numel_of[s] * itemsize_of[s], k, s) for k, s in enumerate(readers) if len(readers[s]) > 1]
    for cost, _, source in sorted(shared):
        names = readers[source]
        for first, second in _pairs(names):
            a, b = partition.group_of[first], partition.group_of[second]
            if a == b:
                continue
            if partition.has_path(b, a, indirect=False):
                a, b = b, a
            _report(first, second, -cost, partition.try_merge(a, b))


def _merge_small(partition: Grouping, small: int) -> None:
    """Groups of at most `small` elements that read the same value of their size, or that read inputs alone."""
    beside: dict[object, list[str]] = {}
    for name, info in partition.infos.items():
        if isinstance(info.definition, d.Element) and info.definition.numel <= small:
            sources = {read.source for read in info.reads} & partition.group_of.keys()
            same = [source for source in sources if partition.infos[source].definition.numel == info.definition.numel]
            for key in same if sources else [info.definition.numel]:
                beside.setdefault(key, []).append(name)
    for names in beside.values():
        for first, second in pairwise(names):
            a, b = partition.group_of[first], partition.group_of[second]
            if a == b or not _is_small(partition, a, b, small):
                continue
            if partition.has_path(b, a, indirect=False):
                a, b = b, a
            _report(first, second, 0, partition.try_merge(a, b))


def _is_small(partition: Grouping, a: int, b: int, small: int) -> bool:
    members = [partition.infos[name].definition for group in (a, b) for name in partition.groups[group].members]
    fits = all(isinstance(definition, d.Element) and definition.numel <= small for definition in members)
    return fits and len(members) <= _MOST_SMALL


def _pairs(names: Sequence[str]) -> Iterable[tuple[str, str]]:
    return ((first, second) for k, first in enumerate(names) for second in names[k + 1 : k + 1 + _MOST_TRIED])


def _report(first: str, second: str, saved_nbytes: int, verdict: Legal | Hazard) -> None:
    if log.is_on("fusion"):
        outcome = "merged" if isinstance(verdict, Legal) else f"kept apart ({verdict.kind}: {verdict.why})"
        log.emit("fusion", f"{first} + {second}, {saved_nbytes} bytes: {outcome}")


def executable_order(partition: Grouping, urgency: Urgency | None = None, order: Order | None = None) -> list[Group]:
    """Topological order; among the ready ones the most urgent, then the group whose last member stands first.

    What reads the result of a collective comes once enough other work covers its way, or when nothing else is ready.
    Raises LoweringError if there is none: a merge made a cycle.
    """
    urgency = urgency or {}
    first = {k: min(urgency.get(name, 0) for name in group.members) for k, group in partition.groups.items()}
    for k in partition.groups:
        partition.hasten(k, first)
    waiting = {k: len(sources) for k, sources in partition.sources.items()}
    way = _Way(partition, order or Order())
    ready: list[tuple[int, int, int]] = []
    blocked: list[tuple[int, int, int, int]] = []  # what would wait, by when it would not any more

    def add(k: int) -> None:
        heapq.heappush(blocked, (way.open_at(k), first[k], partition.latest[k], k))

    for k, count in waiting.items():
        if count == 0:
            add(k)
    ordered = []
    while ready or blocked:
        while blocked and (blocked[0][0] <= way.done or not ready):
            way.done = max(way.done, blocked[0][0])
            heapq.heappush(ready, heapq.heappop(blocked)[1:])
        _, _, k = heapq.heappop(ready)
        ordered.append(partition.groups[k])
        way.run(k)
        for reader in partition.readers[k]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                add(reader)
    if len(ordered) != len(partition.groups):
        raise LoweringError("fused groups wait for each other", expected=f"{len(partition.groups)} groups in order")
    return ordered


class _Way:
    """How far collectives have come, by how much has been computed since they began. done: work so far, in bytes moved.

    Collectives run one after the other, each from when its last operand is complete.
    """

    def __init__(self, partition: Grouping, order: Order) -> None:
        self.partition, self.order = partition, order
        self.done = self.free_at = 0
        self.left = {source: set(sources) for source, sources in order.behind.items()}
        self.ends: dict[str, int] = {}  # input -> when its collective is over
        self.reads = {
            k: {read for name in group.members for read in d.definition_reads(partition.infos[name].definition)}
            & order.behind.keys()
            for k, group in (partition.groups.items() if order.behind else ())
        }

    def open_at(self, k: int) -> int:
        """When group k would not wait."""
        return max((self.ends[name] for name in self.reads.get(k, ())), default=0)

    def run(self, k: int) -> None:
        """Group k has been computed."""
        if not self.order.behind:
            return
        members = self.partition.groups[k].members
        self.done += sum(_work(self.partition.infos[name]) for name in members)
        for name, left in self.left.items():
            if left and name not in self.ends:
                left.difference_update(members)
                if not left:
                    self.ends[name] = self._ends_at(name)

    def _ends_at(self, name: str) -> int:
        together = self.order.behind[name]
        beside = next((self.ends[other] for other in self.ends if self.order.behind[other] == together), None)
        if beside is not None:  # of the same launch
            return beside
        self.free_at = max(self.free_at, self.done) + self.order.cost.get(name, 0)
        return self.free_at


def _work(info: Info) -> int:
    """What takes as long as computing a definition, in bytes moved."""
    definition = info.definition
    if isinstance(definition, d.Gemm):
        return 2 * math.prod(definition.batch) * definition.m * definition.n * definition.k // _FLOPS_A_BYTE
    return 4 * info.domain * (1 + len(info.reads))
