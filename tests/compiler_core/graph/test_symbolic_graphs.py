"""Graphs of which the call decides sizes: text, verification, interpretation, and the numbers that inputs give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler_core.dtype import float32
from compiler_core.errors import GraphError, ShapeError
from compiler_core.graph.input_sizes import numbers_of
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.symbolic.size import Sizes

GRAPH = """\
sizes s0 in [2, inf), s1 in [2, inf), s2 in [2, 64] if s1 == s0 and not s2 == s0
graph f(%x: f32[s0, 3] input 'x', %y: f32[s1, 3] input 'y', %z: f32[2*s2 + 1, s0] input 'z') {
  %add: f32[s0, 3] = add(%x, %y)
  %reshape: f32[3*s0] = reshape(%add) shape=(3*s0,)
  %full: f32[((s0 + s2) // 2), 4*(s2 % s0)] = full() dtype=f32 shape=((s0 + s2) // 2, 4*(s2 % s0)) value=-0.5
  %matmul: f32[2*s2 + 1, 3] = matmul(%z, %x)
  return %reshape, %full, %matmul
}
"""


def symbolic_graph() -> Graph:
    sizes = Sizes()
    a, b, c = sizes.new(8), sizes.new(8), sizes.new(6, high=64)
    builder = GraphBuilder("f")
    x, y, z = (
        builder.placeholder(name, TensorMeta(shape, float32), source=name)
        for name, shape in (("x", (a, 3)), ("y", (b, 3)), ("z", (2 * c + 1, a)))
    )
    with use_trace(builder):
        total = prims.add(x, y)
        outputs = [prims.reshape(total, (3 * a,))]
        assert c != a
        outputs += [prims.full(((a + c) // 2, 4 * (c % a)), -0.5, float32), prims.matmul(z, x)]
    return builder.build(outputs)


def test_text_is_that_of_the_graph_and_reads_back() -> None:
    text = print_graph(verify(symbolic_graph()))
    assert text == GRAPH.replace("((s0 + s2) // 2, 4*", "(((s0 + s2) // 2), 4*")
    assert print_graph(verify(parse_graph(text))) == text
    assert print_graph(parse_graph(GRAPH)) == text


def test_verification_assumes_nothing() -> None:
    graph = symbolic_graph()
    sizes = next(iter(graph.inputs[0].shape[0].symbols)).sizes  # type: ignore[attr-defined]
    guards = list(sizes.guards)
    verify(graph)
    assert sizes.guards == guards
    assert not sizes.closed
    with pytest.raises(GraphError, match=r"is not valid at %add: .*s1"):
        verify(parse_graph(GRAPH.replace("s1 == s0 and ", "")))
    with pytest.raises(GraphError, match="infer says"):
        verify(parse_graph(GRAPH.replace("%reshape: f32[3*s0]", "%reshape: f32[3*s0 + 1]")))


@pytest.mark.parametrize(("n", "m"), [(8, 6), (2, 3), (7, 64), (65537, 2), (31, 30)])
def test_the_inputs_tell_the_sizes_when_it_runs(n: int, m: int) -> None:
    rng = np.random.default_rng(0)
    shapes = ((n, 3), (n, 3), (2 * m + 1, n))
    x, y, z = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    reshaped, full, product = interpret(parse_graph(GRAPH), [x, y, z])
    assert np.array_equal(reshaped, (x + y).reshape(-1))
    assert full.shape == ((n + m) // 2, 4 * (m % n))
    assert np.array_equal(product, z @ x)
    numbers = numbers_of(parse_graph(GRAPH), [x.shape, y.shape, z.shape])
    assert {symbol.name: number for symbol, number in numbers.items()} == {"s0": n, "s1": n, "s2": m}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((8, 3), (8, 3), (13, 7)), "dim 1 of %z is s0"),
        (((8, 3), (8, 3), (12, 8)), "no input tells s2"),
        (((8, 3), (7, 3), (13, 8)), "of which s1 == s0"),
        (((6, 3), (6, 3), (13, 6)), "of which not s2 == s0"),
        (((8, 3), (8, 3), (131, 8)), r"s2 is in \[2, 64\]"),
        (((1, 3), (1, 3), (13, 1)), r"s[01] is in \[2, inf\]"),
        (((8, 3), (8, 3), (13,)), "input %z"),
        (((8, 4), (8, 3), (13, 8)), "input %x does not fit"),
    ],
)
def test_inputs_of_other_sizes_are_named(shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises((GraphError, ShapeError), match=message):
        interpret(parse_graph(GRAPH), arrays)


def test_a_graph_is_inlined_into_another_with_its_sizes() -> None:
    inner = parse_graph(GRAPH)
    sizes = Sizes()
    n = sizes.new(8)
    builder = GraphBuilder("outer")
    values = [
        builder.placeholder(name, TensorMeta(shape, float32)) for name, shape in (("x", (n, 3)), ("z", (2 * n + 3, n)))
    ]
    with use_trace(builder):
        outer = builder.build(interpret(inner, [values[0], values[0], values[1]]))
    assert [repr(node.shape) for node in outer.outputs] == ["(3*s0,)", "(s0, 4)", "(2*s0 + 3, 3)"]
    assert math.prod(outer.outputs[0].shape) == 3 * n
    assert print_graph(parse_graph(print_graph(outer))) == print_graph(outer)


@pytest.mark.parametrize(
    ("wrong", "instead"),
    [("f32[s0, 3] input 'x'", "f32[s9, 3] input 'x'"), ("[2, 64]", "[2, 64)"), ("s1 == s0", "s1 > s0")],
)
def test_what_does_not_parse_is_refused(wrong: str, instead: str) -> None:
    with pytest.raises(GraphError, match="does not parse"):
        parse_graph(GRAPH.replace(wrong, instead))
