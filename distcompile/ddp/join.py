"""join: ranks may have different numbers of batches; a rank that has run out shadows what the others still do.

In: the `with model.join():` block of each rank. Out: every rank leaves the block after the last one's last batch, with
that rank's parameters and buffers. As torch's Join: gradients are averaged over all ranks, finished ones counting as
zero. Method: every training forward begins with a small sum that says how many ranks still train; a finished rank takes
part in these sums, and in each round sends zeros for every bucket of the plan that its own last backward used.
Limit: every training forward in the block must be followed by its backward before the next.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler_core import dtype as dtypes
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.books import Books
from distcompile.ddp.bucket_plan import REGISTRATION_ORDER
from distcompile.ddp.errors import JoinError
from distcompile.ddp.flight import bucket_label
from distcompile.ddp.model_state import BufferSync, broadcast_tensors


class Joining:
    """The state of one `join()` block on one rank."""

    def __init__(self, books: Books, buffer_sync: BufferSync) -> None:
        self.books, self.communicator, self.buffer_sync = books, books.communicator, buffer_sync
        self.rounds = 0

    def announce(self) -> int:
        """A training forward begins on this rank: tell the ranks that have finished. Returns the lowest active rank."""
        self.rounds += 1
        return self._active_ranks(is_active=True)[0]

    def _active_ranks(self, *, is_active: bool) -> list[int]:
        """The ranks that train in this round."""
        flags = np.zeros(self.communicator.world_size, np.uint8)
        flags[self.communicator.rank] = is_active
        self.communicator.all_reduce(flags, "max", label="ranks that still train")
        return np.flatnonzero(flags).tolist()

    def shadow(self, buffers: Mapping[str, Tensor]) -> None:
        """This rank has no more batches: take part in the others' collectives until none is left."""
        while active := self._active_ranks(is_active=False):
            if self.books.settings.broadcast_buffers and buffers:
                self.buffer_sync.run(buffers, root=active[0])
            self._shadow_backward()

    def _shadow_backward(self) -> None:
        plan = self.books.plan_used
        if plan is None:
            raise JoinError(
                f"rank {self.communicator.rank} left join() without any training step: it does not know the buckets",
                remedy="give every rank at least one batch",
            )
        flat = [self.communicator.allocate(b.numel, dtypes.by_name(b.dtype).numpy) for b in plan.buckets]
        works = [self.communicator.all_reduce_async(a, "sum", label=bucket_label(plan, k)) for k, a in enumerate(flat)]
        if self.books.settings.find_unused_parameters and plan.order == REGISTRATION_ORDER:
            counts = np.zeros(len(plan.names), np.int32)
            self.communicator.all_reduce(counts, "sum", label="used parameters")
        for work in works:
            work.wait()

    def agree_on_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Give all ranks the parameters and buffers of the rank that trained longest."""
        rounds = self.communicator.all_gather_object(self.rounds)
        broadcast_tensors(self.communicator, tensors, root=rounds.index(max(rounds)))
