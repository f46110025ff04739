"""Functions that need the data: refusals, NaN, ties, draws; values and gradients are in test_tensor_methods.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import DomainError, DTypeError, ShapeError
from compiler_core.tensor import selection
from compiler_core.tensor.making import creation
from compiler_core.tensor.making.random import manual_seed


def test_too_many_are_asked_for() -> None:
    x = creation.ones(3)
    with pytest.raises(ShapeError, match="k out of range"):
        x.topk(4)
    with pytest.raises(ShapeError, match="kthvalue"):
        x.kthvalue(0)
    with pytest.raises(DomainError, match="without replacement"):
        creation.tensor([1.0, 0.0]).multinomial(3)
    with pytest.raises(DomainError, match="sum of probabilities"):
        creation.zeros(2).multinomial(1)
    with pytest.raises(DTypeError, match="vector of integers"):
        x.bincount()


@pytest.mark.torch
def test_nan_and_ties_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    array = np.array([[2.0, np.nan, 1.0, 2.0], [1.0, 1.0, 0.0, np.inf]])

    def run(tensor: Any) -> list[Any]:
        x = tensor(array)
        rising, falling = x.sort(dim=1, stable=True), x.sort(dim=1, descending=True, stable=True)
        middle = x.median(1)
        return [np.asarray(a) for a in (*rising, *falling, x.median(), middle.values, x.kthvalue(3, 1).values)]

    for a, b in zip(run(torch.tensor), run(creation.tensor), strict=True):
        np.testing.assert_array_equal(b, a)


@pytest.mark.torch
def test_places_and_distinct_elements_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    array = np.array([[1, 0, 2], [0, 2, 2]])

    def run(tensor: Any) -> list[Any]:
        x = tensor(array)
        found = [*x.nonzero(as_tuple=True), tensor(np.array(3)).nonzero(), tensor(np.array(0)).nonzero()]
        unique = x.unique(return_inverse=True, return_counts=True)
        rows = x.unique(dim=0)
        weighed = x.flatten().bincount(tensor(np.array([0.5, 1.0, 1.0, 2.0, 1.0, 1.0])))
        return [np.asarray(a) for a in (*found, *unique, rows, weighed)]

    for a, b in zip(run(torch.tensor), run(creation.tensor), strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize("replacement", [True, False])
def test_categories_are_drawn_in_proportion(replacement: bool) -> None:
    manual_seed(5)
    weights = creation.tensor([[1.0, 0.0, 3.0], [0.0, 1.0, 0.0]]).expand(2000, 2, 3).reshape(4000, 3)
    draws = selection.multinomial(weights, 1, replacement).numpy().reshape(2000, 2)
    assert set(draws[:, 0]) == {0, 2}
    assert set(draws[:, 1]) == {1}
    assert abs((draws[:, 0] == 2).mean() - 0.75) < 0.04
    both = selection.multinomial(creation.tensor([1.0, 2.0, 3.0]), 3)
    assert sorted(both.tolist()) == [0, 1, 2]


def test_where_of_a_condition_alone_gives_its_places() -> None:
    rows, columns = dc.where(dc.tensor([[1.0, 0.0], [0.0, 3.0]]) > 0)
    assert (rows.tolist(), columns.tolist()) == ([0, 1], [0, 1])
    with pytest.raises(DTypeError, match="a condition and two values"):
        dc.where(dc.ones(2) > 0, dc.ones(2))


def test_nans_are_distinct() -> None:
    """As in torch: NaN is not equal to NaN."""
    x = creation.tensor([1.0, float("nan"), 0.0, float("nan"), -0.0])
    values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(np.asarray(values), [0.0, 1.0, np.nan, np.nan])
    assert sorted(inverse.tolist()) == [0, 0, 1, 2, 3]
    assert counts.tolist() == [2, 1, 1, 1]
