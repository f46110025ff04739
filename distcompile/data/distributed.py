"""DistributedSampler: every rank reads its own part of the data set.

In: a data set's length, the number of replicas and this one's rank. Out: this rank's indices for the epoch.
Invariants: all ranks get equally many; the parts interleave (rank r has places r, r+N, ...); without shuffling and with
a length that N divides, they are a partition. Behaviour is torch's: short parts are padded from the start of the order,
or with drop_last the tail is left out; the order of an epoch depends on seed + epoch alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

from compiler_core.tensor.random import Generator
from compiler_core.tensor.random_creation import randperm
from distcompile.data.dataset import size_of
from distcompile.data.sampler import Sampler
from distcompile.errors import ArgumentError


class DistributedSampler(Sampler[int]):
    """The part of `dataset` that `rank` of `num_replicas` reads. Call `set_epoch` before each epoch to reshuffle."""

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            here_replicas, here_rank = _default_group()
            num_replicas = here_replicas if num_replicas is None else num_replicas
            rank = here_rank if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ArgumentError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        n = size_of(dataset)
        whole = drop_last and n % num_replicas != 0
        self.num_samples = n // num_replicas if whole else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = size_of(self.dataset)
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = cast("list[int]", randperm(n, generator=generator).tolist())
        else:
            order = list(range(n))
        if not self.drop_last and order:
            order = (order * math.ceil(self.total_size / n))[: self.total_size]
        return iter(order[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle by seed + epoch from now on."""
        self.epoch = epoch


def _default_group() -> tuple[int, int]:
    """(size, rank) of the default process group. Raises NotInitializedError if there is none."""
    from distcompile import distributed

    return distributed.get_world_size(), distributed.get_rank()
