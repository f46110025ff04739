"""What `iter(loader)` gives: an iterator over batches, that knows how many there are; torch's names for its kinds.

In: a DataLoader's batches. Out: the same, pinned where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class DatasetKind:
    """torch's numbers of the two kinds of data sets."""

    Map = 0
    Iterable = 1


class Batches:
    """One pass over the data. length: how many batches are to be expected."""

    def __init__(self, batches: Iterator[Any], length: Callable[[], int], then: Callable[[Any], Any] | None) -> None:
        self._batches, self._length, self._then = batches, length, then

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        return batch if self._then is None else self._then(batch)

    def __len__(self) -> int:
        return self._length()


class BatchesHere(Batches):
    """Fetched by who asks."""


class BatchesOfWorkers(Batches):
    """Fetched by processes."""

    def _shutdown_workers(self) -> None:
        """End the processes."""
        passing: Any = self._batches
        passing.workers.close()
