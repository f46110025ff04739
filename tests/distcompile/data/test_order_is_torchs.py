"""Loaders, samplers and splits: from torch's seed they give torch's order, also from worker processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.same_draws import assert_same_draws

pytestmark = pytest.mark.torch


def loaders(t: Any) -> Iterator[Any]:
    u = t.utils.data
    data = u.TensorDataset(t.arange(37.0), t.randn(37))
    weights = [0.1, 0.5, 2] * 5
    for options in (
        {"shuffle": True, "batch_size": 8},
        {"batch_size": 8},
        {"shuffle": True, "drop_last": True, "batch_size": 8},
        {"shuffle": True, "batch_size": None},
        {"shuffle": True, "batch_size": 5, "generator": t.Generator().manual_seed(3)},
        {"sampler": u.RandomSampler(data, replacement=True, num_samples=70), "batch_size": 8},
        {"sampler": u.RandomSampler(data, num_samples=64), "batch_size": 8},
        {"sampler": u.SubsetRandomSampler(range(5, 20)), "batch_size": 4},
        {"sampler": u.WeightedRandomSampler(weights, 20), "batch_size": 8},
        {"sampler": u.WeightedRandomSampler(weights, 10, replacement=False), "batch_size": 8},
    ):
        loader = u.DataLoader(data, **options)
        for _ in range(2):
            yield [batch[0] for batch in loader], t.rand(2)
    stopped = iter(u.DataLoader(data, shuffle=True, batch_size=2))
    yield next(stopped), t.rand(1), next(stopped), t.rand(1)


def samplers(t: Any) -> Iterator[Any]:
    u, g = t.utils.data, t.Generator().manual_seed(5)
    for sampler in (
        u.RandomSampler(range(10), generator=g),
        u.RandomSampler(range(10), generator=g, num_samples=25),
        u.RandomSampler(range(10), generator=g, replacement=True, num_samples=64),
        u.RandomSampler(range(10), generator=g, replacement=True, num_samples=33),
        u.SubsetRandomSampler(range(9), generator=g),
        u.WeightedRandomSampler([1.0, 2.0, 3.0], 5, generator=g),
    ):
        yield list(sampler), g.get_state()
    yield [list(part.indices) for part in u.random_split(range(20), [5, 15])]
    yield [list(part.indices) for part in u.random_split(range(20), [0.3, 0.3, 0.4], generator=g)]
    on_rank = u.distributed.DistributedSampler(range(23), num_replicas=3, rank=1, shuffle=True, seed=7)
    for epoch in range(2):
        on_rank.set_epoch(epoch)
        yield list(on_rank)


class Drawn:
    """Items that each draw from torch's, NumPy's and Python's generators."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        drawn = self.torch.rand(2) + i, float(np.random.rand()), random.random()
        return *drawn, self.torch.initial_seed() % 1_000_003, self.torch.utils.data.get_worker_info().seed % 1_000_003


def workers(t: Any) -> Iterator[Any]:
    def reseed(worker: int) -> None:
        np.random.seed(t.initial_seed() % 2**32 + worker)

    for options in ({}, {"persistent_workers": True, "worker_init_fn": reseed}):
        loader = t.utils.data.DataLoader(Drawn(t), batch_size=2, num_workers=2, shuffle=True, **options)
        for _ in range(2):
            yield [list(batch) for batch in loader], t.rand(1)


@pytest.mark.parametrize("program", [loaders, samplers, workers], ids=lambda program: program.__name__)
def test_order_is_torchs(program: Any) -> None:
    assert_same_draws(program)
