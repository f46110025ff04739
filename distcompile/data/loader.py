"""DataLoader: batches of a data set, in a sampler's order, optionally fetched ahead by worker processes.

In: a data set, how to sample and how to collate. Out: an iterable of batches.

`num_workers=0` fetches in the caller; `num_workers=n` in n processes (`workers.py`, `worker.py`): batches come out in
the sampler's order all the same, an error is raised where its batch would have come, with the worker's traceback.
Workers are forked unless `multiprocessing_context` says otherwise: then data set and functions are pickled. Each
worker has a stream (IterableDataset) of its own to read: share it out by `get_worker_info`.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from compiler_core import cuda
from compiler_core.log import warn_once
from compiler_core.tensor.making.random import Generator
from distcompile.data.collate import default_collate, default_convert
from distcompile.data.dataset import IterableDataset, size_of
from distcompile.data.fetch import BatchRecipe
from distcompile.data.iteration import Batches, BatchesHere, BatchesOfWorkers, DatasetKind
from distcompile.data.pinning import pinned
from distcompile.data.sampler import BatchSampler, RandomSampler, SequentialSampler, seed_from
from distcompile.data.worker import WorkerInfo, get_worker_info
from distcompile.data.workers import DataPass, Workers, context_of
from distcompile.errors import ArgumentError

__all__ = ["DataLoader", "WorkerInfo", "get_worker_info"]
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool) -> None:
    """Raises ArgumentError for numbers that do not fit each other."""
    if num_workers < 0 or timeout < 0:
        raise ArgumentError("num_workers and timeout should be non-negative", got=f"{num_workers}, {timeout}")
    if num_workers == 0 and (prefetch_factor is not None or persistent):
        raise ArgumentError("prefetch_factor and persistent_workers need num_workers > 0")
    if num_workers == 0 and timeout:
        raise ArgumentError("timeout needs num_workers > 0")
    if prefetch_factor is not None and prefetch_factor <= 0:
        raise ArgumentError("prefetch_factor should be above zero", got=str(prefetch_factor))


class DataLoader:
    """Batches of a data set, in a sampler's order, fetched here or ahead by worker processes.

    Args:
        dataset: one with `dataset[i]` and a length, or an IterableDataset.
        batch_size: None: samples one by one, not collated.
        shuffle: a new random order in each pass. sampler: an iterable of indices instead; at most one of the two.
        batch_sampler: an iterable of lists of indices, instead of batch_size, shuffle, sampler and drop_last.
        num_workers: 0: fetch in the caller; n: in n processes; batches come in the sampler's order all the same.
        collate_fn: list of samples -> batch (of a sample, where there are no batches); None: tensors and numbers are
            stacked, member by member.
        pin_memory: batches in page-locked memory, where there is a CUDA device; else a warning.
        drop_last: leave out a last batch that is smaller.
        timeout: seconds to wait for a worker's batch; 0: no limit.
        worker_init_fn: called with its number in each worker.
        multiprocessing_context: how workers start, a name or a context; None: they are forked.
        generator: draws the order and the workers' seeds; None: the default one.
        prefetch_factor: batches that each worker fetches ahead; None: 2.
        persistent_workers: keep the workers after a pass.
        in_order: False: batches come as they are ready.

    Each worker has the whole IterableDataset to read: share it out by `get_worker_info`.
    Raises: ArgumentError for options that do not fit each other.

    Example:
        >>> for batch in torch.utils.data.DataLoader([torch.tensor(i) for i in range(5)], batch_size=2):
        ...     print(batch)
        tensor([0, 1])
        tensor([2, 3])
        tensor([4])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: object = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        if pin_memory and cuda.why_not():
            warn_once("data.loader", "'pin_memory' argument is set as true but no accelerator is found, then device "
                      "pinned memory won't be used.")  # fmt: skip
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.multiprocessing_context = multiprocessing_context
        self.pin_memory, self.pin_memory_device, self.in_order = pin_memory, pin_memory_device, in_order
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers else prefetch_factor
        self.worker_init_fn, self.generator, self.drop_last = worker_init_fn, generator, drop_last
        self._is_iterable = isinstance(dataset, IterableDataset)
        self._check_sampling(batch_size, bool(shuffle), sampler, batch_sampler, drop_last)
        self.sampler = sampler if sampler is not None else self._default_sampler(bool(shuffle))
        self._set_batching(batch_size, batch_sampler)
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self.persistent_workers = persistent_workers
        self._workers: Workers | None = None
        self._is_made = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_is_made", False):
            raise ArgumentError(f"{name} attribute should not be set after DataLoader is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context of multiprocessing, or None."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, asked: Any) -> None:
        if asked is not None and self.num_workers == 0:
            raise ArgumentError("multiprocessing_context can only be used with num_workers > 0")
        if isinstance(asked, str) and asked not in multiprocessing.get_all_start_methods():
            raise ArgumentError("multiprocessing_context option should specify a valid start method",
                                expected=str(multiprocessing.get_all_start_methods()), got=repr(asked))  # fmt: skip
        if asked is not None and not isinstance(asked, (str, multiprocessing.context.BaseContext)):
            raise TypeError(f"multiprocessing_context should be a context or a start method, got {asked!r}")
        self._context = None if asked is None else context_of(asked)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_workers": None}

    def _check_sampling(
        self, batch_size: int | None, shuffle: bool, sampler: object, batch_sampler: object, drop_last: bool
    ) -> None:
        if sampler is not None and shuffle:
            raise ArgumentError("sampler option is mutually exclusive with shuffle")
        if self._is_iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ArgumentError("DataLoader with IterableDataset: expected unspecified shuffle, sampler, batch_sampler")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ArgumentError(
                "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
            )
        if batch_size is None and drop_last:
            raise ArgumentError(
                "batch_size=None option disables auto-batching and is mutually exclusive with drop_last"
            )

    def _set_batching(self, batch_size: int | None, batch_sampler: Iterable[list[Any]] | None) -> None:
        """Batches of batch_size, unless a sampler of batches is given."""
        self.batch_size = None if batch_sampler is not None else batch_size
        self.batch_sampler = batch_sampler
        if batch_sampler is None and batch_size is not None and not self._is_iterable:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, self.drop_last)

    def _default_sampler(self, shuffle: bool) -> Iterable[Any]:
        if self._is_iterable:
            return itertools.repeat(None)
        return RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)

    def __len__(self) -> int:
        """Number of batches (samples, without batching). Raises LengthError if the data set has none."""
        if self._is_iterable:
            n, size = size_of(self.dataset), self.batch_size
            return n if size is None else n // size if self.drop_last else -(-n // size)
        return size_of(self.sampler if self.batch_sampler is None else self.batch_sampler)

    @property
    def _auto_collation(self) -> bool:
        """Whether samples are put together to batches."""
        return self.batch_size is not None or self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        """What says which samples come next, a batch of them at a time where there are batches."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def _dataset_kind(self) -> int:
        return DatasetKind.Iterable if self._is_iterable else DatasetKind.Map

    def __iter__(self) -> Batches:
        return self._get_iterator()

    def _get_iterator(self) -> Batches:
        size, dataset = self.batch_size, self.dataset
        recipe = BatchRecipe(dataset, self._is_iterable, self._auto_collation, size, self.drop_last, self.collate_fn)
        batches = self._batches(recipe, iter(self._index_sampler))
        kind = BatchesOfWorkers if self.num_workers else BatchesHere
        return kind(batches, self.__len__, pinned if self.pin_memory and not cuda.why_not() else None)

    def _batches(self, recipe: BatchRecipe, entries: Iterator[Any]) -> Iterator[Any]:
        """A seed is drawn at every pass, also where there is nobody to seed, but for workers that stay: as in torch."""
        workers = self._workers
        if workers is None or not workers.is_open:
            seed = seed_from(self.generator)
            if self.num_workers == 0:
                return _here(recipe, entries)
            context = context_of(self.multiprocessing_context)
            workers = Workers(context, self.num_workers, recipe, self.worker_init_fn, seed)
        self._workers = workers if self.persistent_workers else None
        return DataPass(
            workers, entries, self.prefetch_factor or 0, self.in_order, self.timeout, self.persistent_workers
        )


def _here(recipe: BatchRecipe, entries: Iterator[Any]) -> Iterator[Any]:
    """Batches fetched in this process."""
    fetch = recipe.fetcher()
    for entry in entries:
        try:
            batch = fetch(entry)
        except StopIteration:
            if recipe.is_stream:
                return
            raise
        yield batch
