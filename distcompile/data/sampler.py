"""Samplers: the order in which a data set is read.

In: a data set (its length), and a generator for the random ones. Out: an iterator of indices, or of lists of indices.
Given the same generator state, the order is the same on every machine (Philox); it is not torch's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np

from compiler_core.tensor.random import Generator, place_of_draws
from compiler_core.tensor.random_creation import rand, randint, randperm
from distcompile.data.dataset import size_of
from distcompile.errors import ArgumentError

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base of all samplers: subclasses define `__iter__`, and `__len__` where it is known."""

    def __init__(self, data_source: object = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(size_of(self.data_source)))

    def __len__(self) -> int:
        return size_of(self.data_source)


LOT = 1024  # draws at once


class RandomSampler(Sampler[int]):
    """A new permutation at every pass; or, with replacement, `num_samples` independent draws."""

    def __init__(
        self,
        data_source: Any,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source, self.replacement, self._num_samples, self.generator = (
            data_source,
            replacement,
            num_samples,
            generator,
        )
        if num_samples is not None and num_samples <= 0:
            raise ArgumentError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")

    @property
    def num_samples(self) -> int:
        return size_of(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, left = size_of(self.data_source), self.num_samples
        if self.replacement:
            yield from _draws(n, left, self.generator)
            return
        while left > 0:
            order = cast(
                "list[int]", randperm(n, generator=self.generator, device=place_of_draws(self.generator)).tolist()
            )
            yield from order[:left]
            left -= n

    def __len__(self) -> int:
        return self.num_samples


def _draws(n: int, count: int, generator: Generator | None) -> Iterator[int]:
    """`count` independent numbers below n, in lots: people ask for more than they will take (10**10).

    Without a generator they come from one of their own, so that what is drawn between lots changes nothing.
    """
    if generator is None:
        generator = Generator().manual_seed(cast("int", randint(0, 2**32, (1,), device="cpu").item()))
    while count > 0:
        lot = min(count, LOT)
        yield from cast(
            "list[int]", randint(0, n, (lot,), generator=generator, device=place_of_draws(generator)).tolist()
        )
        count -= lot


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a new random order at every pass."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in cast(
            "list[int]",
            randperm(len(self.indices), generator=self.generator, device=place_of_draws(self.generator)).tolist(),
        ):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices drawn with probability proportional to `weights`.

    Without replacement it takes the largest of log(u)/w (Efraimidis, Spirakis 2006).
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        if num_samples <= 0:
            raise ArgumentError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        self.weights = np.asarray(weights, dtype=np.float64)
        if self.weights.ndim != 1 or (self.weights < 0).any():
            raise ArgumentError("weights should be a 1d sequence of non-negative numbers", got=str(self.weights.shape))
        if not replacement and num_samples > np.count_nonzero(self.weights):
            raise ArgumentError("more samples than weights above zero, without replacement", got=str(num_samples))
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        count = self.num_samples if self.replacement else len(self.weights)
        uniform = np.asarray(
            rand(count, generator=self.generator, device=place_of_draws(self.generator)).tolist(), dtype=np.float64
        )
        if self.replacement:
            cumulative = np.cumsum(self.weights)
            picks = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
        else:
            with np.errstate(divide="ignore"):
                keys = np.where(self.weights > 0, np.log(uniform) / self.weights, -np.inf)
            picks = np.argsort(-keys, kind="stable")[: self.num_samples]
        return iter(cast("list[int]", picks.tolist()))

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices from another sampler. drop_last: leave out a last, smaller one."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ArgumentError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ArgumentError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        n = size_of(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
