"""Cheap values are computed again in later kernels instead of being stored; what is dear, or needs more, is stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.schedule.recompute import MIN_NUMEL

SHAPE = (16, 8, 256)


def graph_of(function: Callable[..., Node], n: int = 1) -> Graph:
    builder = GraphBuilder("g")
    inputs = [builder.placeholder(f"x{k}", TensorMeta(SHAPE, float32)) for k in range(n)]
    with use_trace(builder):
        return builder.build([function(*inputs)])


def stored(program: ir.Program) -> list[str]:
    """The large values that stand in the arena."""
    return [b.name for b in program.buffers if b.kind == "temp" and b.numel >= MIN_NUMEL]


def check(graph: Graph) -> ir.Program:
    """The program, verified, and run by the interpreter beside the graph."""
    (program,) = lower_and_schedule([graph])
    verify_program(program)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(SHAPE).astype(np.float32) for _ in graph.inputs]
    for result, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=2e-5, atol=2e-5)
    return program


def per_channel(x: Node) -> Node:
    """Sums over all but dim 1, repeated."""
    return F.expand(F.reshape(F.sum(x, (0, 2)), (1, SHAPE[1], 1)), SHAPE)


def test_a_deviation_from_the_mean_is_not_stored() -> None:
    def function(x: Node) -> Node:
        deviation = prims.sub(x, per_channel(x))
        return prims.mul(deviation, per_channel(prims.mul(deviation, deviation)))

    assert stored(check(graph_of(function))) == []


def test_chains_of_such_values_are_not_stored() -> None:
    def function(g: Node, x: Node) -> Node:
        first = prims.mul(g, per_channel(x))
        second = prims.add(first, prims.mul(x, per_channel(first)))
        return prims.add(second, per_channel(second))

    assert stored(check(graph_of(function, 2))) == []


def test_what_is_dear_is_stored() -> None:
    def function(x: Node) -> Node:
        dear = prims.exp(x)
        return prims.mul(dear, per_channel(dear))

    assert stored(check(graph_of(function))) == ["exp"]


def test_what_is_read_in_another_order_is_stored() -> None:
    def function(x: Node) -> Node:
        doubled = prims.add(prims.mul(x, x), x)
        turned = F.reshape(F.permute(doubled, (2, 0, 1)), SHAPE)
        return prims.mul(prims.add(turned, per_channel(doubled)), per_channel(prims.mul(doubled, x)))

    check(graph_of(function))


def test_a_sum_over_the_first_and_last_dims_is_vectorised() -> None:
    program = check(graph_of(lambda x: per_channel(prims.mul(x, x))))
    loops = [stmt for kernel in program.kernels for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Loop)]
    assert all(loop.kind == "vector" for loop in loops if not any(isinstance(s, ir.Loop) for s in loop.body))
