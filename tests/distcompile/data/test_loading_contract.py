"""Samplers, data sets and loaders by their invariants: partitions, permutations, order, named errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from datasets_for_tests import Squares, Stream

import distcompile as dc
import distcompile.utils.data as ours
from compiler_core.errors import DomainError
from compiler_core.log import DistCompileWarning
from distcompile.errors import ArgumentError, DataLoaderError


def test_an_empty_data_set_gives_every_rank_nothing() -> None:
    assert [list(ours.DistributedSampler([], 2, r)) for r in range(2)] == [[], []]


def test_shuffled_ranks_partition_the_data_and_reshuffle_by_epoch_and_seed() -> None:
    def epoch(number: int, seed: int = 0) -> list[list[int]]:
        samplers = [ours.DistributedSampler(range(12), 3, r, seed=seed) for r in range(3)]
        for sampler in samplers:
            sampler.set_epoch(number)
        return [list(s) for s in samplers]

    first = epoch(0)
    assert sorted(i for part in first for i in part) == list(range(12))
    assert first == epoch(0)
    assert first != epoch(1)
    assert epoch(3, seed=2) == epoch(2, seed=3)  # seed + epoch, as in torch


def test_distributed_sampler_takes_rank_and_size_from_the_default_group() -> None:
    from collectives import run_ranks
    from distcompile import distributed

    def parts(communicator: Any) -> list[int]:
        with distributed.use_communicator(communicator):
            return list(ours.DistributedSampler(range(6), shuffle=False))

    assert run_ranks(2, parts) == [[0, 2, 4], [1, 3, 5]]


def test_an_impossible_rank_is_refused() -> None:
    with pytest.raises(ArgumentError, match="Invalid rank 2"):
        ours.DistributedSampler(range(4), num_replicas=2, rank=2)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_streams_are_read_once_in_order(workers: int, batch_size: int | None) -> None:
    got = list(ours.DataLoader(Stream(), batch_size, num_workers=workers))
    want = [[*range(4)], [*range(4, 8)], [8, 9]] if batch_size else list(range(10))
    assert [b.tolist() if batch_size else b for b in got] == want
    assert len(ours.DataLoader(Stream(), batch_size)) == len(want)
    assert list(ours.ChainDataset([Stream(), Stream()])) == [*range(10)] * 2


def test_a_sampler_of_batches_and_a_whole_batch_fetch() -> None:
    class Whole(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [-i for i in indices]

    batches = [[3, 1], [2]]
    assert [b.tolist() for b in ours.DataLoader(Squares(5), batch_sampler=batches)] == [[9, 1], [4]]
    assert [b.tolist() for b in ours.DataLoader(Whole(5), batch_sampler=batches)] == [[-3, -1], [-2]]
    assert len(ours.DataLoader(Squares(5), batch_sampler=batches)) == 2


def test_shuffling_is_a_permutation_that_the_seed_decides() -> None:
    def order(seed: int) -> list[int]:
        generator = dc.Generator().manual_seed(seed)
        loader = ours.DataLoader(range(50), 7, shuffle=True, generator=generator)
        return [int(i) for batch in loader for i in batch]

    assert sorted(order(1)) == list(range(50))
    assert order(1) == order(1) != order(2)
    assert order(1) != list(range(50))


def test_random_samplers_draw_what_they_say() -> None:
    dc.manual_seed(0)
    assert sorted(ours.RandomSampler(range(5), num_samples=12))[:2] == [0, 0]
    assert len(list(ours.RandomSampler(range(5), replacement=True, num_samples=9))) == 9
    some = iter(ours.RandomSampler(range(5), replacement=True, num_samples=10**10))  # as many as are taken
    assert {next(some) for _ in range(2000)} == set(range(5))
    assert sorted(ours.SubsetRandomSampler([4, 9, 2])) == [2, 4, 9]
    weighted = list(ours.WeightedRandomSampler([0.0, 1.0, 3.0], 8000))
    assert weighted.count(0) == 0
    assert weighted.count(2) / 8000 == pytest.approx(0.75, abs=0.02)
    assert sorted(ours.WeightedRandomSampler([0.0, 1.0, 3.0], 2, replacement=False)) == [1, 2]


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda: ours.DataLoader(Squares(3), sampler=[1], shuffle=True), ArgumentError),
        (lambda: ours.DataLoader(Squares(3), 2, batch_sampler=[[1]]), ArgumentError),
        (lambda: ours.DataLoader(Squares(3), None, drop_last=True), ArgumentError),
        (lambda: ours.DataLoader(Squares(3), num_workers=-1), ArgumentError),
        (lambda: ours.DataLoader(Squares(3), prefetch_factor=2), ArgumentError),
        (lambda: ours.DataLoader(Stream(), shuffle=True), ArgumentError),
        (lambda: ours.BatchSampler([1], 0, False), ArgumentError),
        (lambda: ours.RandomSampler([1], num_samples=0), ArgumentError),
        (lambda: list(ours.WeightedRandomSampler([-1.0], 1)), DomainError),
        (lambda: ours.TensorDataset(dc.ones(2), dc.ones(3)), ArgumentError),
        (lambda: ours.ConcatDataset([]), ArgumentError),
        (lambda: ours.ConcatDataset([Stream()]), DataLoaderError),
        (lambda: ours.random_split(range(4), [1, 1]), ArgumentError),
        (lambda: len(ours.DataLoader(ours.Dataset())), DataLoaderError),
        (lambda: ours.default_collate([np.ones(2), np.ones(3)]), DataLoaderError),
        (lambda: ours.default_collate([[1], [1, 2]]), DataLoaderError),
        (lambda: ours.default_collate([object()]), DataLoaderError),
        (lambda: list(ours.ChainDataset([Squares(1)])), DataLoaderError),
    ],
)
def test_misuse_is_a_named_error(misuse: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        misuse()


def test_options_without_effect_are_named_once() -> None:
    with pytest.warns(DistCompileWarning, match="pin_memory"):
        ours.DataLoader(Squares(1), pin_memory=True)


def test_a_stream_without_length_can_be_listed() -> None:
    class Five(ours.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    loader = ours.DataLoader(Five(), 2)
    assert [batch.tolist() for batch in list(loader)] == [[0, 1], [2, 3], [4]]
    with pytest.raises(TypeError):
        len(loader)
