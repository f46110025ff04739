"""Graph text: what is printed parses to an equal graph; what does not parse is refused with its line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dtypes
from compiler_core.dtype import float32, int64
from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Constant, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS, use_trace

MLP = """\
graph mlp(%x: f32[2, 3] input 'args[0]', %w: f32[4, 3] parameter "self.l['a'].weight") {
  %permute: f32[3, 4] = permute(%w) dims=(1, 0)
  %matmul: f32[2, 4] = matmul(%x, %permute)
  %const: f32[2] = constant [1.5, -0.0]
  %full: f32[2, 4] = full() dtype=f32 shape=(2, 4) value=-inf
  %maximum: f32[2, 4] = maximum(%matmul, %full)
  %sum: f32[2] = sum(%maximum) dims=(1,)
  %add: f32[2] = add(%sum, %const)
  return %add, %x
}
"""


def test_text_round_trip_is_identity() -> None:
    assert print_graph(verify(parse_graph(MLP))) == MLP


def test_locations_survive_but_are_no_part_of_the_identity() -> None:
    builder = GraphBuilder("g")
    x = builder.placeholder("x", TensorMeta((2,), float32))
    y = builder.call(OPS["neg"], [x], {}, location="model with # in it.py:12")
    graph = builder.build([y])
    again = parse_graph(print_graph(graph, locations=True))
    assert again.calls[0].location == "model with # in it.py:12"
    assert "model" not in print_graph(again)
    assert print_graph(again) == print_graph(graph)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.short)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (2, 0), (5, 7)])
def test_constants_of_every_dtype_survive_bit_for_bit(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    raw = np.random.default_rng(0).integers(0, 256, int(np.prod(shape)) * dtype.itemsize, np.uint8)
    array = (raw & 1 if dtype.kind == "b" else raw).view(dtype.numpy).reshape(shape)
    builder = GraphBuilder("g")
    again = parse_graph(print_graph(builder.build([builder.constant(array)])))
    (node,) = again.constants
    assert node.array.dtype == dtype.numpy
    assert node.array.shape == shape
    assert node.array.tobytes() == array.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e-45, 0.1])
def test_special_floats_are_literals(value: float) -> None:
    builder = GraphBuilder("g")
    text = print_graph(builder.build([builder.constant(np.array([value], np.float32))]))
    assert "base64" not in text
    assert parse_graph(text).constants[0].array.tobytes() == np.array([value], np.float32).tobytes()


@pytest.mark.parametrize(
    "value", [1, -2, True, False, 0.5, float("inf"), "a 'quoted' \\ text", (), (1,), (1, (2.0, "x"))]
)
def test_attributes_survive_with_their_types(value: Any) -> None:
    builder = GraphBuilder("g")
    x = builder.placeholder("x", TensorMeta((1,), int64))
    node = Call("y", x.meta, op=OPS["neg"], args=(x,), attrs={"a": value, "d": dtypes.bfloat16}, location="")
    builder.body.append(node)
    attrs = parse_graph(print_graph(builder.build([node]))).calls[0].attrs
    assert attrs == {"a": value, "d": dtypes.bfloat16}
    assert repr(attrs["a"]) == repr(value)


def test_an_attribute_of_another_kind_is_refused() -> None:
    builder = GraphBuilder("g")
    node = Call("y", TensorMeta((), float32), op=OPS["full"], args=(), attrs={"a": [1]}, location="")
    builder.body.append(node)
    with pytest.raises(GraphError, match="cannot hold a list"):
        print_graph(builder.build([node]))


def test_long_constants_can_be_elided_for_people() -> None:
    builder = GraphBuilder("g")
    graph = builder.build([builder.constant(np.arange(100.0))])
    assert "<100 elements>" in print_graph(graph, elide=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("graph g(", "line 1"),
        ("graph g() {\n  %y: f32[2] = neg(%x)\n  return\n}", "line 2"),
        ("graph g(%x: f32[2] input '') {\n  %x: f32[2] = neg(%x)\n  return\n}", "%x is taken"),
        ("graph g(%x: f32[2] input '') {\n  %y: f32[2] = nega(%x)\n  return\n}", "the name of an op"),
        ("graph g(%x: f31[2] input '') {\n  return\n}", "a dtype"),
        ("graph g(%x: f32[2] input '') {\n  return %x\n} rest", "end of text"),
        ("graph g(%x: f32[2] input '') {\n  ?\n}", "'  ?'"),
    ],
)
def test_what_does_not_parse_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(GraphError) as error:
        parse_graph(text)
    assert complaint in str(error.value)


def test_tracing_the_same_twice_prints_the_same() -> None:
    def trace() -> str:
        builder = GraphBuilder("g")
        x = builder.placeholder("x", TensorMeta((2, 2), float32))
        with use_trace(builder):
            y = prims.add(prims.mul(x, x), prims.mul(x, np.ones((2, 2), np.float32)))
            return str(builder.build([prims.neg(y)]))

    assert trace() == trace()
    assert "%mul_1" in trace()


@pytest.mark.parametrize(
    ("stem", "name"),
    [("x", "x"), ("0.weight", "v0_weight"), ("", "v"), ("größe", "gr__e"), ("a b", "a_b"), ("l1.w", "l1_w")],
)
def test_names_are_ascii_identifiers(stem: str, name: str) -> None:
    builder = GraphBuilder("g")
    assert builder.unique_name(stem) == name
    assert builder.unique_name(stem) == f"{name}_1"


def test_equal_constants_share_a_node() -> None:
    builder = GraphBuilder("g")
    a, b = builder.constant(np.ones(3)), builder.constant(np.ones(3))
    assert isinstance(a, Constant)
    assert a is b
    assert builder.constant(np.ones(3, np.float32)) is not a


def test_the_device_is_printed_and_parsed_where_it_is_not_the_cpu() -> None:
    text = MLP.replace(") {", ") on cuda:1 {", 1)
    graph = parse_graph(text)
    assert (graph.device, parse_graph(MLP).device) == ("cuda:1", "cpu")
    assert print_graph(graph) == text
    assert parse_graph(text.replace("cuda:1", "cuda")).device == "cuda"
    with pytest.raises(GraphError):
        parse_graph(text.replace("cuda:1", "cuda:"))


def test_passes_keep_the_device() -> None:
    from compiler_core.aot.joint import make_joint
    from compiler_core.aot.partition import partition
    from compiler_core.graph.extract import extract
    from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes

    graph = parse_graph(MLP.replace(") {", ") on cuda:1 {", 1))
    joint = make_joint(graph, [True, True])
    parts = partition(joint)
    made = [
        joint.graph,
        run_passes(joint.graph, SIMPLIFY_JOINT),
        extract(graph, "part", graph.outputs[:1], graph.inputs),
        parts.forward,
        parts.backward,
    ]
    assert [g.device for g in made] == ["cuda:1"] * len(made)
