"""The start of copy engines on a group: each rank's block is exported, and mapped by all the others.

In: a way to gather a few bytes of every rank (NCCL's all-gather; MPI's would do). Out: `CopyEngines`, on all ranks; or
`Refused` on all ranks, with the reason. All know alike what all have said, so nobody goes one way and others another.
Method: every rank says where it is and the handle of its block (`Offer`); if all are on one host and have one, each
maps all the others' and says how that went. Blocks that not all could map are given back once nobody maps them.
Then all add up numbers whose sum they know, for whether copies and words get from GPU to GPU, and in their order, is a
matter of the host, too: there are some that map memory which they cannot reach. If a sum is wrong, or does not end, on
any rank, there are no copy engines; blocks are kept then, as peers may still write there.
DISTCOMPILE_COPY_ENGINES=0, on any rank, leaves all sums to NCCL.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

import numpy as np

from collectives import host
from collectives.call import Array
from collectives.errors import TransportError
from collectives.nccl.copies import TRIAL, CopyEngines, block_nbytes
from collectives.nccl.cuda import DeviceArray, Runtime, Stream
from collectives.nccl.peer_memory import HANDLE_NBYTES, PeerMemory

VARIABLE = "DISTCOMPILE_COPY_ENGINES"
TRIAL_S = 5.0
REHEARSALS, REHEARSED = 2, 1 << 18  # sums at the start: of so many elements at most, in a piece each
REASON_NBYTES = 160
Gather: TypeAlias = Callable[[bytes], list[bytes]]  # of as many bytes from every rank: all ranks', in order
_ROW = struct.Struct(f"<8s?8sQ{HANDLE_NBYTES}s{REASON_NBYTES}s")


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there are no copy engines. is_fault: they could be expected."""

    why: str
    is_fault: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """What a rank says. reason: why it cannot; empty if it can. nbytes: of its block."""

    is_off: bool = False
    place: bytes = b""
    nbytes: int = 0
    handle: bytes = b""
    reason: str = ""

    def pack(self, mark: bytes) -> bytes:
        reason = self.reason.encode()[:REASON_NBYTES]
        return _ROW.pack(mark, self.is_off, self.place, self.nbytes, self.handle, reason)

    @staticmethod
    def unpack(row: bytes, mark: bytes) -> Offer:
        """Raises TransportError if the row has another mark."""
        found, is_off, place, nbytes, handle, reason = _ROW.unpack(row)
        if found != mark:
            raise TransportError("what ranks say at the start did not arrive", expected=repr(mark), got=repr(found))
        return Offer(is_off, place, nbytes, handle, reason.rstrip(b"\0").decode(errors="replace"))


def is_wanted() -> bool:
    """What the environment says on this rank."""
    return os.environ.get(VARIABLE, "1").lower() not in ("0", "false", "no", "off")


def open_copies(
    cuda: Runtime, stream: Stream, rank: int, world_size: int, gather: Gather, *, name: bytes = b""
) -> CopyEngines | Refused:
    """Copy engines whose work goes to `stream`. Collective; waits for all ranks.

    name: the group's, which no other has; so that what lay in memory is not taken for what a rank said.
    Raises what `gather` raises, and TransportError if that brings something else than the ranks' rows.
    """
    opening, meetings = _Opening(cuda, rank, world_size), count()

    def all_say(mine: Offer) -> list[Offer]:
        mark = hashlib.sha256(b"%d of %s" % (next(meetings), name)).digest()[:8]
        return [Offer.unpack(row, mark) for row in gather(mine.pack(mark))]

    offers = all_say(opening.offer())
    refused = _judged(offers)
    if refused is not None:
        opening.give_back()
        return refused
    assert opening.memory is not None
    answers = all_say(Offer(reason=opening.map(offers)))
    refused = _faults(answers)
    if refused is not None:
        opening.unmap()
        all_say(Offer())  # nobody maps anybody's now
        opening.give_back()
        return refused
    blocks = [opening.blocks[peer] for peer in range(world_size)]
    made = CopyEngines(opening.memory, cuda, stream, blocks, rank)
    refused = _faults(all_say(Offer(reason=opening.rehearse(made))))
    if refused is not None:
        _end(made)
        return refused
    return made


def _end(made: CopyEngines) -> None:
    """Let go of what failed, as far as that is over on this rank."""
    until_s = time.perf_counter() + TRIAL_S
    made.abort()
    while not made.is_ended and time.perf_counter() < until_s:
        time.sleep(50e-6)
    made.close()


def _judged(offers: list[Offer]) -> Refused | None:
    off = [rank for rank, offer in enumerate(offers) if offer.is_off]
    if off:
        return Refused(f"{VARIABLE}=0 on rank(s) {off}", is_fault=False)
    if len({offer.place for offer in offers}) > 1:
        return Refused("the ranks are on several hosts", is_fault=False)
    sizes = [offer.nbytes for offer in offers]
    return _faults(offers) or (
        Refused(f"blocks of other sizes: {sizes}", is_fault=True) if len(set(sizes)) > 1 else None
    )


def _faults(said: list[Offer]) -> Refused | None:
    reasons = {rank: offer.reason for rank, offer in enumerate(said) if offer.reason}
    if not reasons:
        return None
    return Refused("; ".join(f"rank {rank}: {reason}" for rank, reason in reasons.items()), is_fault=True)


class _Opening:
    """What this rank has made so far. blocks: by rank, where they are mapped; its own too."""

    def __init__(self, cuda: Runtime, rank: int, world_size: int) -> None:
        self.cuda, self.rank, self.world_size = cuda, rank, world_size
        self.memory: PeerMemory | None = None
        self.blocks: dict[int, int] = {}

    def offer(self) -> Offer:
        if not is_wanted():
            return Offer(is_off=True)
        place, nbytes = host.identity(), block_nbytes(self.world_size)
        try:
            self.memory = memory = self.cuda.peer_memory()
            memory.prepare(self.world_size)
            self.blocks[self.rank] = memory.allocate(nbytes)
            self._try()
            return Offer(place=place, nbytes=nbytes, handle=memory.export(self.blocks[self.rank]))
        except Exception as error:  # noqa: BLE001 - whatever CUDA or CuPy raise: it is told, and NCCL does the job
            return Offer(place=place, nbytes=nbytes, reason=_told(error))

    def _try(self) -> None:
        """Whether words are written and waited for here at all. Raises TimeoutError."""
        assert self.memory is not None
        stream, word = self.memory.urgent_stream(), self.blocks[self.rank] + TRIAL
        self.memory.signal(stream, [(word, 1)], [(word, 1)])
        self._finish(stream, "a stream does not see the word that it has written")

    def _finish(self, stream: Stream, what: str) -> None:
        """Have the host wait until what is enqueued is done. Raises TimeoutError."""
        done, until_s = self.cuda.record(stream), time.perf_counter() + TRIAL_S
        while not self.cuda.is_done(done):
            if time.perf_counter() > until_s:
                raise TimeoutError(what)
            time.sleep(50e-6)

    def map(self, offers: list[Offer]) -> str:
        """Map all the others' blocks. Returns why not; nothing if that went well."""
        assert self.memory is not None
        try:
            for peer, offer in enumerate(offers):
                if peer != self.rank:
                    self.blocks[peer] = self.memory.map(offer.handle)
        except Exception as error:  # noqa: BLE001 - as above
            return _told(error)
        return ""

    def rehearse(self, made: CopyEngines) -> str:
        """Add up numbers whose sum is known, with all ranks. Returns why there is no trusting that; nothing if it was
        right."""
        try:
            self._rehearse(made)
        except Exception as error:  # noqa: BLE001 - as above
            made.abort()  # the stream may wait for words that do not come
            return _told(error)
        return ""

    def _rehearse(self, made: CopyEngines) -> None:
        cuda, stream, found = self.cuda, made.stream, list[Array]()
        count = min(REHEARSED, made.slot * self.world_size // 4)
        row = (np.arange(count) % 1009).astype(np.float32)  # small whole numbers: sums of them are exact

        def enqueue(k: int) -> DeviceArray:
            array, values = cuda.empty(stream, count, row.dtype), (row + k) * np.float32(self.rank + 1)
            cuda.run(stream, lambda: cuda.fill(array, values))
            made.all_reduce(cuda.address(array), count, "float32", "sum")
            return array

        arrays = [enqueue(k) for k in range(REHEARSALS)]
        self._finish(stream, "a sum between these GPUs does not end")
        for array in arrays:
            cuda.run(stream, lambda array=array: found.append(cuda.to_host(array)))  # type: ignore[misc]
        self._finish(stream, "a copy to the host does not end")
        for k, got in enumerate(found):
            wanted = (row + k) * np.float32(self.world_size * (self.world_size + 1) // 2)
            if (got != wanted).any():
                at = int((got != wanted).argmax())
                raise TransportError(
                    "a sum between these GPUs is wrong", expected=f"{wanted[at]} at {at} of {count}", got=f"{got[at]}"
                )

    def unmap(self) -> None:
        assert self.memory is not None
        for peer in [peer for peer in self.blocks if peer != self.rank]:
            self.memory.unmap(self.blocks.pop(peer))

    def give_back(self) -> None:
        if self.memory is not None and self.rank in self.blocks:
            self.memory.free(self.blocks.pop(self.rank))


def _told(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
