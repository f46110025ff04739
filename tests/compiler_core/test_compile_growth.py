"""Compiling takes time in proportion to what is compiled: lines of Python that each step runs, at n nodes and at 4n."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import distcompile as torch
from compiler_core import steps
from compiler_core.config import config
from distcompile import Tensor

pytestmark = pytest.mark.long

LEAST = 30_000  # lines, below which a step's beginning counts


def chain(n: int) -> Callable[[Tensor, Tensor], Tensor]:
    """One layer after the other."""

    def run(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(n // 6):
            x = torch.tanh(x @ w) + x * 0.5
            x = x - x.mean(-1, keepdim=True)
        return x.sum()

    return run


def beside(n: int) -> Callable[[Tensor, Tensor], Tensor]:
    """All of them read one value, and one reads them all."""

    def run(x: Tensor, w: Tensor) -> Tensor:
        return torch.cat([torch.sin(x * (k + 1.5)) @ w for k in range(n // 3)]).sum()

    return run


def lines_of_steps(function: Callable[[Tensor, Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lines that each step runs to compile a function and its backward."""
    counts: Counter[str] = Counter()
    under_way, timed = ["none"], steps.timed

    def traced(frame: Any, event: str, arg: Any) -> Any:
        counts[under_way[-1]] += 1
        return traced

    @contextmanager
    def noted(graph: str, step: str) -> Iterator[None]:
        under_way.append(step)
        try:
            with timed(graph, step):
                yield
        finally:
            under_way.pop()

    monkeypatch.setattr(steps, "timed", noted)
    x, w = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    compiled, before = torch.compile(function, fullgraph=True), sys.gettrace()
    with config.patch(use_cache=False):
        sys.settrace(traced)
        try:
            compiled(x, w)
        finally:
            sys.settrace(before)
            monkeypatch.undo()
    return counts


@pytest.mark.parametrize("program", [chain, beside])
def test_steps_grow_with_the_graph(
    program: Callable[[int], Callable[[Tensor, Tensor], Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines_of_steps(program(12), monkeypatch)  # what is loaded and filled once
    few, many = (lines_of_steps(program(n), monkeypatch) for n in (180, 720))
    growth = {step: many[step] / 4 / few[step] for step in few if many[step] >= LEAST}
    assert {"schedule", "define", "simplify_joint", "partition", "emit"} <= growth.keys()
    assert max(growth.values()) <= 1.2, growth
