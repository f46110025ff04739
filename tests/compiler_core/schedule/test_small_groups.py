"""Kernels of few elements, which a GPU has together for the launch's sake."""

from __future__ import annotations

from compiler_core.dtype import float32
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.lowering.target import CPU, GPU, Target
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule


def _graph() -> Graph:
    """Two values of one sum, and three of inputs."""
    builder = GraphBuilder("graph")
    x = builder.placeholder("x", TensorMeta((64, 96), float32))
    given = [builder.placeholder(f"y{k}", TensorMeta((96,), float32)) for k in range(3)]
    with use_trace(builder):
        total = prims.sum(x, (0,))
        return builder.build([prims.exp(total), prims.tanh(total), *map(prims.neg, given)])


def _launched(target: Target) -> int:
    (program,) = lower_and_schedule([_graph()], "graph", target)
    return len(program.steps)


def test_a_gpu_computes_them_together() -> None:
    assert _launched(GPU) == 3  # the sum, what is made of it, what is made of inputs
    assert _launched(CPU) > 3
