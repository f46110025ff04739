"""Ranks that differ learn what differs, where in the source, and on which ranks; equal ranks learn nothing."""

from __future__ import annotations

import pytest
from ddp_models import on_ranks

from collectives import Communicator
from compiler_core import dtype as dtypes
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS
from distcompile.ddp.agreement import Subject, agree, first_difference, skeleton
from distcompile.ddp.errors import RankDisagreementError


def graph(*ops: str, rows: int = 4) -> Graph:
    builder = GraphBuilder("forward")
    node = builder.placeholder("x", TensorMeta((rows, 3), dtypes.float32))
    for line, op in enumerate(ops, start=10):
        node = builder.call(OPS[op], [node], {}, location=f"model.py:{line}")  # type: ignore[assignment]
    return builder.build([node])


def test_equal_graphs_agree() -> None:
    on_ranks(3, lambda c: agree(c, [skeleton(graph("exp", "tanh"))], label="test"))


def test_a_difference_names_the_node_its_line_and_the_ranks() -> None:
    def step(communicator: Communicator) -> None:
        ops = ("exp", "sin") if communicator.rank == 1 else ("exp", "tanh")
        agree(communicator, [Subject("first", ("same",)), skeleton(graph(*ops))], label="test")

    with pytest.raises(RankDisagreementError) as caught:
        on_ranks(3, step)
    text = str(caught.value)
    assert "disagree about the graph forward" in text
    assert "rank(s) [0, 2] have `%2: f32[4, 3] = tanh(%1)` at model.py:11" in text
    assert "rank(s) [1] have `%2: f32[4, 3] = sin(%1)` at model.py:11" in text


def test_every_rank_gets_the_error() -> None:
    def step(communicator: Communicator) -> bool:
        with pytest.raises(RankDisagreementError):
            agree(communicator, [Subject("thing", (str(communicator.rank),))], label="test")
        return True

    assert on_ranks(3, step) == [True] * 3


def test_a_text_that_ends_early_differs_in_the_first_missing_line() -> None:
    assert first_difference([("a", "b"), ("a",)], [(), ()]) == (
        "line 2: rank(s) [0] have `b`; rank(s) [1] have `(nothing)`"
    )
