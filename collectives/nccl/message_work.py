"""`MessageWork`: a message between two ranks whose array is on a GPU. It is waited for by streams, not by the host.

    launched -> (both ends are engaged) enqueued on the stream of messages -> done there

In: the postman (postman.py), which moves it. Out: as `NcclWork`: `wait` returns when the message is enqueued, and the
thread's current stream waits for its end. Its array is referred to until a stream has waited for it, or it is done.
"""

from __future__ import annotations

from collectives.call import Array
from collectives.errors import CollectiveError
from collectives.nccl.cuda import Event, Runtime
from collectives.work import LocalWork, Work


class MessageWork(LocalWork):
    """One message on one rank. number: the sender's, among its messages to that receiver; -1: not known yet."""

    def __init__(
        self, cuda: Runtime, array: Array, peer: int | None, tag: int, *, is_send: bool, rank: int, timeout_s: float
    ) -> None:
        side = f"to rank {peer}" if is_send else "from any rank" if peer is None else f"from rank {peer}"
        what = f"{'send' if is_send else 'receive'}({array.dtype.name}[{array.size}], {side}, tag {tag})"
        super().__init__(what, rank=rank, nbytes=array.nbytes, timeout_s=timeout_s)
        self.cuda, self.peer, self.tag, self.is_send, self.number = cuda, peer, tag, is_send, -1
        self.array: Array | None = array
        self.dtype, self.count = array.dtype, int(array.size)
        self.after = cuda.record(cuda.current())  # behind what made the array
        self.launched_on = cuda.pointer(cuda.current())
        self.ended: Event | None = None
        self.token: Work | None = None  # the host's, of a receive
        self.phase = "waiting for the receiver" if is_send else f"waiting for a message {side}, tag {tag}"

    def enqueued(self, ended: Event) -> None:
        """The postman's: it is on its way."""
        self.ended = ended
        self.finish()
        self.phase = "on the GPU, or behind what is"

    def fail(self, error: CollectiveError) -> None:
        """The postman's: it ends with `error`."""
        if not super().is_done() or self.ended is not None:
            self.finish(error)

    def is_done(self) -> bool:
        return super().is_done() and (self.ended is None or self._error is not None or self.cuda.is_done(self.ended))

    def wait(self, timeout_s: float | None = None) -> None:
        """Return when it is enqueued; what the current stream is given from now on comes after it."""
        if isinstance(self.token, LocalWork):
            self.token.is_awaited = True  # the transport may then spend the core on being quick
        super().wait(timeout_s)
        if self.ended is not None:
            here = self.cuda.current()
            self.cuda.wait(here, self.ended)
            if self.cuda.pointer(here) == self.launched_on:  # whose memory it is
                self.array = None
