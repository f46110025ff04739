"""Samplers, data sets and collation, judged by torch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from datasets_for_tests import Squares

import distcompile as dc
import distcompile.utils.data as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.data")
pytestmark = pytest.mark.torch

Pair = namedtuple("Pair", "a b")


def plain(x: Any) -> Any:
    """Batches as plain data with dtypes."""
    if hasattr(x, "tolist"):
        return x.tolist(), str(x.dtype).partition(".")[2]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x).__name__, [plain(v) for v in x]
    return x


@pytest.mark.parametrize("n", [1, 7, 10])
@pytest.mark.parametrize("replicas", [1, 2, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler_in_order_equals_torchs(n: int, replicas: int, drop_last: bool) -> None:
    for rank in range(replicas):
        a = ours.DistributedSampler(range(n), replicas, rank, shuffle=False, drop_last=drop_last)
        b = theirs.DistributedSampler(range(n), replicas, rank, shuffle=False, drop_last=drop_last)
        assert list(a) == list(b)
        assert len(a) == len(b)


@pytest.mark.parametrize("batch_size", [1, 3, 5, 20])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_in_order_equal_torchs(batch_size: int, drop_last: bool) -> None:
    data = Squares(10)
    a = ours.DataLoader(data, batch_size, drop_last=drop_last)
    b = theirs.DataLoader(data, batch_size, drop_last=drop_last)
    assert plain(list(a)) == plain(list(b))
    assert len(a) == len(b)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_kind_of_sample_is_collated_as_in_torch(workers: int) -> None:
    samples: list[Any] = [1, 2.5, True, "text", np.float32(1.5), np.arange(3), (1, 2.0), [1, [2]], Pair(1, np.ones(2))]
    for sample in [*samples, {"x": 1, "y": (2.0, "z")}]:
        got = list(ours.DataLoader([sample] * 4, 2, num_workers=workers))
        want = list(theirs.DataLoader([sample] * 4, 2))
        assert plain(got) == plain(want), sample


def test_tensor_data_sets_and_unbatched_loading() -> None:
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    a = ours.TensorDataset(dc.tensor(x), dc.arange(6))
    b = theirs.TensorDataset(torch.tensor(x), torch.arange(6))
    assert plain(list(ours.DataLoader(a, 4))) == plain(list(theirs.DataLoader(b, 4)))
    assert plain(list(ours.DataLoader(a, None))) == plain(list(theirs.DataLoader(b, None)))
    assert plain(ours.ConcatDataset([a, a])[-1]) == plain(theirs.ConcatDataset([b, b])[-1])
    assert plain((a + a)[7]) == plain((b + b)[7])
    assert plain(ours.Subset(a, [3, 1])[1]) == plain(theirs.Subset(b, [3, 1])[1])


@pytest.mark.parametrize("lengths", [[7, 3], [0.5, 0.25, 0.25]])
def test_random_split_is_a_partition_of_torchs_sizes(lengths: list[Any]) -> None:
    a, b = ours.random_split(range(10), lengths), theirs.random_split(range(10), lengths)
    assert [len(s) for s in a] == [len(s) for s in b]
    assert sorted(i for s in a for i in s) == list(range(10))


def test_stacked_data_sets_equal_torchs() -> None:
    results = []
    for data in (ours, theirs):
        row, named = data.StackDataset([1, 2, 3], Squares(3)), data.StackDataset(a=[1, 2, 3], b=Squares(3))
        results.append(
            [row[1], named[2], len(row), row.__getitems__([0, 2]), plain(list(data.DataLoader(named, batch_size=2)))]
        )
        for wrong in (lambda d=data: d.StackDataset(), lambda d=data: d.StackDataset([1], [1, 2])):
            with pytest.raises(ValueError, match="dataset"):
                wrong()
        with pytest.raises(ValueError, match="both types"):
            data.StackDataset([1], a=[1])
    assert results[0] == results[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_of_loaders_are_torchs_kinds(workers: int) -> None:
    told = []
    for lib in (dc, torch):
        names = lib.utils.data.dataloader
        loader = lib.utils.data.DataLoader(lib.arange(7), batch_size=2, num_workers=workers)
        iterator = iter(loader)
        assert isinstance(iterator, names._BaseDataLoaderIter)
        kinds = [isinstance(iterator, kind) for kind in (
            names._SingleProcessDataLoaderIter, names._MultiProcessingDataLoaderIter)]  # fmt: skip
        facts = [len(iterator), next(iterator).tolist(), loader._auto_collation, loader.prefetch_factor]
        facts += [loader._dataset_kind == names._DatasetKind.Map, loader._index_sampler is loader.batch_sampler]
        if workers:
            iterator._shutdown_workers()
        told.append((kinds, facts))
    assert told[0] == told[1]
