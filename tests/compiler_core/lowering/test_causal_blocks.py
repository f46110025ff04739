"""Products under a causal mask: which blocks are left out, and that the result is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.attention.composite import written_out
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule

Function = Callable[..., Node | Sequence[Node]]


def build(function: Function, *shapes: tuple[int, ...]) -> Graph:
    builder = GraphBuilder("g")
    inputs = [builder.placeholder("x", TensorMeta(shape, float32)) for shape in shapes]
    with use_trace(builder):
        result = function(*inputs)
    return builder.build([result] if isinstance(result, Node) else result)


def sizes(function: Function, *shapes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(m, n, k) of every product, after checking the result. Temps start as garbage, so a block too few shows."""
    graph = build(function, *shapes)
    arrays = [np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate(shapes)]
    (program,) = lower_and_schedule([graph])
    verify_program(program)
    for result, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
    calls = [step for step in program.steps if isinstance(step, ir.RoutineCall)]
    return [(*call.result.layout.shape[-2:], call.operands[0].layout.shape[-1]) for call in calls]


HEADS = ((2, 128, 16), (2, 128, 16), (2, 128, 16))


def test_causal_attention_skips_the_upper_blocks() -> None:
    products = sizes(lambda q, k, v: written_out(q, k, v, None, 0.0, True, 0.25), *HEADS)
    assert products == [(64, 64, 16), (64, 128, 16), (64, 16, 64), (64, 16, 128)]


def test_attention_without_a_mask_is_whole() -> None:
    products = sizes(lambda q, k, v: written_out(q, k, v, None, 0.0, False, 0.25), *HEADS)
    assert products == [(128, 128, 16), (128, 16, 128)]


def test_gradients_of_the_scores_meet_queries_and_keys_in_blocks() -> None:
    """ds is zero above the diagonal by its own mask: dq = ds k, dk = ds^T q, and k^T's gradient q^T ds."""

    def function(ds: Node, q: Node, k: Node) -> list[Node]:
        ds = F.mul(F.tril(ds), 0.125)
        dq = F.matmul(ds, k)
        dk = F.matmul(F.transpose(ds, -1, -2), q)
        dkt = F.matmul(F.transpose(q, -1, -2), ds)
        return [dq, dk, dkt]

    products = sizes(function, (2, 128, 128), (2, 128, 16), (2, 128, 16))
    assert products == [(64, 16, 64), (64, 16, 128), (64, 16, 128), (64, 16, 64), (16, 64, 128), (16, 64, 64)]


@pytest.mark.parametrize("diagonal", [-70, -1, 3, 64, 200])
def test_any_diagonal(diagonal: int) -> None:
    sizes(lambda a, b: F.matmul(F.tril(a, diagonal), b), (192, 128), (128, 8))
    sizes(lambda a, b: F.tril(F.matmul(a, b), diagonal), (192, 8), (8, 128))


def test_scores_that_something_else_reads_are_whole() -> None:
    def function(q: Node, k: Node) -> list[Node]:
        scores = F.matmul(q, F.transpose(k, -1, -2))
        return [F.tril(scores), F.amax(scores, -1)]

    assert sizes(function, (128, 8), (128, 8)) == [(128, 128, 8)]


def test_a_mask_over_another_axis_saves_nothing() -> None:
    def function(q: Node, k: Node) -> Node:
        scores = F.matmul(q, F.transpose(k, -1, -2))  # (128, 128)
        return prims.permute(F.tril(prims.reshape(scores, (64, 256))), (1, 0))

    assert sizes(function, (128, 8), (128, 8)) == [(128, 128, 8)]
