"""Products that a GPU's library computes slowly: few columns element by element, odd sizes padded; the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.dtype import DType, bfloat16, float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import GpuProducts
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace

Shape = tuple[int, ...]


def product(first: Shape, second: Shape, dtype: DType, turned: str = "") -> Graph:
    """Of two arrays, those of "ab" that are turned before."""
    builder = GraphBuilder("g")
    a, b = (builder.placeholder(name, TensorMeta(shape, dtype)) for name, shape in (("a", first), ("b", second)))
    with use_trace(builder):
        x, y = (prims.permute(v, dims=(1, 0)) if name in turned else v for name, v in (("a", a), ("b", b)))
        return builder.build([prims.matmul(x, y)])


def products(graph: Graph) -> list[tuple[Shape, Shape]]:
    return [tuple(arg.shape for arg in call.args) for call in graph.calls if call.op.name == "matmul"]  # type: ignore[misc]


def agree(made: Graph, graph: Graph, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, node.shape).astype(node.dtype.numpy) for node in graph.inputs]
    (found,), (wanted,) = interpret(made, arrays), interpret(graph, arrays)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
@pytest.mark.parametrize(
    ("first", "second"),
    [((1 << 17, 4), (4, 4)), ((3, 1 << 16, 2), (3, 2, 5)), ((4, 7), (7, 1 << 17)), ((1 << 18, 1), (1, 1))],
    ids=str,
)
def test_few_columns_are_multiplied_element_by_element(first: Shape, second: Shape, dtype: DType) -> None:
    graph = product(first, second, dtype)
    made = GpuProducts().apply(graph)
    assert products(made) == []
    agree(made, graph, 1e-2 if dtype is bfloat16 else 1e-6)


ODD: list[tuple[Shape, Shape, str, tuple[Shape, Shape]]] = [
    ((2048, 1024), (1024, 1001), "", ((2048, 1024), (1024, 1008))),
    ((2048, 1024), (1001, 1024), "b", ((2048, 1024), (1024, 1008))),  # scores of a vocabulary
    ((2048, 1001), (1001, 1024), "", ((2048, 1008), (1008, 1024))),  # their gradient, by the hidden state
    ((2048, 1001), (2048, 1024), "a", ((1008, 2048), (2048, 1024))),  # and by the weight
    ((1001, 2048), (1024, 2048), "b", ((1001, 2048), (2048, 1024))),  # rows that are aligned
]


@pytest.mark.parametrize(("first", "second", "turned", "padded"), ODD, ids=[f"{o[0]}{o[1]}{o[2]}" for o in ODD])
def test_odd_sizes_along_memory_are_padded(
    first: Shape, second: Shape, turned: str, padded: tuple[Shape, Shape]
) -> None:
    graph = product(first, second, bfloat16, turned)
    made = GpuProducts().apply(graph)
    assert products(made) == [padded]
    agree(made, graph, 2e-2)


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [
        ((2048, 1024), (1024, 1001), float32),
        ((64, 1024), (1024, 1001), bfloat16),  # little to do
        ((1 << 16, 49), (49, 1024), bfloat16),  # much would be added
        ((1 << 17, 16), (16, 4), bfloat16),
    ],
    ids=str,
)
def test_others_stay(first: Shape, second: Shape, dtype: DType) -> None:
    graph = product(first, second, dtype)
    assert str(GpuProducts().apply(graph)) == str(graph)
