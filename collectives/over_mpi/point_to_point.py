"""Messages between two ranks over MPI: matched by sender and tag, in order; sizes and dtypes checked on arrival.

In: flat arrays, a peer (None: any), a tag. Out: Works. Method: a message begins with four integers (dtype, count,
serial number, whether the data come apart); up to 4 KB of data travel with them, more apart, under the serial
number, so that they cannot be taken for another's. Only the receiver learns of a misfit: it takes the
data out of the way and fails.
Progress: whoever launches looks once; what is not done then is driven by a thread that sleeps between looks: a sender
may go on computing, or wait in a collective, while the receiver takes its message. Where MPI cannot read the other
process's memory it moves some 10 to 100 KB when it is called: so a look is several calls, the sleeps stay short, and
data go in pieces, each of which, once done, makes looks frequent again.
Arrays of messages that are given up stay for as long as MPI may touch them (kept.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from collectives.call import DTYPES, Array
from collectives.errors import ClosedError, CollectiveArgumentError, CollectiveError, TransportError
from collectives.mailbox import message_misfit
from collectives.over_mpi.kept import give_up, keep_for_ever
from collectives.over_mpi.rollcall import Backoff
from collectives.work import LocalWork

HEADER_NBYTES = 32
INLINE_NBYTES = 4096
PIECE_NBYTES = 1 << 20
CALLS_A_LOOK = 16  # of MPI_Test, if data are under way
LONGEST_SLEEP_S = 2e-3  # between two looks: a sender does not see the receiver come, and then needs many


class Exchange(Protocol):
    """A message under way."""

    work: LocalWork
    steps: int  # requests done so far

    def is_done(self) -> bool:
        """Look; take the next step if the last one is done."""

    def cancel(self) -> bool:
        """Give up what MPI still waits for; whether it is through with all of it."""


class PointToPoint:
    """The messages of one rank, on an MPI communicator of their own."""

    def __init__(self, comm: Any, mpi: Any, *, timeout_s: float) -> None:
        self.comm, self.mpi, self.timeout_s = comm, mpi, timeout_s
        self.rank, self.half = comm.Get_rank(), (largest_tag(mpi) + 1) // 2
        self.serials = 0
        self.changed = threading.Condition()
        self.pending: list[Exchange] = []
        self.thread: threading.Thread | None = None
        self.is_closed, self.is_clean = False, True

    def send(self, array: Array, peer: int, tag: int) -> LocalWork:
        """Begin to send `array`."""
        work = self._work(f"send({array.dtype.name}[{array.size}], to rank {peer}, tag {tag})", array, tag)
        with self.changed:
            self.serials += 1
            return self._begin(_Sending(self, array, peer, self._own_tag(tag), self.serials % self.half, work))

    def receive(self, array: Array, peer: int | None, tag: int) -> LocalWork:
        """Begin to receive into `array`."""
        source = "any rank" if peer is None else f"rank {peer}"
        work = self._work(f"receive({array.dtype.name}[{array.size}], from {source}, tag {tag})", array, tag)
        work.phase = f"waiting for a message from {source}, tag {tag}"
        with self.changed:
            return self._begin(_Receiving(self, array, peer, tag, self._own_tag(tag), work))

    def _work(self, what: str, array: Array, tag: int) -> LocalWork:
        if not -self.half // 2 <= tag < self.half // 2:
            raise CollectiveArgumentError(
                f"no message can have the tag {tag}", where=f"rank {self.rank}", expected=f"0..{self.half // 2 - 1}"
            )
        return LocalWork(what, rank=self.rank, nbytes=array.nbytes, timeout_s=self.timeout_s)

    def _own_tag(self, tag: int) -> int:
        """MPI's: negative tags, which messages about arrays on GPUs have, are behind the others."""
        return tag if tag >= 0 else self.half // 2 - 1 - tag

    def _begin(self, exchange: Exchange) -> LocalWork:
        """Look at everything under way, in order; leave what remains to the thread."""
        self.pending.append(exchange)
        self._look()
        if self.pending or exchange.work.nbytes > INLINE_NBYTES:
            if self.thread is None:
                self.thread = threading.Thread(target=self._serve, name=f"messages of rank {self.rank}", daemon=True)
                self.thread.start()
            self.changed.notify_all()
        return exchange.work

    def _look(self) -> bool:
        """One look at everything under way; whether anything moved. The caller holds the lock."""
        looked_at = list(self.pending)
        before = sum(exchange.steps for exchange in looked_at)
        for exchange in looked_at:
            try:
                if not exchange.is_done():
                    continue
            except self.mpi.Exception as error:
                what = f"MPI failed in {exchange.work.what}"
                self.is_clean = False
                keep_for_ever(exchange)
                exchange.work.finish(TransportError(what, where=f"rank {self.rank}", got=str(error)))
            self.pending.remove(exchange)
        return sum(exchange.steps for exchange in looked_at) > before

    def _serve(self) -> None:
        backoff = self._backoff()
        while True:
            with self.changed:
                if not self.pending:
                    self._rest()
                    backoff = self._backoff()
                if self.is_closed:
                    return
                if self._look():
                    backoff = self._backoff()
            backoff.pause()

    def _rest(self) -> None:
        """Return when there is something to do. The caller holds the lock.

        Looks go on, ever more seldom: of a message that is done here, MPI may still owe the other rank the last step.
        """
        backoff = Backoff(lambda: False)
        while not self.pending and not self.is_closed:
            with suppress(self.mpi.Exception):  # a message that this concerns fails of it
                if not self.mpi.Is_finalized():
                    self.comm.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG)
            if self.changed.wait(backoff.next_s()):
                backoff = Backoff(lambda: False)

    def _backoff(self) -> Backoff:
        is_awaited = lambda: any(exchange.work.is_awaited for exchange in self.pending)  # noqa: E731
        return Backoff(is_awaited, stretched_s=LONGEST_SLEEP_S)

    def become_forked(self, error: CollectiveError) -> None:
        """In a forked child, where the thread is not: messages under way fail."""
        self.changed, self.thread = threading.Condition(), None
        for exchange in self.pending:
            exchange.work.become_forked(error)
        self.pending = []

    def close(self) -> bool:
        """End the thread; messages still under way fail. Whether MPI is through with them all."""
        with self.changed:
            self.is_closed = True
            for exchange in self.pending:
                self.is_clean &= exchange.cancel()
                what = f"the communicator was closed before {exchange.work.what} was done"
                exchange.work.finish(ClosedError(what, where=f"rank {self.rank}"))
            self.pending = []
            self.changed.notify_all()
        if self.thread is not None:
            self.thread.join(self.timeout_s)
        return self.is_clean


def largest_tag(mpi: Any) -> int:
    """The largest tag that a message can have. MPI keeps it with COMM_WORLD; at least 32767 is allowed everywhere."""
    found = mpi.COMM_WORLD.Get_attr(mpi.TAG_UB)
    return 32767 if found is None else int(found)


def pieces(array: Array) -> Iterator[Array]:
    """The bytes of a flat array, as they go."""
    raw = array.view(np.uint8)
    for start in range(0, raw.size, PIECE_NBYTES):
        yield raw[start : start + PIECE_NBYTES]


def take_done(requests: list[Any]) -> int:
    """Take what is done off the front of the list, looking several times; how many that were."""
    before = len(requests)
    for _ in range(CALLS_A_LOOK):
        while requests and requests[0].Test():
            del requests[0]
        if not requests:
            break
    return before - len(requests)


class _Sending:
    """A message that leaves: all of it is handed to MPI at once."""

    def __init__(self, ends: PointToPoint, array: Array, peer: int, tag: int, serial: int, work: LocalWork) -> None:
        self.work, self.steps = work, 0
        work.peer = peer
        is_inline = array.nbytes <= INLINE_NBYTES
        header = np.array([DTYPES.index(array.dtype.name), array.size, serial, not is_inline], np.int64).view(np.uint8)
        self.message = np.concatenate([header, array.view(np.uint8)]) if is_inline else header
        self.array = array
        self.requests = [ends.comm.Isend([self.message, ends.mpi.BYTE], dest=peer, tag=tag)]
        if not is_inline:
            self.requests += [
                ends.comm.Isend([piece, ends.mpi.BYTE], dest=peer, tag=ends.half + serial) for piece in pieces(array)
            ]
        work.start()

    def is_done(self) -> bool:
        self.steps += take_done(self.requests)
        if not self.requests:
            self.work.finish()
        return not self.requests

    def cancel(self) -> bool:
        return give_up(self.requests, [], self.message, self.array)


class _Receiving:
    """A message that is awaited: first its header, then, if they come apart, its data."""

    def __init__(
        self, ends: PointToPoint, array: Array, peer: int | None, tag: int, own_tag: int, work: LocalWork
    ) -> None:
        self.ends, self.array, self.tag, self.work, self.steps = ends, array, tag, work, 0
        self.target = array  # or what takes a misfit's data out of the way
        self.message = np.empty(HEADER_NBYTES + INLINE_NBYTES, np.uint8)
        source = ends.mpi.ANY_SOURCE if peer is None else peer
        self.header: Any = ends.comm.Irecv([self.message, ends.mpi.BYTE], source=source, tag=own_tag)
        self.requests: list[Any] = []
        self.misfit: CollectiveError | None = None

    def is_done(self) -> bool:
        if self.header is not None and not self._has_header():
            return False
        self.steps += take_done(self.requests)
        if not self.requests:
            self.work.finish(self.misfit)
        return not self.requests

    def _has_header(self) -> bool:
        status = self.ends.mpi.Status()
        if not self.header.Test(status):
            return False
        self.header = None
        self.steps += 1
        code, count, serial, is_apart = self.message[:HEADER_NBYTES].view(np.int64).tolist()
        source, dtype = status.Get_source(), np.dtype(DTYPES[code])
        self.work.peer = source
        self.work.start()
        self.misfit = message_misfit(
            source, self.tag, sent_dtype=dtype.name, sent_count=count, rank=self.ends.rank,
            wanted_dtype=self.array.dtype.name, wanted_count=self.array.size,
        )  # fmt: skip
        target = self.target = self.array if self.misfit is None else np.empty(count, dtype)
        if is_apart:
            tag = self.ends.half + serial
            self.requests = [
                self.ends.comm.Irecv([piece, self.ends.mpi.BYTE], source=source, tag=tag) for piece in pieces(target)
            ]
        else:
            target[...] = self.message[HEADER_NBYTES : HEADER_NBYTES + target.nbytes].view(dtype)
        return True

    def cancel(self) -> bool:
        header = [] if self.header is None else [self.header]
        return give_up([], [*header, *self.requests], self.message, self.target)
