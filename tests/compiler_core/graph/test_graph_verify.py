"""The verifier finds each kind of broken graph, and says at which node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler_core.dtype import float32, float64
from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Constant, Graph, GraphBuilder, Placeholder
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS

F32 = TensorMeta((2,), float32)
X = Placeholder("x", F32)
Y = Call("y", F32, op=OPS["neg"], args=(X,), attrs={}, location="model.py:3")


def test_a_valid_graph_is_returned() -> None:
    graph = Graph("g", (X, Y), (Y,))
    assert verify(graph) is graph


@pytest.mark.parametrize(
    ("graph", "complaint"),
    [
        (Graph("g", (X, replace(Y, name="x")), ()), "its name is taken"),
        (Graph("g", (X, replace(Y, name="a b")), ()), "is not a word"),
        (Graph("g", (Y, X), (Y,)), "operand %x is not defined before it"),
        (Graph("g", (X, Y), (replace(Y, name="z"),)), "is not a node of this graph"),
        (Graph("g", (X, replace(Y, meta=TensorMeta((3,), float32))), ()), "neg.infer says f32[2]"),
        (Graph("g", (X, replace(Y, op=OPS["add"], args=(X, Placeholder("x", F32)))), ()), "not defined before it"),
        (Graph("g", (X, replace(Y, op=OPS["reshape"], attrs={"shape": (3,)})), ()), "reshape does not take"),
        (Graph("g", (replace(X, role="spare"),), ()), "role 'spare'"),
        (Graph("g", (X, Y, replace(X, name="late")), ()), "stands after a constant or a call"),
        (Graph("g", (Constant("c", TensorMeta((2,), float64), array=np.ones(3)),), ()), "its array is f64[3]"),
    ],
)
def test_what_is_broken_is_named(graph: Graph, complaint: str) -> None:
    with pytest.raises(GraphError) as error:
        verify(graph)
    assert complaint in str(error.value)


def test_the_users_line_is_part_of_the_error() -> None:
    with pytest.raises(GraphError) as error:
        verify(Graph("g", (X, replace(Y, meta=TensorMeta((3,), float32))), ()))
    assert error.value.where == "model.py:3"


def test_dead_nodes_are_valid() -> None:
    builder = GraphBuilder("g")
    x = builder.placeholder("x", F32)
    builder.call(OPS["neg"], [x], {})
    assert verify(builder.build([x])).outputs == (x,)


def test_nodes_outside_of_a_trace_are_refused() -> None:
    with pytest.raises(GraphError, match="nothing records"):
        prims.neg(X)
