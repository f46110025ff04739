"""Functions under `lru_cache` that are given sizes, as einops has them, and what else einops looks at."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from sized_runs import SIZES, arguments, captures, check

import distcompile as dc
from distcompile import Tensor


def test_a_cached_function_of_a_size_is_run() -> None:
    @functools.lru_cache
    def causal(length: int) -> Tensor:
        return dc.tril(dc.ones(length, length)) / length

    @functools.lru_cache
    def halves(shape: tuple[int, ...], parts: int) -> tuple[list[int], int]:
        return [shape[0] // parts, shape[1]], shape[0] % parts

    def attend(x: Tensor) -> Tensor:
        (count, width), rest = halves(x.shape, 2)
        return (causal(len(x)) @ x)[:count] * width + rest

    assert check(attend, lambda n: arguments([(n, 4)])) == 1
    assert halves.cache_info().currsize == len(SIZES)  # what eager calls kept


def test_a_cached_function_that_changes_something_is_asked() -> None:
    seen: list[int] = []

    @functools.lru_cache
    def noted(length: int) -> int:
        seen.append(length)
        return length * 2

    compiled: Any = dc.compile(lambda x: x * noted(len(x)), backend="eager", dynamic=True)
    with pytest.warns(UserWarning, match="is given a size, changes something"):
        assert compiled(dc.ones(5)).tolist() == [10.0] * 5
    for n in (7, 5, 7):
        assert compiled(dc.ones(n)).tolist() == [2.0 * n] * n
    assert seen == [5, 7]


def test_subclasses_are_guarded() -> None:
    class Base:
        scale = 2.0

    class One(Base): ...

    def scaled(x: Tensor) -> Tensor:
        return x * sum(kind.scale for kind in Base.__subclasses__())

    compiled: Any = dc.compile(scaled, backend="eager", fullgraph=True)
    assert compiled(dc.ones(2)).tolist() == [2.0, 2.0]

    class Two(Base):
        scale = 3.0

    assert compiled(dc.ones(2)).tolist() == [5.0, 5.0]
    assert [compiled(dc.ones(2)).tolist(), captures(compiled), One.scale, Two.scale] == [[5.0, 5.0], 2, 2.0, 3.0]
