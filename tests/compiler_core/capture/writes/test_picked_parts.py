"""`x[i]` with a number in a tensor is a view in eager code: what is written to it in a graph is not lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak

Function = Callable[[Any, Any], Any]
PROGRAMS: dict[str, tuple[Function, bool]] = {}  # whether it is one graph


def program(function: Function | None = None, *, whole: bool = False) -> Any:
    def note(function: Function) -> Function:
        PROGRAMS[function.__name__] = function, whole
        return function

    return note if function is None else note(function)


@program
def filled(x: Any, i: Any) -> Any:
    x[i].fill_(5)
    return x * 2


@program
def added_by_a_method(x: Any, i: Any) -> Any:
    y = x[i]
    y.add_(1)
    return y * 2, x.sum()


@program
def added_by_an_operator(x: Any, i: Any) -> Any:
    y = x[i]
    y += 1
    return x.sum()


@program
def added_and_put_elsewhere(x: Any, i: Any) -> Any:
    other, y = dc.zeros(2, 4), x[i]
    y += 1
    other[0] = y
    return x.sum() + other


@program
def an_element_of_a_part(x: Any, i: Any) -> Any:
    y = x[i]
    y[0] += 1
    return x.sum() + y


@program
def an_item_of_a_list(x: Any, i: Any) -> Any:
    parts = [x[i], x[0]]
    parts[0] += 1
    return x.sum() + parts[0]


@program
def a_part_of_a_part(x: Any, i: Any) -> Any:
    x[i][1:].mul_(3)
    return x + 1


@program
def beside_slices(x: Any, i: Any) -> Any:
    x[:, i].zero_()
    x[i, 1:] *= 2
    return x.cos()


@program
def in_a_loop(x: Any, i: Any) -> Any:
    for k in dc.arange(3):
        x[k].add_(k)
    return x


@program(whole=True)
def stored_back(x: Any, i: Any) -> Any:
    x[i] += 1
    x[i, 0] *= 3
    x[i] = x[i] + 1
    return x * 2


@program(whole=True)
def only_read(x: Any, i: Any) -> Any:
    return x[i].sin() + x[i, 1:].sum()


@program
def read_after_the_whole_is_written(x: Any, i: Any) -> Any:
    v = x[i]
    x.neg_()
    return v


@program
def read_after_a_view_is_written(x: Any, i: Any) -> Any:
    y = x * 1
    v = y[i]
    y[1:].neg_()
    y[:1].neg_()
    return v * 2


@program(whole=True)
def read_before_the_whole_is_written(x: Any, i: Any) -> Any:
    v = x[i]
    w = v * 2
    x.neg_()
    return w


@program(whole=True)
def moved(x: Any, i: Any) -> Any:
    y = x * 1
    y[0] = y[i] + y[-1]
    y[1] = y[i]
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_writes_are_those_of_eager_code(name: str) -> None:
    function, whole = PROGRAMS[name]
    compiled = dc.compile(function, fullgraph=whole)
    for step in range(3):
        start = dc.arange(12.0).reshape(3, 4) + step
        index = dc.tensor(step)
        ours, theirs = start.clone(), start.clone()
        found, wanted = compiled(ours, index), function(theirs, index)
        assert dc.equal(ours, theirs)
        for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
            assert dc.allclose(a, b)


@pytest.mark.parametrize("name", [name for name, (_, whole) in PROGRAMS.items() if not whole])
def test_where_a_break_is_no_way_it_is_named(name: str) -> None:
    with pytest.raises(GraphBreak, match=r"selects a view|iterat|number|data"):
        dc.compile(PROGRAMS[name][0], fullgraph=True)(dc.ones(3, 4), dc.tensor(1))
