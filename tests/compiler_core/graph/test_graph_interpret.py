"""The interpreter against NumPy, on arrays, Tensors and nodes."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest

from compiler_core.dtype import float32
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.tensor import Tensor

GRAPH = parse_graph("""
graph g(%x: f32[2, 3] input 'x', %w: f32[3, 2] parameter 'w') {
  %matmul: f32[2, 2] = matmul(%x, %w)
  %const: f32[2, 2] = constant [[1.0, 2.0], [3.0, 4.0]]
  %mul: f32[2, 2] = mul(%matmul, %const)
  %sum: f32[2] = sum(%mul) dims=(0,)
  return %sum, %matmul, %x
}
""")


@pytest.fixture
def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((2, 3), np.float32), rng.random((3, 2), np.float32)]


def expected(x: np.ndarray, w: np.ndarray) -> list[np.ndarray]:
    return [(x @ w * np.array([[1, 2], [3, 4]], np.float32)).sum(0), x @ w, x]


def test_arrays(arrays: list[np.ndarray]) -> None:
    for got, want in zip(interpret(GRAPH, arrays), expected(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_destinations_are_written_and_returned(arrays: list[np.ndarray]) -> None:
    out = np.full((4, 4), np.nan, np.float32)
    window = out[1:3, 1:3]  # a strided destination
    results = interpret(GRAPH, arrays, [None, window, None])
    assert results[1] is window
    np.testing.assert_allclose(out[1:3, 1:3], arrays[0] @ arrays[1], rtol=1e-6)
    assert np.isnan(out[0]).all()


def test_tensors_are_differentiated_by_the_tape(arrays: list[np.ndarray]) -> None:
    x, w = Tensor._wrap(arrays[0]), Tensor._wrap(arrays[1]).requires_grad_()
    total, _, same = interpret(GRAPH, [x, w])
    assert same is x
    total.sum().backward()
    want = arrays[0].T @ np.array([[1, 2], [3, 4]], np.float32)
    np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-6)


def test_nodes_inline_the_graph() -> None:
    builder = GraphBuilder("outer")
    x = builder.placeholder("x", TensorMeta((2, 3), float32))
    w = builder.placeholder("w", TensorMeta((3, 2), float32))
    with use_trace(builder):
        total, *_ = interpret(GRAPH, [x, w])
        outer = builder.build([prims.neg(total)])
    assert [call.op.name for call in outer.calls] == ["matmul", "mul", "sum", "neg"]


def test_misfits_are_refused(arrays: list[np.ndarray]) -> None:
    with pytest.raises(GraphError, match="takes 2 inputs"):
        interpret(GRAPH, arrays[:1])
    with pytest.raises(GraphError, match=r"input %w does not fit"):
        interpret(GRAPH, [arrays[0], arrays[0]])


def test_values_die_after_their_last_use() -> None:
    alive: list[bool] = []
    seen: list[weakref.ref[np.ndarray]] = []
    lines = [f"  %x{i + 1}: f64[64] = exp(%x{i})" for i in range(4)]
    graph = parse_graph("\n".join(["graph g(%x0: f64[64] input '') {", *lines, "  return %x4\n}"]))
    eager = graph.calls[0].op.eager

    def watched(xp: object, x: np.ndarray) -> np.ndarray:
        seen.append(weakref.ref(x))
        alive.append(any(ref() is not None for ref in seen[1:-1]))
        return eager(xp, x)

    op = replace(graph.calls[0].op, eager=watched)
    nodes = list(graph.inputs)
    for call in graph.calls:
        nodes.append(replace(call, op=op, args=(nodes[-1],)))
    interpret(Graph("g", tuple(nodes), (nodes[-1],)), [np.zeros(64)])
    assert len(seen) == 4
    assert not any(alive)
