"""join: ranks may have different numbers of batches; a rank that has run out shadows what the others still do.

In: the `with model.join():` block of each rank. Out: every rank leaves the block after the last one's last batch, with
that rank's parameters and buffers. As torch's Join: gradients are averaged over all ranks, finished ones counting as
zero, or, with divide_by_initial_world_size=False, over the ranks that still train; before a forward, buffers come from
the highest rank that still trains; of ranks that end together, the highest counts as the last.
Method: every synchronised forward begins with a gate in which each rank says whether it still trains, and its plan. If
plans differ, as a rank without any batch knows none, all adopt one there, by the rule of `reconcile.py`. A finished
rank takes part in these gates, and in each round sends zeros for every bucket.
throw_on_early_termination: the first gate that not all ranks are in is an error on all of them.
Limit: every synchronised forward in the block must be followed by its backward before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.books import Books
from distcompile.ddp.buffer_sync import BufferSync
from distcompile.ddp.errors import EarlyEndError
from distcompile.ddp.model_state import broadcast_tensors
from distcompile.ddp.passes import BackwardPass
from distcompile.ddp.reconcile import Offer, choose_plan

IS_ACTIVE, PLAN, ROUND, FORWARD = range(4)


class Joining:
    """The state of one `join()` block on one rank."""

    def __init__(
        self, books: Books, buffer_sync: BufferSync, *, divide_by_initial_world_size: bool, throws: bool = False
    ) -> None:
        self.books, self.communicator, self.buffer_sync = books, books.communicator, buffer_sync
        self.divide_by_initial_world_size, self.throws = divide_by_initial_world_size, throws
        self.rounds = 0

    def announce(self) -> int:
        """A synchronised forward begins on this rank: tell the ranks that have finished. Returns the highest active."""
        self.rounds += 1
        return self._meet(is_active=True)[-1]

    def _meet(self, *, is_active: bool) -> Sequence[int]:
        """The ranks that train in this round; all ranks have one plan, round and forward then."""
        books = self.books
        words = (int(is_active), books.layout.word, books.round, books.forwards)
        rows = self.communicator.open_gate(words, 0, label="ranks that still train").wait()
        active = [rank for rank, row in enumerate(rows) if row[IS_ACTIVE]]
        if self.throws and 0 < len(active) < len(rows):
            raise EarlyEndError(
                "Detected at least one rank that exhausted inputs. Throwing across all ranks.",
                got=f"rank(s) {[rank for rank in range(len(rows)) if rank not in active]} have no more batches",
            )
        if active:
            if len({row[PLAN] for row in rows}) > 1:
                choose_plan(books, self._offers())
            if not is_active:
                books.round, books.forwards = rows[active[0]][ROUND], rows[active[0]][FORWARD]
            if not self.divide_by_initial_world_size:
                books.active_ranks = len(active)
        return active

    def _offers(self) -> list[Offer]:
        books = self.books
        return self.communicator.all_gather_object(
            Offer(books.instance, books.layout.version, books.layout.plan, is_compiled=False)
        )

    def shadow(self, buffers: Mapping[str, Tensor]) -> bool:
        """This rank has no more batches: take part in one batch of the others'. Whether there was one."""
        active = self._meet(is_active=False)
        if active:
            if self.books.settings.broadcast_buffers and buffers:
                self.buffer_sync.run(buffers, root=active[-1])
            BackwardPass(self.books, None, outer=None, synchronise=True).shadow()
        return bool(active)

    def agree_on_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Give all ranks the parameters and buffers of the rank that trained longest."""
        rounds = self.communicator.all_gather_object(self.rounds)
        root = max(range(len(rounds)), key=lambda rank: (rounds[rank], rank))
        broadcast_tensors(self.communicator, tensors, root=root)
