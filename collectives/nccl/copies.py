"""All-reduce by the copy engines of one host's GPUs: next to no multiprocessor is taken from what computes meanwhile.

In: large arrays of floats, in the same order on all ranks; each rank's block of memory, mapped by all
(copies_opening.py). Out: work enqueued on one stream: copies, words written and waited for, a short kernel that adds.
Method: reduce-scatter, then all-gather (Thakur, Rabenseifner, Gropp 2005), every rank with every other directly. A
block is a page of words and a slot for each rank. A piece of an array (what the slots hold) is cut into a share for
each rank. For piece number g rank `me`

    pushes each peer's share of its own array into slot `me` of that peer's block, then writes full[me] = g there;
    waits for full[p] >= g of all peers p, and adds its own share and the slots in rank order: into its array, and into
    slot `me` of its own block, which no peer writes;
    writes ready[me] = g to each peer, waits for ready[p] >= g, and pulls the sum of p's share from slot p of p's block.

Why no other waits are needed. A rank's part is one stream, so it pushes piece g + 1 only after its pulls of g, which
came after ready[p] >= g of every p: p had added by then, and slot `me` of p's block was free. And a rank adds piece
g + 1, over the sums of g that its peers pull, only after full[p] >= g + 1 of every p, which p wrote after its pulls.
Pieces are numbered from 1, in a circle of 2**32.

Right, or NaN, or nothing. A rank that gives up (`abort`) writes `failed` into all blocks, its own too, and only when
CUDA has taken that, on the same stream, lets its own waits go by writing words far ahead of any piece. Its part runs on
then, on whatever lies there, and may write over slots that peers still read: what they compute of that is wrong, too.
A thread of its own does so, for a call of CUDA may wait for another thread's; who aborts goes on soon. An array ends in
`seal`: where the rank's `failed` is set it becomes NaN. Anything wrong comes of a wait that was let go, on some rank;
`failed` was set everywhere before that, and is read behind all that the array is made of. So what is wrong is sealed.
A peer's words may still come behind those that let go, and are smaller: these are written again until the stream has
come to its end, and nobody enqueues on it any more. A rank that died writes nothing any more; those that wait for it
give up, within their time limit.
Invariant: after the first abort no array is right; blocks are then never freed, as peers may still write there.
Limits: all ranks on one host; 2 to 8 of them; the latency of a few copies, so small arrays are NCCL's, and very large
ones, for which it is faster.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from collectives.errors import TransportError
from collectives.nccl.cuda import Event, Runtime, Stream
from collectives.nccl.peer_memory import DTYPES, PeerMemory, Share, Word

LEAST_NBYTES = 1 << 20  # below, NCCL takes less time
# above, NCCL takes half the time (two H200s: 0.7 and 1.5 ms for 160 MB); of DDP's buckets only a parameter of that size
# is larger, and an embedding's gradient is the last to be ready, with no products left beside it that NCCL could slow
MOST_NBYTES = 64 << 20
PIECE_NBYTES = 32 << 20  # of memory on each GPU; larger arrays go in pieces
FEWEST, MOST = 2, 8  # ranks
GROUP_NBYTES = 16  # that the kernel reads at once: shares begin at multiples of them
SLOT_STEP = 256  # bytes; slots begin at multiples of them
FULL, READY, FAILED, TRIAL, PAGE_NBYTES = 0, 256, 512, 768, 4096  # places in a block, in bytes
CIRCLE, FAR = 1 << 32, 1 << 30  # of words; FAR: more than pieces can ever be under way
# after an abort waits are let go so often, until the stream has come to its end; after OFTEN_S more seldom
RELEASE_EVERY_S, OFTEN_S, SELDOM_S = 0.01, 20.0, 0.25
TELL_S = 1.0  # so long who aborts waits until CUDA has taken the first words


def is_for_copies(dtype: str, op: str, nbytes: int) -> bool:
    """Whether an all-reduce is one that copy engines do. All ranks say the same of it."""
    return LEAST_NBYTES <= nbytes <= MOST_NBYTES and op in ("sum", "avg") and dtype in DTYPES


def slot_nbytes(world_size: int) -> int:
    """Of each slot, in bytes."""
    return max(PIECE_NBYTES // world_size // SLOT_STEP, 1) * SLOT_STEP


def block_nbytes(world_size: int) -> int:
    """Of each rank's block, in bytes."""
    return PAGE_NBYTES + world_size * slot_nbytes(world_size)


def pieces(count: int, itemsize: int, world_size: int, slot: int) -> Iterator[tuple[int, int]]:
    """(start, elements) of an array's pieces, which are about equal; slot: bytes."""
    number = -(-count * itemsize // (slot * world_size))
    step = world_size * (GROUP_NBYTES // itemsize)
    each = -(-count // (number * step)) * step
    for start in range(0, count, each):
        yield start, min(each, count - start)


def shares(count: int, itemsize: int, world_size: int) -> list[tuple[int, int]]:
    """(start, elements) of each rank's share of a piece; the last may be smaller, or nothing."""
    step = GROUP_NBYTES // itemsize
    each = -(-count // (world_size * step)) * step
    return [(min(rank * each, count), min(each, max(count - rank * each, 0))) for rank in range(world_size)]


class CopyEngines:
    """One rank's part. blocks: the addresses of all ranks' blocks here, its own too. One thread at a time enqueues."""

    def __init__(self, memory: PeerMemory, cuda: Runtime, stream: Stream, blocks: Sequence[int], rank: int) -> None:
        self.memory, self.cuda, self.stream, self.blocks = memory, cuda, stream, tuple(blocks)
        self.rank, self.world_size = rank, len(blocks)
        self.own = self.blocks[rank]
        # in another order on each rank, so that they do not all write to one GPU at a time
        self.peers = [(rank + k) % self.world_size for k in range(1, self.world_size)]
        self.slot = slot_nbytes(self.world_size)
        self.urgent = memory.urgent_stream()
        self.piece = 0  # the number of the last one
        self.aborting = threading.Lock()
        self.is_aborted = self.is_closed = self.is_enqueuing = False
        self.told = threading.Event()  # after an abort: CUDA has taken the first words
        self.is_ended = False  # after an abort: the stream has come to its end, and stays there

    def all_reduce(self, address: int, count: int, dtype: str, op: str) -> None:
        """Enqueue the sum, or mean, of all ranks' `count` elements at `address`, in place.

        Raises TransportError after an abort: nobody would let waits go that come later.
        """
        with self.aborting:
            if self.is_aborted or self.is_closed:
                raise TransportError("these copy engines were given up, or closed", where=f"rank {self.rank}")
            self.is_enqueuing = True
        try:
            self._all_reduce(address, count, dtype, op)
        finally:
            self.is_enqueuing = False

    def _all_reduce(self, address: int, count: int, dtype: str, op: str) -> None:
        itemsize = np.dtype(dtype).itemsize
        divisor = self.world_size if op == "avg" else 1
        for start, number in pieces(count, itemsize, self.world_size, self.slot):
            self._reduce_piece(address + start * itemsize, number, dtype, divisor)
        self.memory.seal(self.stream, self.own + FAILED, address, count * itemsize)

    def _reduce_piece(self, address: int, count: int, dtype: str, divisor: int) -> None:
        itemsize = np.dtype(dtype).itemsize
        self.piece = (self.piece + 1) % CIRCLE
        parts = shares(count, itemsize, self.world_size)
        for peer in self.peers:
            start, number = parts[peer]
            self._copy(self._slot(peer, self.rank), address + start * itemsize, number * itemsize)
        self._meet(FULL)
        start, number = parts[self.rank]
        if number:
            share = Share(
                own=address + start * itemsize,
                slots=self._slot(self.rank, 0),
                stride=self.slot // itemsize,
                count=number,
                rank=self.rank,
                dtype=dtype,
                divisor=divisor,
            )
            self.memory.add_up(self.stream, share)
        self._meet(READY)
        for peer in self.peers:
            start, number = parts[peer]
            self._copy(address + start * itemsize, self._slot(peer, peer), number * itemsize)

    def _slot(self, owner: int, rank: int) -> int:
        """The address of slot `rank` of the block of rank `owner`."""
        return self.blocks[owner] + PAGE_NBYTES + rank * self.slot

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        if nbytes:
            self.memory.copy(self.stream, target, source, nbytes)

    def _meet(self, words: int) -> None:
        """Tell all peers that this rank has come so far with the piece, and wait until they have."""
        writes = [(self.blocks[peer] + words + 4 * self.rank, self.piece) for peer in self.peers]
        waits = [(self.own + words + 4 * peer, self.piece) for peer in self.peers]
        self.memory.signal(self.stream, writes, waits)

    # -- when something went wrong

    def abort(self) -> bool:
        """Let what is enqueued come to its end, with NaN for results, on any rank. Waits for no rank; at most TELL_S.

        Returns whether CUDA has taken that. It has not where another thread waits in CUDA, and holds up this call.
        """
        with self.aborting:
            if self.is_closed:
                return True
            is_first, self.is_aborted = not self.is_aborted, True
        if is_first:
            threading.Thread(target=self._let_all_go, name=f"copies of rank {self.rank}", daemon=True).start()
        return self.told.wait(TELL_S)

    def _let_all_go(self) -> None:
        """Let waits go until none is left: peers that have not heard write their words over ours."""
        began_s = time.perf_counter()
        with contextlib.suppress(Exception):  # a GPU that fails waits for nothing either
            self.cuda.use()
            while not self._try_signal([(block + FAILED, 1) for block in self.blocks]):
                _pause_since(began_s)
            was_enqueuing, ends = True, list[Event]()
            while not self.is_ended:
                self._let_go()
                self.told.set()
                if all(map(self.cuda.is_done, ends)):
                    self.is_ended = not was_enqueuing
                    was_enqueuing = self.is_enqueuing  # before the events: behind these comes nothing then
                    ends = [self.cuda.record(stream) for stream in (self.stream, self.urgent)]
                _pause_since(began_s)

    def _let_go(self) -> None:
        far = (self.piece + FAR) % CIRCLE
        self._try_signal([(self.own + words + 4 * peer, far) for words in (FULL, READY) for peer in self.peers])

    def _try_signal(self, writes: Sequence[Word]) -> bool:
        """Whether CUDA has taken these words."""
        try:
            self.memory.signal(self.urgent, writes, [])
        except Exception:  # noqa: BLE001 - whatever CUDA or CuPy raise: they are asked again
            return False
        return True

    # -- the end

    def close(self) -> None:
        """After the last of this rank's work: let go of the peers' blocks."""
        with self.aborting:
            if self.is_closed or (self.is_aborted and not self.is_ended):
                return  # the stream may still need them, until the process ends
            self.is_closed = True
        for peer in self.peers:
            with contextlib.suppress(Exception):  # of a broken GPU; the process's end unmaps, and nobody waits for us
                self.memory.unmap(self.blocks[peer])

    def free(self) -> None:
        """After all ranks' `close`: give this rank's block back; after an abort nobody knows that, and it is kept."""
        if self.is_closed and not self.is_aborted:
            with contextlib.suppress(Exception):  # as above
                self.memory.free(self.own)


def _pause_since(began_s: float) -> None:
    time.sleep(RELEASE_EVERY_S if time.perf_counter() - began_s < OFTEN_S else SELDOM_S)
