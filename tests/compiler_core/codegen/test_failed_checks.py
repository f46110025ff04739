"""A compiled call whose index is out of range says which index, of what size, at which line: as eager code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import distcompile as dc
from compiler_core.errors import DistCompileError, IndexError_
from distcompile import nn
from distcompile.nn import functional as F

TABLE = nn.Embedding(10, 4)


def embedded(i: dc.Tensor) -> dc.Tensor:
    rows = TABLE(i)  # MARK embedded
    return rows.sum()


def picked(x: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
    doubled = x * 2
    return doubled[i] + 1  # MARK picked


def picked_twice(x: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
    good = x[i * 0]
    return good + x[i]  # MARK picked_twice


def at_two(x: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
    return x[i, i]  # MARK at_two


def put(x: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
    y = x * 1
    y[i] = 0.0  # MARK put
    return y


def gathered(x: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
    return dc.gather(x, 0, i).sum()  # MARK gathered


def lost(x: dc.Tensor, i: dc.Tensor) -> dc.Tensor:
    return F.cross_entropy(x, i)  # MARK lost


CASES = [
    (embedded, (), [1, 12], 12, "0 <= index < 10"),
    (picked, ((5,),), [2, 7], 7, None),
    (picked, ((5,),), [2, -7], -7, "-5 <= index < 5"),
    (picked_twice, ((5,),), [2, 6], 6, None),
    (at_two, ((5, 5),), [2, -9], -9, "-5 <= index < 5"),
    (put, ((5,),), [-6, 1], -6, "-5 <= index < 5"),
    (gathered, ((5,),), [2, 7], 7, "0 <= index < 5"),
    (lost, ((2, 5),), [2, 7], 7, "0 <= index < 5"),
]


def line_of(name: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(k for k, line in enumerate(lines, 1) if line.endswith(f'# MARK {name}'))}"


def refusal(call: Callable[..., Any], shapes: Any, index: list[int]) -> DistCompileError:
    with pytest.raises(IndexError_) as caught:
        call(*(dc.ones(*shape) for shape in shapes), dc.tensor(index))
    return caught.value


@pytest.mark.parametrize(("function", "shapes", "index", "value", "expected"), CASES)
def test_value_and_line_are_named(
    function: Callable[..., Any], shapes: Any, index: list[int], value: int, expected: str | None
) -> None:
    for call in (function, dc.compile(function, fullgraph=True)):
        found = refusal(call, shapes, index)
        assert found.got == str(value)
        assert f"index {value} is out of range" in found.what
        assert found.where == line_of(function.__name__)
        assert expected is None or found.expected == expected


def test_a_later_call_is_judged_anew() -> None:
    compiled = dc.compile(picked, fullgraph=True)
    assert refusal(compiled, ((5,),), [2, 7]).got == "7"
    assert compiled(dc.ones(5), dc.tensor([2, 4])).tolist() == [3.0, 3.0]
    assert refusal(compiled, ((5,),), [8, 9]).got == "8"


def test_with_gradients_too() -> None:
    compiled = dc.compile(picked, fullgraph=True)
    with pytest.raises(IndexError_) as caught:
        compiled(dc.ones(5, requires_grad=True), dc.tensor([0, 11]))
    assert (caught.value.got, caught.value.where) == ("11", line_of("picked"))
