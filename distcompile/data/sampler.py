"""Samplers: the order in which a data set is read.

In: a data set (its length), and a generator for the random ones. Out: an iterator of indices, or of lists of indices.
Given the same generator state, the order is torch's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from compiler_core.dtype import float64, int64
from compiler_core.tensor.making.creation import as_tensor, empty
from compiler_core.tensor.making.random import Generator, place_of_draws
from compiler_core.tensor.making.random_creation import randint, randperm
from compiler_core.tensor.selection import multinomial
from compiler_core.tensor.tensor import Tensor
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
        if self.num_samples <= 0:
            raise ArgumentError(
                f"num_samples should be a positive integer value, but got num_samples={self.num_samples}"
            )

    @property
    def num_samples(self) -> int:
        return size_of(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        """As torch draws: from a generator of its own unless one is given, 32 at a time, or a permutation more."""
        n, count, generator = size_of(self.data_source), self.num_samples, self.generator
        if generator is None:
            generator = Generator().manual_seed(seed_from(None))
        if self.replacement:
            for start in range(0, count + 1, 32):
                yield from _drawn(
                    randint(0, n, (min(32, count - start),), generator=generator, device=generator.device)
                )
            return
        for start in range(0, count + 1, n):
            yield from _drawn(randperm(n, generator=generator, device=generator.device))[: count - start]

    def __len__(self) -> int:
        return self.num_samples


def seed_from(generator: Generator | None) -> int:
    """63 bits, drawn by the generator, or the default one of the CPU: the seed of a pass."""
    return cast("int", empty((), dtype=int64, device=place_of_draws(generator)).random_(generator=generator).item())


def _drawn(tensor: Tensor) -> list[int]:
    return cast("list[int]", tensor.tolist())


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a new random order at every pass."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        place = place_of_draws(self.generator)
        for i in _drawn(randperm(len(self.indices), generator=self.generator, device=place)):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices drawn with probability proportional to `weights`, by `multinomial`."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ArgumentError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ArgumentError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights: Tensor = as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise ArgumentError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        yield from _drawn(multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator))

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
