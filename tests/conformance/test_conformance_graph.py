"""Each op in a graph: the graph verifies, its text reads back as itself, and interpreting it is eager."""

from __future__ import annotations

import pytest
from cases import Case, all_cases, by_op, check_each
from one_op_graphs import graph_of

from compiler_core.graph.interpret import interpret
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify

PLAIN = [c for c in all_cases() if c.variant == "plain"]


def text_reads_back(case: Case) -> None:
    text = print_graph(verify(graph_of(case)))
    assert print_graph(verify(parse_graph(text))) == text


def interpreter_is_eager(case: Case) -> None:
    (result,) = interpret(graph_of(case), list(case.arrays))
    expected = case.eager()
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("cases", by_op(PLAIN))
def test_text_of_a_graph_reads_back(cases: tuple[Case, ...]) -> None:
    check_each(text_reads_back, cases)


@pytest.mark.parametrize("cases", by_op(all_cases()))
def test_graph_interpreter_is_eager(cases: tuple[Case, ...]) -> None:
    check_each(interpreter_is_eager, cases)
