"""A graph ends between a view and a write to its memory that has a history: what torch gives, gradients too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import distcompile as dc
from compiler_core.errors import AutogradError

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

BASES = ("m.zeros(3, dtype=x.dtype)", "x.detach() * 2", "x * 2")
VIEWS = ("y[1:]", "y[0]", "y.view(1, 3).t()", "y.view(3, 1)[1:]", "m.diagonal(y.view(1, 3))", "y.view_as(y)")
WRITES = ("v.mul_(x[0])", "v.fill_(x[0])", "v[...] = x[2]", "y.mul_(x[0])", "y[0] = x[1]", "v.mul_(3)", "v.add_(x[0])")
RESULTS = ("y * y + x", "v * 2 + x.sum()")


def gradients(m: Any, lines: tuple[str, ...], result: str, compiled: bool) -> list[float]:
    names: dict[str, Any] = {"m": m}
    body = "\n".join(f"    {line}" for line in (*lines, f"return {result}"))
    exec(compile(f"def f(x):\n{body}\n", f"<{lines}>", "exec"), names)
    function: Callable[[Any], Any] = dc.compile(names["f"], backend="aot_eager") if compiled else names["f"]
    x = m.tensor([1.0, 2.0, 3.0], dtype=m.float64, requires_grad=True)
    made = function(x)
    found: list[float] = m.autograd.grad(made.sum(), x)[0].tolist()
    return [*found, *made.flatten().tolist()]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_after_a_break_is_torchs(base: str, view: str) -> None:
    for write, result in itertools.product(WRITES, RESULTS):
        lines = (f"y = {base}", f"v = {view}", "print(end='')", write)
        wanted = gradients(torch, lines, result, False)
        assert gradients(dc, lines, result, False) == wanted
        assert gradients(dc, lines, result, True) == wanted, (lines, result)


def test_two_views_of_what_has_no_history_take_the_one_that_it_gets() -> None:
    lines = ("y = m.zeros(3, dtype=x.dtype)", "a, b = y[1:], y.detach()[1:]", "print(end='')", "y.add_(x)")
    assert gradients(dc, lines, "a * 2 + b * 3 + x.sum()", True) == gradients(
        torch, lines, "a*2 + b*3 + x.sum()", False
    )


def test_a_view_of_a_detached_tensor_is_refused_not_wrong() -> None:
    """Behind a break it shares the history of what was detached; torch runs it."""
    lines = ("y = m.zeros(3, dtype=x.dtype)", "v = y.detach()[1:]", "print(end='')", "v.mul_(x[0])")
    assert gradients(dc, lines, "y * y + x", False) == gradients(torch, lines, "y * y + x", False)
    with pytest.raises(AutogradError, match="of a detached tensor"):
        gradients(dc, lines, "y * y + x", True)
