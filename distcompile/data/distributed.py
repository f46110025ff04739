"""DistributedSampler: every rank reads its own part of the data set.

In: a data set's length, the number of replicas and this one's rank. Out: this rank's indices for the epoch.
Invariants: all ranks get equally many; the parts interleave (rank r has places r, r+N, ...); without shuffling and with
a length that N divides, they are a partition. Behaviour is torch's: short parts are padded from the start of the order,
or with drop_last the tail is left out; the order of an epoch depends on seed + epoch alone.
A job that is resumed in the middle of an epoch leaves out what all ranks together have read of it (`set_position`): the
order stays the same, at any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

from compiler_core.tensor.making.random import Generator
from compiler_core.tensor.making.random_creation import randperm
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
        self._set_start(0)

    def __iter__(self) -> Iterator[int]:
        n = size_of(self.dataset)
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = cast("list[int]", randperm(n, generator=generator, device="cpu").tolist())
        else:
            order = list(range(n))
        left = order[self.start :]
        if not self.drop_last and left:
            padding = self.total_size - len(left)
            left += (order * math.ceil(padding / n))[:padding]
        return iter(left[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle by seed + epoch from now on. Another epoch than now begins at its start."""
        if epoch != self.epoch:
            self._set_start(0)
        self.epoch = epoch

    def set_position(self, epoch: int, samples: int) -> None:
        """Go on in `epoch`, of which all ranks together have read `samples` samples. The next epoch is whole again."""
        if not samples >= 0:
            raise ArgumentError("the number of samples read so far is at least 0", got=str(samples))
        self.epoch = epoch
        self._set_start(min(samples, size_of(self.dataset)))

    def _set_start(self, start: int) -> None:
        self.start = start
        left = size_of(self.dataset) - start
        whole = self.drop_last and left % self.num_replicas != 0
        self.num_samples = left // self.num_replicas if whole else math.ceil(left / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas


def _default_group() -> tuple[int, int]:
    """(size, rank) of the default process group. Raises NotInitializedError if there is none."""
    from distcompile import distributed

    return distributed.get_world_size(), distributed.get_rank()
