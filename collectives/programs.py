"""Collectives between hosts as programs: short lists of messages between two ranks, waits, reductions and copies.

    step    = (what, peer, region a, offset a, region b, offset b, n, slot)      int64 each; offsets in bytes
    SEND    n bytes of a to `peer`, as request `slot`            RECEIVE   into a
    WAIT    for requests slot .. slot + n                        COPY      n bytes of b to a
    REDUCE  n elements to a: this rank's piece is b, rank r's lies in the scratch at `peer` + r * `slot`
    TO_WIRE, FROM_WIRE   n elements of b to a, rounded to the 16-bit float that travels, and back

In: a `CollectiveCall`, this rank, the number of ranks. Out: `MessageProgram`, which native/programs.h runs and
interpret.py defines. Method: a large all-reduce is a pairwise reduce-scatter and all-gather (each rank sends and
receives 2 (W-1)/W of the bytes, as in a ring), in chunks, of which DEPTH are under way: the link stays busy while a
rank adds, or computes. The sum is taken in rank order, so its bits depend neither on chunks nor on sizes.
Invariants: two ranks post the messages between them in the same order; a buffer is not written before the sends from
it are waited for; a message holds at most MESSAGE_NBYTES (MPI counts in int32).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import ml_dtypes  # noqa: F401 - makes np.dtype("bfloat16") known
import numpy as np

from collectives.call import Array, CollectiveCall

SEND, RECEIVE, WAIT, REDUCE, COPY, TO_WIRE, FROM_WIRE = range(7)
SOURCE, TARGET, SCRATCH = range(3)
STEP_WORDS = 8
PART_NBYTES = 256 << 10  # of an all-reduce: what one rank reduces at a time; stays in the second-level cache
DEPTH = 4
MESSAGE_NBYTES = 64 << 20
ALIGN = 64

MessageStep = tuple[int, int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class MessageProgram:
    """steps: i64[n, 8]. slots: how many requests it uses. scratch_nbytes: memory it needs besides source and target."""

    steps: Array
    slots: int
    scratch_nbytes: int

    @property
    def words(self) -> tuple[int, int, int, int]:
        """For a record of the native engine: address and number of the steps, slots, scratch."""
        return self.steps.__array_interface__["data"][0], len(self.steps), self.slots, self.scratch_nbytes


class Writer:
    """Collects steps; hands out request slots, in runs that one WAIT covers."""

    def __init__(self) -> None:
        self.steps: list[MessageStep] = []
        self.slots = 0

    def message(self, what: int, peer: int, region: int, offset: int, nbytes: int) -> None:
        """SEND or RECEIVE, in pieces that MPI can count."""
        for start in range(0, nbytes, MESSAGE_NBYTES):
            size = min(MESSAGE_NBYTES, nbytes - start)
            self.steps.append((what, peer, region, offset + start, 0, 0, size, self.slots))
            self.slots += 1

    def wait(self, first: int, last: int) -> None:
        """Wait for the slots first .. last-1."""
        if last > first:
            self.steps.append((WAIT, 0, 0, 0, 0, 0, last - first, first))

    def local(self, what: int, a: tuple[int, int], b: tuple[int, int], n: int) -> None:
        """COPY, TO_WIRE or FROM_WIRE."""
        self.steps.append((what, 0, *a, *b, n, 0))

    def reduce(self, a: tuple[int, int], own: tuple[int, int], n: int, pieces: int, stride: int) -> None:
        self.steps.append((REDUCE, pieces, *a, *own, n, stride))

    def program(self, scratch_nbytes: int = 0) -> MessageProgram:
        steps = np.array(self.steps, np.int64).reshape(-1, STEP_WORDS)
        return MessageProgram(steps, self.slots, scratch_nbytes)


def program_of(
    call: CollectiveCall, rank: int, world: int, splits: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> MessageProgram:
    """The program of `call` on `rank`."""
    if splits is not None:
        return _all_to_all(np.dtype(call.dtype).itemsize, *splits, rank)
    return _program(call, rank, world)


@lru_cache(maxsize=1024)
def _program(call: CollectiveCall, rank: int, world: int) -> MessageProgram:
    size, count = np.dtype(call.dtype).itemsize, call.count
    equal = (count,) * world
    if call.kind == "all_reduce":
        return _all_reduce(call, rank, world)
    if call.kind in ("reduce", "reduce_scatter"):
        return _reduce(call, rank, world)
    if call.kind == "broadcast":
        return _broadcast(count * size, call.root, rank, world)
    if call.kind == "all_to_all":
        return _all_to_all(size, equal, equal, rank)
    if call.kind == "all_gather":
        return _all_gather(count * size, rank, world)
    if call.kind in ("gather", "scatter"):
        return _rooted(call.kind == "gather", count * size, call.root, rank, world)
    return Writer().program()


def peers_of(rank: int, world: int) -> Iterator[int]:
    """The other ranks, each rank's in an order of its own: nobody is everybody's first."""
    return ((rank + step) % world for step in range(1, world))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class Chunk:
    """Elements first .. last of an all-reduce; rank r reduces bounds[r] .. bounds[r+1] of them. index: which it is."""

    index: int
    bounds: tuple[int, ...]

    def part(self, rank: int) -> tuple[int, int]:
        return self.bounds[rank], self.bounds[rank + 1] - self.bounds[rank]


def chunks_of(count: int, size: int, world: int) -> list[Chunk]:
    """Equal chunks, of at most PART_NBYTES a rank."""
    number = max(1, -(-count * size // (PART_NBYTES * world)))
    edges = [count * k // number for k in range(number + 1)]
    spans = pairwise(edges)
    return [Chunk(k, tuple(a + (b - a) * r // world for r in range(world + 1))) for k, (a, b) in enumerate(spans)]


class _AllReduce:
    """Writes one rank's all-reduce. Scratch: DEPTH times a piece of each rank and, if narrow, the chunk as sent."""

    def __init__(self, call: CollectiveCall, rank: int, world: int) -> None:
        self.rank, self.world, self.writer = rank, world, Writer()
        self.narrow, self.size = bool(call.wire), 2 if call.wire else np.dtype(call.dtype).itemsize
        self.wide = np.dtype(call.dtype).itemsize
        self.chunks = chunks_of(call.count, self.size, world)
        largest = max(chunk.part(r)[1] for chunk in self.chunks for r in range(world))
        whole = max(chunk.bounds[-1] - chunk.bounds[0] for chunk in self.chunks)
        self.stride = _aligned(largest * self.size)
        self.lane = self.stride * world + (_aligned(whole * self.size) if self.narrow else 0)
        self.peers = list(peers_of(rank, world))
        self.sent: dict[int, tuple[int, int]] = {}  # chunk -> slots of its first phase
        self.gathered: dict[int, tuple[int, int]] = {}

    def write(self) -> MessageProgram:
        for chunk in self.chunks[:DEPTH]:
            self.scatter(chunk)
        for chunk in self.chunks:
            self.writer.wait(*self.sent[chunk.index])
            self.reduce_and_gather(chunk)
            if chunk.index + DEPTH < len(self.chunks):
                self.settle(chunk)
                self.scatter(self.chunks[chunk.index + DEPTH])
        for chunk in self.chunks[max(0, len(self.chunks) - DEPTH) :]:
            self.settle(chunk)
        return self.writer.program(self.lane * min(DEPTH, len(self.chunks)))

    def at(self, chunk: Chunk, element: int) -> tuple[int, int]:
        """Where the chunk's data lie as they travel."""
        if not self.narrow:
            return TARGET, element * self.size
        base = (chunk.index % DEPTH) * self.lane + self.stride * self.world
        return SCRATCH, base + (element - chunk.bounds[0]) * self.size

    def scatter(self, chunk: Chunk) -> None:
        """Send each rank its part, receive everybody's piece of this rank's."""
        writer, (_, n) = self.writer, chunk.part(self.rank)
        if self.narrow:
            first = chunk.bounds[0]
            writer.local(TO_WIRE, self.at(chunk, first), (TARGET, first * self.wide), chunk.bounds[-1] - first)
        begin, pieces = writer.slots, (chunk.index % DEPTH) * self.lane
        for peer in self.peers:
            writer.message(RECEIVE, peer, SCRATCH, pieces + peer * self.stride, n * self.size)
        for peer in self.peers:
            start, m = chunk.part(peer)
            writer.message(SEND, peer, *self.at(chunk, start), m * self.size)
        self.sent[chunk.index] = begin, writer.slots

    def reduce_and_gather(self, chunk: Chunk) -> None:
        writer, (mine, n) = self.writer, chunk.part(self.rank)
        own = self.at(chunk, mine)
        writer.reduce(own, own, n, (chunk.index % DEPTH) * self.lane, self.stride)
        begin = writer.slots
        for peer in self.peers:
            start, m = chunk.part(peer)
            writer.message(RECEIVE, peer, *self.at(chunk, start), m * self.size)
        for peer in self.peers:
            writer.message(SEND, peer, *own, n * self.size)
        self.gathered[chunk.index] = begin, writer.slots

    def settle(self, chunk: Chunk) -> None:
        """All of the chunk is there."""
        self.writer.wait(*self.gathered[chunk.index])
        if self.narrow:
            first = chunk.bounds[0]
            self.writer.local(FROM_WIRE, (TARGET, first * self.wide), self.at(chunk, first), chunk.bounds[-1] - first)


def _all_reduce(call: CollectiveCall, rank: int, world: int) -> MessageProgram:
    if call.count == 0 or (world == 1 and not call.wire):
        return Writer().program()
    return _AllReduce(call, rank, world).write()


def _reduce(call: CollectiveCall, rank: int, world: int) -> MessageProgram:
    """Pieces to whoever reduces them: the root (of all), or each rank (of its part)."""
    size, is_scatter, writer = np.dtype(call.dtype).itemsize, call.kind == "reduce_scatter", Writer()
    step = max(1, PART_NBYTES // size)
    stride = _aligned(min(step, call.count) * size)
    for start in range(0, call.count, step):
        n, begin = min(step, call.count - start), writer.slots
        reduces = is_scatter or rank == call.root
        if reduces:
            for peer in peers_of(rank, world):
                writer.message(RECEIVE, peer, SCRATCH, peer * stride, n * size)
        for peer in peers_of(rank, world) if is_scatter else [call.root] if rank != call.root else []:
            offset = (peer * call.count if is_scatter else 0) + start
            writer.message(SEND, peer, SOURCE, offset * size, n * size)
        writer.wait(begin, writer.slots)
        if reduces:
            own = (rank * call.count if is_scatter else 0) + start
            writer.reduce((TARGET, start * size), (SOURCE, own * size), n, 0, stride)
    return writer.program(stride * world)


def _broadcast(nbytes: int, root: int, rank: int, world: int) -> MessageProgram:
    """A chain in rank order from the root: each forwards a piece while it receives the next."""
    writer, place = Writer(), (rank - root) % world
    before, after = (rank - 1) % world, (rank + 1) % world
    step = PART_NBYTES if nbytes > PART_NBYTES else max(nbytes, 1)
    starts = range(0, nbytes, step)
    received = []
    if place > 0:
        for start in starts:
            received.append(writer.slots)
            writer.message(RECEIVE, before, TARGET, start, min(step, nbytes - start))
    for k, start in enumerate(starts):
        if place > 0:
            writer.wait(received[k], received[k] + 1)
        if place < world - 1:
            writer.message(SEND, after, TARGET, start, min(step, nbytes - start))
    writer.wait(0, writer.slots)
    return writer.program()


def _all_gather(nbytes: int, rank: int, world: int) -> MessageProgram:
    writer = Writer()
    for peer in peers_of(rank, world):
        writer.message(RECEIVE, peer, TARGET, peer * nbytes, nbytes)
    for peer in peers_of(rank, world):
        writer.message(SEND, peer, SOURCE, 0, nbytes)
    writer.local(COPY, (TARGET, rank * nbytes), (SOURCE, 0), nbytes)
    writer.wait(0, writer.slots)
    return writer.program()


def _rooted(is_gather: bool, nbytes: int, root: int, rank: int, world: int) -> MessageProgram:
    """Gather or scatter: the root's whole buffer has one row a rank."""
    writer, whole, part = Writer(), TARGET if is_gather else SOURCE, SOURCE if is_gather else TARGET
    if rank == root:
        for peer in peers_of(rank, world):
            writer.message(RECEIVE if is_gather else SEND, peer, whole, peer * nbytes, nbytes)
        row = rank * nbytes
        mine, rows = ((TARGET, row), (SOURCE, 0)) if is_gather else ((TARGET, 0), (SOURCE, row))
        writer.local(COPY, mine, rows, nbytes)
    else:
        writer.message(SEND if is_gather else RECEIVE, root, part, 0, nbytes)
    writer.wait(0, writer.slots)
    return writer.program()


def _all_to_all(size: int, sent: Sequence[int], received: Sequence[int], rank: int) -> MessageProgram:
    """sent, received: elements that go to, and come from, each rank."""
    writer, world = Writer(), len(sent)
    to = [sum(sent[:r]) * size for r in range(world)]
    at = [sum(received[:r]) * size for r in range(world)]
    for peer in peers_of(rank, world):
        writer.message(RECEIVE, peer, TARGET, at[peer], received[peer] * size)
    for peer in peers_of(rank, world):
        writer.message(SEND, peer, SOURCE, to[peer], sent[peer] * size)
    writer.local(COPY, (TARGET, at[rank]), (SOURCE, to[rank]), sent[rank] * size)
    writer.wait(0, writer.slots)
    return writer.program()
