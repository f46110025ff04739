"""The meaning of programs (programs.py): runs those of all ranks, step by step, in one process; the engine's oracle.

In: each rank's program, source and target. Out: what the targets hold afterwards. Raises ProgramError for programs that
do not fit: ranks that wait for each other for ever, messages of different sizes, a request left open.
Method: ranks take turns, a step each, in a random order. A message may be copied as soon as both ends are posted, and
must be when one of them is waited for; which of the two it is, chance decides. So a program that writes a buffer whose
send is still open, or reads one before its receive is waited for, is found out by a wrong result for some seed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collectives.call import Array, CollectiveCall
from collectives.programs import COPY, FROM_WIRE, RECEIVE, REDUCE, SCRATCH, SEND, TO_WIRE, WAIT, MessageProgram
from collectives.reduce import reduce_in_rank_order


class ProgramError(AssertionError):
    """Programs that do not fit each other."""


@dataclass(slots=True, eq=False)
class MessageRequest:
    """One end of a message: where its bytes lie. partner: the other end, once it is posted."""

    data: Array
    is_send: bool
    partner: MessageRequest | None = None
    is_done: bool = False


@dataclass(slots=True, eq=False)
class Rank:
    """One rank's program, memory, and place in it."""

    program: MessageProgram
    memory: tuple[Array, Array, Array]
    at: int = 0
    requests: dict[int, MessageRequest] = field(default_factory=dict)


def interpret(
    call: CollectiveCall,
    programs: Sequence[MessageProgram],
    sources: Sequence[Array],
    targets: Sequence[Array],
    seed: int,
) -> None:
    """Run all ranks' programs of `call`. sources, targets: flat arrays, by rank; they may be one array."""
    _Run(call, programs, sources, targets, random.Random(seed)).run()


class _Run:
    def __init__(
        self,
        call: CollectiveCall,
        programs: Sequence[MessageProgram],
        sources: Sequence[Array],
        targets: Sequence[Array],
        rng: random.Random,
    ) -> None:
        self.call, self.rng = call, rng
        self.dtype = np.dtype(call.dtype)
        self.travelling = np.dtype(call.wire) if call.wire else self.dtype
        self.ranks = [
            Rank(
                program, (source.view(np.uint8), target.view(np.uint8), np.full(program.scratch_nbytes, 0xA5, np.uint8))
            )
            for program, source, target in zip(programs, sources, targets)
        ]
        self.posted: dict[
            tuple[int, int, int], deque[MessageRequest]
        ] = {}  # (what, from, to) -> ends without a partner

    def run(self) -> None:
        while unfinished := [r for r, rank in enumerate(self.ranks) if rank.at < len(rank.program.steps)]:
            self.rng.shuffle(unfinished)
            if not any(self.step(r) for r in unfinished):
                raise ProgramError(f"ranks {sorted(unfinished)} wait for each other for ever")
        if any(self.posted.values()) or any(not q.is_done for rank in self.ranks for q in rank.requests.values()):
            raise ProgramError("a message was not received, or not waited for")

    def step(self, r: int) -> bool:
        """Run rank r's next step; False if it has to wait."""
        rank = self.ranks[r]
        step: list[int] = rank.program.steps[rank.at].tolist()
        what, peer, region_a, a, region_b, b, n, slot = step
        if what == WAIT:
            if not self.wait([rank.requests[k] for k in range(slot, slot + n)]):
                return False
        elif what in (SEND, RECEIVE):
            ends = (r, peer) if what == SEND else (peer, r)
            rank.requests[slot] = self.post(what, *ends, rank.memory[region_a][a : a + n])
        elif what == REDUCE:
            self.reduce(r, step)
        elif what == COPY:
            rank.memory[region_a][a : a + n] = rank.memory[region_b][b : b + n]
        elif what == TO_WIRE:
            values = _typed(rank.memory[region_b], b, n, self.dtype)
            _typed(rank.memory[region_a], a, n, self.travelling)[...] = values.astype(self.travelling)
        elif what == FROM_WIRE:
            values = _typed(rank.memory[region_b], b, n, self.travelling)
            _typed(rank.memory[region_a], a, n, self.dtype)[...] = values.astype(self.dtype)
        rank.at += 1
        return True

    def post(self, what: int, sender: int, receiver: int, data: Array) -> MessageRequest:
        request, other = MessageRequest(data, what == SEND), RECEIVE if what == SEND else SEND
        waiting = self.posted.setdefault((other, sender, receiver), deque())
        if not waiting:
            self.posted.setdefault((what, sender, receiver), deque()).append(request)
            return request
        partner = waiting.popleft()
        request.partner, partner.partner = partner, request
        if data.size != partner.data.size:
            raise ProgramError(f"a message from {sender} to {receiver}: {data.size} and {partner.data.size} bytes")
        if self.rng.random() < 0.5:
            self.deliver(request)
        return request

    def deliver(self, request: MessageRequest) -> None:
        """Copy a message of which both ends are posted."""
        partner = request.partner
        if partner is not None and not request.is_done:
            source, target = (request, partner) if request.is_send else (partner, request)
            target.data[...] = source.data
            source.is_done = target.is_done = True

    def wait(self, requests: Sequence[MessageRequest]) -> bool:
        """Whether all are done; those that both ends have posted are done now."""
        for request in requests:
            self.deliver(request)
        return all(request.is_done for request in requests)

    def reduce(self, r: int, step: list[int]) -> None:
        _, pieces, region_a, a, region_b, b, n, stride = step
        memory, dtype = self.ranks[r].memory, self.travelling
        others = [
            _typed(memory[SCRATCH], pieces + q * stride, n, dtype) if q != r else None for q in range(len(self.ranks))
        ]
        own = _typed(memory[region_b], b, n, dtype)
        total = reduce_in_rank_order([own if piece is None else piece for piece in others], self.call.op)
        _typed(memory[region_a], a, n, dtype)[...] = total


def _typed(memory: Array, offset: int, n: int, dtype: np.dtype[np.generic]) -> Array:
    return memory[offset : offset + n * dtype.itemsize].view(dtype)
