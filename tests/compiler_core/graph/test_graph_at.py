"""A graph of symbols for some numbers: the graph made of these numbers, which shares what no size changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_small_graphs import random_graph

from compiler_core.dtype import float32
from compiler_core.errors import GraphError, ShapeError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.sizes import graph_at, symbols_of
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.symbolic.size import Sizes

SIZES = [(5, 7, 4), (2, 3, 5), (7, 2, 11), (13, 4, 3), (257, 31, 2)]


def made(seed: int, a: Any, b: Any, c: Any) -> Graph:
    return random_graph(seed, shapes=[(a, b), (b, a), (a, b, c), (1, b), (b,)])


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_at_sizes_runs_as_the_graph_of_symbols(seed: int) -> None:
    sizes = Sizes()
    graph = made(seed, *(sizes.new(hint) for hint in SIZES[0]))
    sizes.close()
    before = print_graph(graph)
    for row in SIZES:
        numbers = dict(zip(sizes.symbols, row))
        if not all(guard.holds(numbers.__getitem__) for guard in sizes.guards):
            continue
        static, stands_for = graph_at(graph, numbers, graph.name)
        assert not symbols_of(verify(static))
        assert [node.name for node in static.nodes] == [node.name for node in graph.nodes]
        assert all(stands_for[node].name == node.name for node in graph.nodes)
        rng = np.random.default_rng(seed)
        arrays = [rng.uniform(0.1, 1.0, node.shape) for node in static.inputs]
        for got, want in zip(interpret(static, arrays), interpret(graph, arrays), strict=True):
            assert got.tobytes() == want.tobytes()
    assert print_graph(graph) == before


@pytest.mark.parametrize("seed", range(10))
def test_at_the_hints_it_is_the_graph_that_was_made_of_them(seed: int) -> None:
    sizes = Sizes()
    graph = made(seed, *(sizes.new(hint) for hint in SIZES[0]))
    static, _ = graph_at(graph, dict(zip(sizes.symbols, SIZES[0])), graph.name)
    builder = GraphBuilder(graph.name)
    nodes = [builder.placeholder(node.name, node.meta) for node in static.inputs]
    with use_trace(builder):
        again = builder.build(interpret(graph, nodes))
    assert print_graph(again) == print_graph(static)


def test_what_holds_no_symbol_is_shared() -> None:
    sizes = Sizes()
    n = sizes.new(8)
    builder = GraphBuilder("g")
    x, w = builder.placeholder("x", TensorMeta((n, 3), float32)), builder.placeholder("w", TensorMeta((3, 4), float32))
    with use_trace(builder):
        weight = prims.neg(w)
        product = prims.matmul(x, weight)
    graph = builder.build([product])
    static, stands_for = graph_at(graph, {sizes.symbols[0]: 5}, "static")
    assert (static.name, static.outputs[0].shape) == ("static", (5, 4))
    assert stands_for[w] is w
    assert stands_for[weight] is weight
    assert stands_for[x] is not x


def test_sizes_for_which_a_guard_does_not_hold_are_an_error_of_the_graph() -> None:
    sizes = Sizes()
    n, m = sizes.new(8), sizes.new(8)
    builder = GraphBuilder("g")
    x, y = (builder.placeholder(name, TensorMeta((size,), float32)) for name, size in (("x", n), ("y", m)))
    with use_trace(builder):
        graph = builder.build([prims.add(x, y)])
    with pytest.raises(ShapeError, match="operand shapes differ"):
        graph_at(graph, dict(zip(sizes.symbols, (8, 9))), "g")
    wrong = parse_graph(print_graph(graph).replace("%add: f32[s0]", "%add: f32[s0 + 1]"))
    with pytest.raises(GraphError, match="has another shape"):
        graph_at(wrong, dict.fromkeys(symbols_of(wrong), 8), "g")
