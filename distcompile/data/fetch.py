"""From indices to a batch: what a loader does itself, and what its workers do.

In: a data set, and how to collate. Out: `fetcher(...)`, a function from one entry of the sampler (indices, an index, or
nothing of a stream) to a batch. Of a stream it raises StopIteration at the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Fetch = Callable[[Any], Any]


@dataclass(frozen=True)
class BatchRecipe:
    """How batches are made of a data set. batch_size: of a stream; None: sample by sample."""

    dataset: Any
    is_stream: bool
    is_batched: bool
    batch_size: int | None
    drop_last: bool
    collate: Callable[[Any], Any]

    def fetcher(self) -> Fetch:
        """A new pass over the data set."""
        return self._stream() if self.is_stream else self._batch if self.is_batched else self._sample

    def _sample(self, index: Any) -> Any:
        return self.collate(self.dataset[index])

    def _batch(self, indices: Any) -> Any:
        if hasattr(self.dataset, "__getitems__"):
            return self.collate(self.dataset.__getitems__(indices))
        return self.collate([self.dataset[index] for index in indices])

    def _stream(self) -> Fetch:
        samples = iter(self.dataset)

        def following(_: Any) -> Any:
            if self.batch_size is None:
                return self.collate(next(samples))
            batch = list(itertools.islice(samples, self.batch_size))
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                raise StopIteration
            return self.collate(batch)

        return following
