"""Joint graphs made of symbols, simplified, then run at some sizes: the joint graphs made of these sizes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_core.aot.joint import Joint, make_joint
from compiler_core.dtype import float64, int64
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.graph.print import print_graph
from compiler_core.graph.sizes import graph_at
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.convolution.composite import conv_nd
from compiler_core.ops.pooling.composite import avg_pool_nd, max_pool_nd
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


def transformer_block(batch: Any, length: Any) -> Graph:
    """Embedding, norm, causal attention, loss."""
    builder, width, heads, words = GraphBuilder("block"), 8, 2, 11
    shapes = {"wte": (words, width), "wpe": (64, width), "qkv": (3 * width, width), "out": (width, width)}
    tokens, targets = (builder.placeholder(name, TensorMeta((batch, length), int64)) for name in ("tokens", "targets"))
    wte, wpe, qkv, out = (builder.placeholder(name, TensorMeta(shape, float64)) for name, shape in shapes.items())
    with use_trace(builder):
        x = F.add(F.embedding(tokens, wte), F.embedding(F.arange(length), wpe))
        parts = F.split(F.linear(F.layer_norm(x, (width,)), qkv), width, 2)
        q, k, v = (F.transpose(F.reshape(p, (batch, length, heads, width // heads)), 1, 2) for p in parts)
        y = F.transpose(F.scaled_dot_product_attention(q, k, v, is_causal=True), 1, 2)
        x = F.add(x, F.linear(F.reshape(y, (batch, length, width)), out))
        logits = F.linear(F.gelu(x), wte)
        return builder.build([F.cross_entropy(F.reshape(logits, (-1, words)), F.reshape(targets, (-1,)))])


def convolutions(batch: Any, height: Any, width: Any) -> Graph:
    builder = GraphBuilder("convolutions")
    shapes = {"x": (batch, 3, height, width), "w1": (4, 3, 3, 3), "w2": (5, 4, 3, 3), "last": (7, 5)}
    x, w1, w2, last = (builder.placeholder(name, TensorMeta(shape, float64)) for name, shape in shapes.items())
    with use_trace(builder):
        y = F.relu(conv_nd(2, x, w1, padding=1))
        y = F.div(F.sub(y, F.mean(y, (0, 2, 3), keepdim=True)), F.sqrt(F.var(y, (0, 2, 3), keepdim=True)))
        y = F.relu(conv_nd(2, max_pool_nd(2, y, 2), w2, stride=2, padding=1))
        return builder.build([F.log_softmax(F.linear(F.mean(avg_pool_nd(2, y, 2), (2, 3)), last), -1)])


MODELS: dict[str, tuple[Callable[..., Graph], tuple[int, ...], list[tuple[int, ...]]]] = {
    "transformer": (transformer_block, (4, 16), [(4, 16), (2, 2), (3, 64), (7, 31), (5, 3)]),
    "convolutions": (convolutions, (4, 16, 12), [(4, 16, 12), (2, 17, 8), (3, 8, 31), (2, 9, 9), (5, 24, 10)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_keep_their_sizes_and_gradients_ask_nothing(name: str) -> None:
    model, hints, rows = MODELS[name]
    sizes = Sizes()
    graph = run_passes(model(*map(sizes.new, hints)), SIMPLIFY)
    sizes.close()
    joint = verify(run_passes(joint_of(graph).graph, SIMPLIFY_JOINT))
    for row in rows:
        numbers = dict(zip(sizes.symbols, row))
        assert all(guard.holds(numbers.__getitem__) for guard in sizes.guards)
        static, _ = graph_at(joint, numbers, name)
        expected = joint_of(run_passes(model(*row), SIMPLIFY)).graph
        rng = np.random.default_rng(0)
        arrays = [
            rng.normal(size=node.shape) if node.dtype is float64 else rng.integers(0, 11, node.shape)
            for node in static.inputs
        ]
        for got, want in zip(interpret(static, arrays), interpret(expected, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
