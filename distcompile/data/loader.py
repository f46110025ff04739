"""DataLoader: batches of a data set, in a sampler's order, optionally fetched ahead by threads.

In: a data set, how to sample and how to collate. Out: an iterable of batches.

`num_workers=0` fetches in the caller. `num_workers=n` fetches in n threads of this process (not processes: nothing is
pickled, and NumPy and file reads release the GIL); batches come out in the sampler's order all the same, and an error
is raised where its batch would have come. Random transforms draw from a seed of their batch: equal for any n > 0.
An iterable data set is read by one thread, as one stream.
Limits: Python-heavy `__getitem__`s do not run in parallel; `pin_memory`, `multiprocessing_context` have no effect.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_core.log import warn_once
from compiler_core.tensor.creation import from_numpy
from compiler_core.tensor.random import Generator, default_generator
from compiler_core.tensor.random_creation import randint
from distcompile.data.collate import default_collate, default_convert
from distcompile.data.dataset import IterableDataset, size_of
from distcompile.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from distcompile.errors import ArgumentError, DataLoaderError

Fetch = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Which worker thread runs this. seed: the loader generator's seed plus id."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_worker = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """In a worker thread of a DataLoader on a map-style data set: which one. Elsewhere None."""
    return getattr(_worker, "info", None)


class DataLoader:
    """Iterable over batches of `dataset`. batch_size None: samples one by one, not collated."""

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
        if num_workers < 0 or timeout < 0:
            raise ArgumentError("num_workers and timeout should be non-negative", got=f"{num_workers}, {timeout}")
        if num_workers == 0 and (prefetch_factor is not None or persistent_workers):
            raise ArgumentError("prefetch_factor and persistent_workers need num_workers > 0")
        if pin_memory or multiprocessing_context is not None:
            warn_once("data.loader", "DataLoader: pin_memory and multiprocessing_context have no effect (CPU, threads)")
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.worker_init_fn, self.generator, self.drop_last = worker_init_fn, generator, drop_last
        self._is_iterable = isinstance(dataset, IterableDataset)
        self._check_sampling(batch_size, bool(shuffle), sampler, batch_sampler, drop_last)
        self.batch_size = None if batch_sampler is not None else batch_size
        self.sampler = sampler if sampler is not None else self._default_sampler(bool(shuffle))
        self.batch_sampler = batch_sampler
        if batch_sampler is None and batch_size is not None and not self._is_iterable:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

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

    def __iter__(self) -> Iterator[Any]:
        if self._is_iterable:
            batches = self._stream()
            return _ahead_of_stream(batches, self) if self.num_workers else batches
        fetches = self._fetches()
        return _ahead(fetches, self) if self.num_workers else (fetch() for fetch in fetches)

    def _fetches(self) -> Iterator[Fetch]:
        """One function a batch, in order; each can be called in any thread."""
        if self.batch_sampler is None:
            for index in self.sampler:
                yield functools.partial(self._sample, index)
            return
        for indices in self.batch_sampler:
            yield functools.partial(self._batch, indices)

    def _sample(self, index: Any) -> Any:
        return self.collate_fn(self.dataset[index])

    def _batch(self, indices: list[Any]) -> Any:
        return self.collate_fn(self._samples(indices))

    def _samples(self, indices: list[Any]) -> Any:
        if hasattr(self.dataset, "__getitems__"):
            return self.dataset.__getitems__(indices)
        return [self.dataset[index] for index in indices]

    def _stream(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.collate_fn(batch)


def _ahead(fetches: Iterator[Fetch], loader: DataLoader) -> Iterator[Any]:
    """Run `fetches` in worker threads, a few batches ahead, and give their results in order."""
    seed = _epoch_seed(loader)
    ids = itertools.count()

    def start_worker() -> None:
        worker_id = next(ids)
        _worker.info = WorkerInfo(worker_id, loader.num_workers, seed + worker_id, loader.dataset)
        if loader.worker_init_fn is not None:
            loader.worker_init_fn(worker_id)

    pool = ThreadPoolExecutor(loader.num_workers, "DataLoader", start_worker)
    tasks = (functools.partial(_seeded, seed + number, fetch) for number, fetch in enumerate(fetches))
    pending: deque[Future[Any]] = deque()
    try:
        for task in itertools.islice(tasks, loader.num_workers * loader.prefetch_factor):
            pending.append(pool.submit(task))
        while pending:
            batch = _result(pending.popleft(), loader)
            for task in itertools.islice(tasks, 1):
                pending.append(pool.submit(task))
            yield batch
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _epoch_seed(loader: DataLoader) -> int:
    """A new seed at every pass, drawn from the loader's generator or the default one, as in torch."""
    high, low = randint(0, 1 << 31, (2,), generator=loader.generator, device="cpu").numpy().tolist()
    return int(high) << 31 | int(low)


def _seeded(seed: int, fetch: Fetch) -> Any:
    """Run `fetch` with this thread's default generator at the start of `seed`.

    The seed belongs to the batch, not to the thread: its random transforms do not depend on which thread takes it.
    """
    state = np.array((seed, 0), np.uint64).view(np.uint8)
    default_generator.set_state(from_numpy(state))
    return fetch()


def _result(future: Future[Any], loader: DataLoader) -> Any:
    try:
        return future.result(loader.timeout or None)
    except TimeoutError as error:
        if future.done():
            raise  # the data set's own
        raise DataLoaderError(f"DataLoader timed out after {loader.timeout} seconds") from error


def _ahead_of_stream(batches: Iterator[Any], loader: DataLoader) -> Iterator[Any]:
    """Read a stream in one thread, a few batches ahead."""
    end, seed = object(), _epoch_seed(loader)
    pool = ThreadPoolExecutor(1, "DataLoader")
    following = functools.partial(next, batches, end)
    pending: deque[Future[Any]] = deque([pool.submit(_seeded, seed, following)])
    try:
        for _ in range(loader.prefetch_factor - 1):
            pending.append(pool.submit(following))
        while (batch := _result(pending.popleft(), loader)) is not end:
            pending.append(pool.submit(following))
            yield batch
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
