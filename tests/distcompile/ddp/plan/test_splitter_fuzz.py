"""Random backward graphs, random plans: the segments compute bit for bit what the whole graph computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_core import dtype as dtypes
from compiler_core.aot.strategy import Segment
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node, Placeholder
from compiler_core.graph.passes import SIMPLIFY, run_passes
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from distcompile.ddp.plan.bucket_plan import Caps
from distcompile.ddp.plan.splitter import plan_backward, split, whole

SQUARE = TensorMeta((3, 3), dtypes.float64)
UNARY = (prims.sin, prims.tanh, prims.neg, lambda x: prims.permute(x, (1, 0)), lambda x: prims.reshape(x, (3, 3)))
BINARY = (prims.add, prims.mul, prims.matmul)


@dataclass(frozen=True)
class Recipe:
    """steps: (op number, operand numbers). returned: which nodes the graph returns. parameters: which returns are."""

    steps: tuple[tuple[int, int, int], ...]
    returned: tuple[int, ...]
    parameters: tuple[bool, ...]
    cap: int


def build(recipe: Recipe) -> Graph:
    builder = GraphBuilder("backward")
    nodes: list[Node] = [builder.placeholder(name, SQUARE, role="saved") for name in ("g", "x", "w")]
    with use_trace(builder):
        nodes.append(prims.full((3, 3), 0.5, dtypes.float64))
        for op, a, b in recipe.steps:
            left, right = nodes[a % len(nodes)], nodes[b % len(nodes)]
            count = len(UNARY) + len(BINARY)
            apply = (*UNARY, *BINARY)[op % count]
            nodes.append(apply(left) if op % count < len(UNARY) else apply(left, right))
    graph = builder.build([nodes[r % len(nodes)] for r in recipe.returned])
    return run_passes(graph, SIMPLIFY)


steps = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=25)
recipes = st.builds(
    lambda steps, returned, cap: Recipe(
        tuple(steps), tuple(r for r, _ in returned), (True, *(p for _, p in returned[1:])), cap
    ),
    steps,
    st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=8),
    st.sampled_from([1, 80, 200, 10_000]),
)


def run_segments(segments: list[Segment], inputs: dict[str, np.ndarray], scale: float) -> dict[int, np.ndarray]:
    values = {**inputs, "grad_scale_f64": np.asarray(scale)}
    results: dict[int, np.ndarray] = {}
    for segment in segments:
        verify(segment.graph)
        outputs = interpret(segment.graph, [values[p.name] for p in segment.graph.inputs])
        for node, index, array in zip(segment.graph.outputs, segment.outputs, outputs, strict=True):
            assert isinstance(node, Placeholder) or node.name not in values or index is not None
            values[node.name] = array
            if index is not None:
                assert index not in results
                results[index] = array
    return results


@settings(max_examples=300, deadline=None)
@given(recipes)
def test_segments_compute_what_the_whole_computes(recipe: Recipe) -> None:
    graph = build(recipe)
    outputs = {f"p{i}": i for i, is_parameter in enumerate(recipe.parameters) if is_parameter}
    plan = plan_backward(graph, outputs, Caps(recipe.cap, recipe.cap))
    segments = split(graph, plan, outputs, with_scale=True)
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.uniform(-1, 1, (3, 3)) for p in graph.inputs}
    expected_all = interpret(graph, [inputs[p.name] for p in graph.inputs])
    found = run_segments(segments, inputs, 0.5)
    assert sorted(found) == list(range(len(expected_all))), print_graph(graph)
    for index, expected in enumerate(expected_all):
        factor = 0.5 if index in outputs.values() else 1.0
        np.testing.assert_array_equal(found[index], expected * factor, err_msg=print_graph(graph))


@settings(max_examples=100, deadline=None)
@given(recipes)
def test_expensive_nodes_are_computed_once(recipe: Recipe) -> None:
    graph = build(recipe)
    outputs = {f"p{i}": i for i, is_parameter in enumerate(recipe.parameters) if is_parameter}
    segments = split(graph, plan_backward(graph, outputs, Caps(1, 1)), outputs, with_scale=False)
    computed = [n.name for s in segments for n in s.graph.calls if n.op.name in ("matmul", "sin", "tanh", "add", "mul")]
    assert len(computed) == len(set(computed))


@settings(max_examples=200, deadline=None)
@given(recipes)
def test_one_segment_that_announces_computes_the_same(recipe: Recipe) -> None:
    graph = build(recipe)
    outputs = {f"p{i}": i for i, is_parameter in enumerate(recipe.parameters) if is_parameter}
    plan = plan_backward(graph, outputs, Caps(recipe.cap, recipe.cap))
    rng = np.random.default_rng(0)
    inputs = {p.name: rng.uniform(-1, 1, (3, 3)) for p in graph.inputs}
    (segment,) = whole(graph, plan, outputs, with_scale=True)
    found = run_segments([segment], dict(inputs), 0.5)
    cut = run_segments(split(graph, plan, outputs, with_scale=True), dict(inputs), 0.5)
    assert found.keys() == cut.keys()
    for index, expected in cut.items():
        np.testing.assert_array_equal(found[index], expected, err_msg=print_graph(graph))
    announced = [[segment.outputs[place] for place in signal] for signal in segment.graph.signals]
    for number, indices in enumerate(announced):
        names = {name for bucket in plan.buckets if bucket.segment == number for name in bucket.names}
        assert {outputs[name] for name in names} == set(indices)
