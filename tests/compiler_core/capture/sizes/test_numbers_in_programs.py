"""Sizes and numbers from outside in what users write: results beside eager code, how often it was captured, and that no
hint is read in silence: where the guards of a capture take a call of other sizes, a capture of that call gives the same
graph."""

from __future__ import annotations

from typing import Any

import pytest
from number_programs import NUMBERED, NUMBERS, PROGRAMS, SHAPES, STATE
from sized_runs import captures, outcome, same

import distcompile as dc

ALL = {**PROGRAMS, **NUMBERED}
PAIRS = (((3, 4), (5, 8)), ((9, 6), (5, 12)), ((5, 12), (6, 4)))


def arguments(shape: tuple[int, int], n: int, name: str) -> list[Any]:
    return [dc.randn(*shape, 6), *([n] if name in NUMBERED else [])]


def compiled(name: str) -> Any:
    return dc.compile(ALL[name][0], backend="eager", dynamic=True, fullgraph=True)


def graph_of(function: Any) -> str:
    """The graph with symbols that was captured last, without its name."""
    graphs = dict(function.explain().entries[-1].graphs)
    graph = graphs.get("sized", next(iter(graphs.values()), ""))
    return str(graph).partition("\n")[2]


@pytest.mark.parametrize("name", ALL)
def test_results_and_captures(name: str) -> None:
    function, expected = ALL[name]
    fast = compiled(name)
    for shape, n in zip(SHAPES, NUMBERS):
        x, *numbers = arguments(shape, n, name)
        want, size = outcome(lambda x: function(x, *numbers), [x]), STATE.size  # noqa: B023
        STATE.size = 0
        same(outcome(lambda x: fast(x, *numbers), [x]), want, f"{name} at {shape}")  # noqa: B023
        assert STATE.size == (size if name == "sizes_kept" else 0)
        STATE.size = 0
    assert captures(fast) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_where_guards_take_other_sizes_their_capture_gives_the_same_graph(name: str) -> None:
    for one, other in PAIRS:
        first = compiled(name)
        first(*arguments(one, 2, name))
        text = graph_of(first)
        first(*arguments(other, 2, name))
        if captures(first) == 1:
            again = compiled(name)
            again(*arguments(other, 2, name))
            assert graph_of(again) == text
