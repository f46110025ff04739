"""Many rows added to few places, as sums down the columns: the same numbers, and the same refusal."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.dtype import DType, bfloat16, float32, float64, int32, int64
from compiler_core.errors import IndexError_
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import FewPlaces
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace

Shape = tuple[int, ...]


def added(base: Shape, index: Shape, dtype: DType, kind: DType = int64) -> Graph:
    builder = GraphBuilder("g")
    x = builder.placeholder("x", TensorMeta(base, dtype))
    idx = builder.placeholder("idx", TensorMeta(index, kind))
    rows = builder.placeholder("rows", TensorMeta((*index, *base[1:]), dtype))
    with use_trace(builder):
        return builder.build([prims.index_add(x, idx, rows)])


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16], ids=str)
@pytest.mark.parametrize(
    ("base", "index"), [((2, 5), (4, 512)), ((8, 2, 3), (2048,)), ((1, 3), (3000,)), ((3,), (2500,))], ids=str
)
def test_sums_are_those_of_index_add(base: Shape, index: Shape, dtype: DType) -> None:
    graph = added(base, index, dtype, int32 if dtype is float64 else int64)
    made = FewPlaces().apply(graph)
    assert not any(call.op.name == "index_add" for call in made.calls)
    rng = np.random.default_rng(0)
    x, rows = (rng.integers(-3, 4, node.shape).astype(dtype.numpy) for node in (graph.inputs[0], graph.inputs[2]))
    idx = rng.integers(0, base[0], index).astype(graph.inputs[1].dtype.numpy)
    (found,), (wanted,) = interpret(made, [x, idx, rows]), interpret(graph, [x, idx, rows])
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)  # of whole numbers, which are exact


def test_an_index_out_of_range_is_refused() -> None:
    made = FewPlaces().apply(added((2, 4), (2048,), float32))
    idx = np.zeros(2048, np.int64)
    idx[77] = 2
    with pytest.raises(IndexError_):
        interpret(made, [np.zeros((2, 4), np.float32), idx, np.ones((2048, 4), np.float32)])


@pytest.mark.parametrize(("base", "index"), [((9, 5), (4096,)), ((2, 5), (100,)), ((2, 0), (4096,))], ids=str)
def test_others_stay(base: Shape, index: Shape) -> None:
    graph = added(base, index, float32)
    assert str(FewPlaces().apply(graph)) == str(graph)
