"""Data sets: things that are indexed (`Dataset`) or iterated (`IterableDataset`).

In: tensors, or the user's own class. Out: samples. Names and behaviour are torch's.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from compiler_core.tensor.making.random import Generator, place_of_draws
from compiler_core.tensor.making.random_creation import randperm
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, AssertedArgumentError, DataLoaderError, LengthError

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from index to sample: subclasses define `__getitem__`, and `__len__` where samplers need it.

    `__getitems__(indices)`, if defined, fetches a whole batch at once.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: subclasses define `__iter__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is row i of every tensor; all have the same number of rows."""

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertedArgumentError("Size mismatch between tensors", got=str([tuple(t.shape) for t in tensors]))
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class ConcatDataset(Dataset[T_co]):
    """The samples of several data sets, one set after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise DataLoaderError("ConcatDataset does not support IterableDataset", remedy="use ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(size_of(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if not -len(self) <= index < len(self):
            raise ArgumentError("absolute value of index should not exceed dataset length", got=str(index))
        index %= len(self)
        which = bisect_right(self.cumulative_sizes, index)
        return cast(T_co, self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)])


class StackDataset(Dataset[Any]):
    """Sample i is sample i of each data set: as a tuple; of those given by name, as a dict. All have one length."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise ArgumentError("Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/"
                                "output, but both types are given.")  # fmt: skip
        self.datasets: Any = args or kwargs
        lengths = {size_of(d) for d in self._each()}
        if not lengths:
            raise ArgumentError("At least one dataset should be passed")
        if len(lengths) > 1:
            raise ArgumentError("Size mismatch between datasets", got=str(sorted(lengths)))
        (self._length,) = lengths

    def _each(self) -> list[Any]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _joined(self, samples: Iterable[Any]) -> Any:
        return dict(zip(self.datasets, samples, strict=True)) if isinstance(self.datasets, dict) else tuple(samples)

    def __getitem__(self, index: Any) -> Any:
        return self._joined(d[index] for d in self._each())

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """The samples at `indices`; each data set is asked once, if it can be."""
        columns = [_samples(d, indices) for d in self._each()]
        return [self._joined(row) for row in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


def _samples(dataset: Any, indices: list[Any]) -> list[Any]:
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[i] for i in indices]
    found = list(dataset.__getitems__(indices))
    if len(found) != len(indices):
        raise ArgumentError("Nested dataset's output size mismatch.", expected=str(len(indices)), got=str(len(found)))
    return found


class ChainDataset(IterableDataset[T_co]):
    """The samples of several streams, one after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise DataLoaderError("ChainDataset only supports IterableDataset", got=type(dataset).__name__)
            yield from dataset

    def __len__(self) -> int:
        return sum(size_of(dataset) for dataset in self.datasets)


class Subset(Dataset[T_co]):
    """The samples of `dataset` at `indices`."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Disjoint random subsets of the given lengths; or fractions that sum to 1, the rest going round from the first."""
    total = size_of(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 + 1e-9:
        lengths = _lengths_of_fractions(lengths, total)
    if sum(lengths) != total:
        raise ArgumentError(
            "Sum of input lengths does not equal the length of the input dataset!",
            expected=str(total),
            got=str(sum(lengths)),
        )
    order = cast("list[int]", randperm(total, generator=generator, device=place_of_draws(generator)).tolist())
    ends = itertools.accumulate(int(length) for length in lengths)
    return [Subset(dataset, order[end - int(length) : end]) for end, length in zip(ends, lengths, strict=True)]


def _lengths_of_fractions(fractions: Sequence[int | float], total: int) -> list[int]:
    if any(not 0 <= fraction <= 1 for fraction in fractions):
        raise ArgumentError("Fractions must be between 0 and 1", got=str(list(fractions)))
    lengths = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(lengths)):
        lengths[i % len(lengths)] += 1
    return lengths


def size_of(dataset: object) -> int:
    """`len(dataset)`. Raises LengthError for one that has no length, a TypeError, so that `list(loader)` works."""
    if not hasattr(dataset, "__len__"):
        raise LengthError(
            f"{type(dataset).__name__} has no length", remedy="define __len__, or give the loader a sampler"
        )
    return len(cast(Any, dataset))
