"""Joint graphs made of symbols, simplified, then run at some sizes: the joint graphs made of these sizes."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler_core.aot.joint import Joint, make_joint
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.ops.registry import use_trace
from compiler_core.symbolic.expression import of_factor
from compiler_core.symbolic.size import Sizes, SizeSymbol, Sym, at_sizes

sys.path.append(str(Path(__file__).parents[1] / "graph"))
from random_small_graphs import random_graph

Numbers = dict[SizeSymbol, int]


def symbolic_graph(seed: int) -> tuple[Graph, Sizes]:
    sizes = Sizes()
    a, b, c = (sizes.new(hint) for hint in (5, 7, 4))
    return random_graph(seed, shapes=[(a, b), (b, a), (a, b, c), (1, b), (b,)]), sizes


def joint_of(graph: Graph) -> Joint:
    return make_joint(graph, [node.dtype.is_floating_point for node in graph.inputs])


def at_numbers(graph: Graph, numbers: Numbers) -> Graph:
    """The graph made anew of numbers."""
    builder = GraphBuilder(graph.name)
    nodes = [builder.placeholder(n.name, n.meta.with_shape(at_sizes(n.shape, numbers))) for n in graph.inputs]
    with use_trace(builder):
        return builder.build(interpret(graph, nodes))


def some_sizes(sizes: Sizes, seed: int, count: int) -> list[Numbers]:
    """Sizes for which the guards hold, primes and 2 among them."""
    rng, found = random.Random(seed), [{symbol: int(symbol.hint or 0) for symbol in sizes.symbols}]
    for _ in range(400):
        numbers = {symbol: rng.choice([2, 3, 4, 5, 6, 8, 11, 13]) for symbol in sizes.symbols}
        if numbers not in found and all(guard.holds(numbers.__getitem__) for guard in sizes.guards):
            found.append(numbers)
    return found[:count]


@pytest.mark.parametrize("seed", range(40))
def test_a_joint_graph_of_symbols_is_that_of_numbers(seed: int) -> None:
    graph, sizes = symbolic_graph(seed)
    joint = joint_of(verify(run_passes(graph, SIMPLIFY)))
    sizes.close()
    simplified = verify(run_passes(verify(joint.graph), SIMPLIFY_JOINT))
    assert print_graph(verify(parse_graph(print_graph(simplified)))) == print_graph(simplified)
    for numbers in some_sizes(sizes, seed, 5):
        expected = joint_of(at_numbers(graph, numbers))
        assert (joint.tangents, joint.gradients, joint.reaches) == (
            expected.tangents,
            expected.gradients,
            expected.reaches,
        )
        rng = np.random.default_rng(seed)
        arrays = [rng.uniform(0.1, 1.0, node.shape) for node in expected.graph.inputs]
        for got, want in zip(interpret(simplified, arrays), interpret(expected.graph, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_most_random_graphs_run_at_five_sizes_and_stay_symbolic() -> None:
    counts, fixed = [], 0
    for seed in range(40):
        graph, sizes = symbolic_graph(seed)
        joint_of(run_passes(graph, SIMPLIFY))
        counts.append(len(some_sizes(sizes, seed, 5)))
        fixed += sum(not isinstance(sizes.normal(of_factor(symbol)), Sym) for symbol in sizes.symbols)
    assert counts.count(5) >= 38
    assert fixed == 0
