"""Gradients at ties, of NaN and where slopes are infinite: torch's own, eager and compiled."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from beside_torch import program, verdict

import distcompile as dc

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

inf, nan = math.inf, math.nan

INFINITE = (
    "m.log(x)", "m.log2(x)", "m.sqrt(x)", "m.rsqrt(x)", "1 / x", "x ** 0.5", "x ** -1", "x * inf", "m.acos(x + 1)",
)  # fmt: skip
WEIGHTS = ((0, 0, 0), (1, -1, 0), (1, -1, 2), (1, 1, 1), (0, 0, 1))


def gradient(text: str, **columns: object) -> str:
    """The program of a function's gradients in float64, weights w where they are given."""
    weights = columns.pop("w", None)
    makes = [f"{name} = m.tensor({v}, dtype=m.float64, requires_grad=True)" for name, v in columns.items()]
    given = "m.ones_like(y)" if weights is None else f"m.tensor({weights}, dtype=m.float64)"
    names = ", ".join(columns)
    return f"inf, nan = math.inf, math.nan; {'; '.join(makes)}; y = {text}; y, *m.autograd.grad(y, [{names}], {given})"


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("text", INFINITE)
def test_an_infinite_slope_meets_the_gradient_of_each_copy(text: str, weights: tuple[int, ...]) -> None:
    """0 times infinity is NaN, which a sum of the copies' gradients, taken first, would hide."""
    for copies in ("x.expand(3)", "x.view(1, 1).expand(3, 1)[:, 0]"):
        found = gradient(text.replace("x", f"({copies})"), x=[0.0], w=weights)
        assert verdict(found) == []


ROWS = ([nan, 1.0, 2.0, 3.0], [1.0, 2.0, nan, 3.0], [nan, nan], [nan], [1.0, 2.0, 2.0, 3.0], [nan, inf, -inf, 0.0])


@pytest.mark.parametrize("values", ROWS)
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_a_quantile_that_is_nan_hands_its_gradient_to_one(name: str, values: list[float]) -> None:
    for q, how in itertools.product(("0.0", "0.3", "0.5", "1.0"), ("linear", "lower", "higher", "nearest", "midpoint")):
        assert verdict(gradient(f"m.{name}(x, {q}, interpolation='{how}')", x=values)) == []
    assert verdict(gradient(f"m.{name}(x, m.tensor([0.2, 0.7], dtype=m.float64), dim=0)", x=values)) == []
    assert verdict(gradient(f"m.{name}(x, 0.4, dim=1, keepdim=True)", x=[values, values[::-1]])) == []


def test_a_distance_of_order_0_from_nan_is_nan() -> None:
    for x in ([[1.0, nan, 2.0]], [[inf, 1.0, 2.0]], [[1.0, 1.0, 2.0]]):
        assert verdict(gradient("m.cdist(x, y, p=0)", x=x, y=[[0.0, 1.0, 2.0], [1.0, 1.0, 2.0]])) == []
        assert verdict(gradient("F.pdist(x, p=0)", x=[*x, [1.0, 1.0, 2.0]])) == []


SINGULAR = [[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]


@pytest.mark.parametrize("name", ["m.linalg.slogdet(x)[1]", "m.slogdet(x)[1]", "m.logdet(x)"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_gradient_of_a_singular_determinants_logarithm_is_no_number(name: str, compiled: bool) -> None:
    """It was an error, for a whole batch. torch has infinities or NaN, as rounding in its factors goes."""
    found = []
    for m in (dc, torch):
        function = program(name, m, "x")
        x = m.tensor([*SINGULAR, [[1.0, 2.0], [3.0, 5.5]]], dtype=m.float64, requires_grad=True)
        made = (dc.compile(function) if compiled and m is dc else function)(x)
        found.append((made.detach().numpy(), m.autograd.grad(made, x, m.ones_like(made))[0].numpy()))
    (mine, ours), (value, theirs) = found
    np.testing.assert_allclose(mine, value, rtol=1e-14)
    np.testing.assert_allclose(ours[3], theirs[3], rtol=1e-14)
    assert not np.isfinite(ours[:3]).any()
    assert not np.isfinite(theirs[:3]).any()


PUT = (
    ([2.0, 5.0, 0.0, 7.0], [2.0, 2.0, 3.0, 3.0]),
    ([inf, -inf, -0.0, 7.0], [inf, inf, -inf, -inf]),
    ([-inf, 1.0, 0.0, 7.0], [-inf, -inf, inf, 1.0]),
    ([nan, 1.0, 0.0, 7.0], [1.0, 2.0, nan, nan]),
    ([9.0, -9.0, 0.0, 7.0], [1.0, 1.0, 4.0, 4.0]),
)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize(("x", "y"), PUT)
def test_the_largest_that_is_put_shares_its_gradient_as_torchs(reduce: str, x: list[float], y: list[float]) -> None:
    index = "m.tensor([0, 0, 1, 1])"
    for text in (f"x.scatter_reduce(0, {index}, y, '{reduce}')", f"x.index_reduce(0, {index}, y, '{reduce}')"):
        assert verdict(gradient(text, x=x, y=y)) == []
    columns = [[-100.0, 100.0] * 2 for _ in range(4)]  # which takes no part
    text = f"x.scatter_reduce(1, m.tensor([[0, 0, 1, 1], [3, 2, 3, 0]]), y, '{reduce}', include_self=False)"
    assert verdict(gradient(text, x=columns, y=[y, x])) == []


def test_the_largest_that_are_put_take_memory_for_each_once() -> None:
    rows, width = 4000, 8
    index = dc.arange(rows).remainder(500).unsqueeze(1).expand(rows, width)
    source = dc.ones(rows, width, requires_grad=True)
    tracemalloc.start()
    dc.zeros(500, width).scatter_reduce(0, index, source, "amax").sum().backward()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * rows * width  # 500 times as much, where each place had all rows beside it


# torch shares, or leaves out, where ours is a derivative: (program, ours, torch's)
DECLARED: tuple[tuple[str, dict[str, object], object, object], ...] = (
    # an element of x that takes no part, and happens to be as large, has a share in torch
    (
        "x.scatter_reduce(0, m.tensor([0, 0]), y, 'amax', include_self=False)",
        {"x": [2.0, 1.0], "y": [2.0, 0.0]}, [[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.0]],
    ),
    # each of two that are as far has the whole gradient in torch, which is none of the directions' slopes
    (
        "m.cdist(x, m.zeros(1, 2, dtype=x.dtype), p=inf)", {"x": [[1.0, -1.0]]}, [[[0.5, -0.5]]], [[[1.0, -1.0]]],
    ),
    # of equal infinities ours is the limit
    ("m.logaddexp(x, y)", {"x": [inf, 0.0], "y": [inf, 0.0]}, [[0.5, 0.5], [0.5, 0.5]], [[nan, 0.5], [nan, 0.5]]),
    ("x.var()", {"x": [inf, 1.0, 2.0]}, [[nan, nan, nan]], [[nan, -inf, -inf]]),
    ("m.nanmean(x, 0)", {"x": [[nan, 1.0], [nan, nan]]}, [[[0.0, 1.0], [0.0, 0.0]]], [[[nan, 1.0], [nan, 0.0]]]),
)  # fmt: skip


@pytest.mark.parametrize(("text", "columns", "ours", "theirs"), DECLARED)
def test_what_is_declared_not_to_be_torchs_is_not(
    text: str, columns: dict[str, object], ours: Any, theirs: Any
) -> None:
    for m, compiled, wanted in ((dc, False, ours), (dc, True, ours), (torch, False, theirs)):
        function = program(f"inf = math.inf; {text}", m, *columns)
        operands = [m.tensor(v, dtype=m.float64, requires_grad=True) for v in columns.values()]
        made = (dc.compile(function) if compiled else function)(*operands)
        for found, want in zip(m.autograd.grad(made, operands, m.ones_like(made)), wanted, strict=True):
            np.testing.assert_array_equal(found.numpy(), want)
