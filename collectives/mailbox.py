"""Messages between two ranks of the threaded transport: matched by receiver, sender and tag, in order.

In: sends and receives of all ranks, each with its Work. Out: finished Works, data copied. A send is buffered: it is
done at once, and its array may be changed. A receive takes the oldest message that fits; one of any source takes the
oldest of all. A message whose dtype or size is not what the receiver expects is taken, and the receive fails.
The caller holds the world's lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.call import Array
from collectives.errors import CollectiveError, CollectiveMismatchError
from collectives.work import LocalWork


@dataclass(frozen=True, slots=True)
class Letter:
    """A message, or the wish for one: `source` None is any rank."""

    source: int | None
    target: int
    tag: int
    array: Array
    work: LocalWork

    def fits(self, sent: Letter) -> bool:
        """Whether this wish takes the message `sent`."""
        return (self.target, self.tag) == (sent.target, sent.tag) and self.source in (None, sent.source)


def message_misfit(
    source: int, tag: int, *, sent_dtype: str, sent_count: int, wanted_dtype: str, wanted_count: int, rank: int
) -> CollectiveMismatchError | None:
    """The error for a message that is not what the receiver expects; None if it is."""
    if (sent_dtype, sent_count) == (wanted_dtype, wanted_count):
        return None
    return CollectiveMismatchError(
        f"a message from rank {source}, tag {tag}, is not what was to be received",
        where=f"rank {rank}",
        expected=f"{wanted_dtype}[{wanted_count}]",
        got=f"{sent_dtype}[{sent_count}]",
        remedy="send and receive tensors of one dtype and size; tell messages apart by their tags",
    )


class Mailbox:
    """All messages on their way in one threaded world."""

    def __init__(self) -> None:
        self.sent: list[Letter] = []
        self.wanted: list[Letter] = []

    def send(self, letter: Letter) -> None:
        """Deliver to the oldest receive that fits, or keep the message."""
        letter.work.start()
        letter.work.finish()
        for wish in self.wanted:
            if wish.fits(letter):
                self.wanted.remove(wish)
                self._deliver(letter, wish)
                return
        self.sent.append(letter)

    def receive(self, wish: Letter) -> None:
        """Take the oldest message that fits, or wait for one."""
        for letter in self.sent:
            if wish.fits(letter):
                self.sent.remove(letter)
                self._deliver(letter, wish)
                return
        source = "any rank" if wish.source is None else f"rank {wish.source}"
        wish.work.phase = f"waiting for a message from {source}, tag {wish.tag}"
        self.wanted.append(wish)

    @staticmethod
    def _deliver(letter: Letter, wish: Letter) -> None:
        assert letter.source is not None
        wish.work.start()
        wish.work.peer = letter.source
        error = message_misfit(
            letter.source,
            letter.tag,
            sent_dtype=letter.array.dtype.name,
            sent_count=letter.array.size,
            wanted_dtype=wish.array.dtype.name,
            wanted_count=wish.array.size,
            rank=wish.target,
        )
        if error is None:
            wish.array[...] = letter.array
        wish.work.finish(error)

    def fail(self, error: CollectiveError) -> None:
        """End every receive that waits, with `error`."""
        wanted, self.wanted = self.wanted, []
        for wish in wanted:
            wish.work.finish(error)

    def close(self, rank: int, error: CollectiveError) -> None:
        """Rank `rank` is gone: end the receives that wait for it alone, and its own."""
        stranded = [wish for wish in self.wanted if rank in (wish.source, wish.target)]
        self.wanted = [wish for wish in self.wanted if wish not in stranded]
        for wish in stranded:
            wish.work.finish(error)
