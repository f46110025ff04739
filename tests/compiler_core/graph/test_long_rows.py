"""Reductions of few long rows in two steps: the same numbers, more programs, and parts that follow the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.dtype import DType, bfloat16, float32, float64
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import LongRows
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace


def graph_of(function: Callable[[Any], Any], shape: tuple[int, ...], dtype: DType) -> Graph:
    builder = GraphBuilder("g")
    x = builder.placeholder("x", TensorMeta(shape, dtype))
    with use_trace(builder):
        return builder.build([function(x)])


def reductions(graph: Graph) -> list[tuple[int, ...]]:
    return [call.args[0].shape for call in graph.calls if call.op.nests]


CASES: list[tuple[str, Callable[[Any], Any], tuple[int, ...], list[tuple[int, ...]]]] = [
    # channels before pixels: a part is a channel's pixels
    ("one group", lambda x: prims.sum(prims.reshape(x, (8, 1, 36864)), dims=(2,)), (8, 64, 24, 24),
     [(8, 1, 64, 576), (8, 1, 64)]),
    ("behind others", lambda x: prims.sum(prims.exp(prims.reshape(x, (8, 36864))), dims=(1,)), (8, 64, 24, 24),
     [(8, 64, 576), (8, 64)]),
    ("dims of its own", lambda x: prims.max(x, dims=(1, 2, 3)), (8, 64, 24, 24), [(8, 64, 576), (8, 64)]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
@pytest.mark.parametrize(("function", "shape", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_parts_end_where_dims_did(
    function: Callable[[Any], Any], shape: tuple[int, ...], expected: list[tuple[int, ...]], dtype: DType
) -> None:
    graph = graph_of(function, shape, dtype)
    made = LongRows().apply(graph)
    assert reductions(made) == expected
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype.numpy)
    (found,), (wanted,) = interpret(made, [x]), interpret(graph, [x])
    assert found.dtype == wanted.dtype
    tolerance = {bfloat16: 1e-2, float32: 1e-5, float64: 1e-12}[dtype]
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_a_row_without_dims_is_cut_where_it_divides() -> None:
    graph = graph_of(lambda x: prims.sum(x, dims=(0,)), (3 << 17,), float32)
    first, second = reductions(LongRows().apply(graph))
    assert first[0] == second[0] >= 1056
    assert first[0] * first[1] == 3 << 17


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: prims.sum(x, dims=(1,)), (528, 8192)),  # rows enough
        (lambda x: prims.sum(x, dims=(1,)), (128, 4096)),  # short ones
        (lambda x: prims.sum(x, dims=(0,)), (8192, 128)),  # columns
        (lambda x: prims.sum(x, dims=(1,)), (4, 131101)),  # a prime
        (lambda x: F.argmax(x, -1), (4, 1 << 17)),  # a place is counted in its row
    ],
    ids=["many rows", "short rows", "columns", "a prime", "places"],
)
def test_others_stay(function: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    graph = graph_of(function, shape, float32)
    assert str(LongRows().apply(graph)) == str(graph)
