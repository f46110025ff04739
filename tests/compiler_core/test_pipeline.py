"""Plain graphs through the pipeline, and parts of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.config import config
from compiler_core.errors import GraphError
from compiler_core.graph.extract import extract
from compiler_core.graph.ir import Placeholder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.pipeline import compile_graph

SGD = """
graph sgd(%p: f32[3] parameter 'p', %g: f32[3] input 'g', %lr: f32[] input 'lr') {
  %d: f32[3] = detach(%p)
  %e: f32[3] = expand(%lr) shape=(3,)
  %s: f32[3] = mul(%e, %g)
  %n: f32[3] = sub(%d, %s)
  %dead: f32[3] = exp(%n)
  return %n, %e
}
"""


@pytest.mark.parametrize("verify_steps", [False, True])
def test_a_plain_graph_with_destinations(verify_steps: bool) -> None:
    p, g, lr = np.ones(3, np.float32), np.full(3, 2.0, np.float32), np.array(0.5, np.float32)
    out = np.zeros(3, np.float32)
    with config.patch(verify=verify_steps):
        results = compile_graph(parse_graph(SGD), "aot_eager")([p, g, lr], [out, None])
    assert results[0] is out
    assert out.tolist() == [0.0, 0.0, 0.0]
    assert results[1].tolist() == [0.5, 0.5, 0.5]


def test_extract_takes_what_is_needed_and_keeps_names() -> None:
    graph = parse_graph(SGD)
    nodes = {node.name: node for node in graph.nodes}
    product = Placeholder("s", nodes["s"].meta, "saved", "s")
    part = verify(extract(graph, "part", [nodes["n"]], [nodes["p"]], replaced={nodes["s"]: product}))
    assert print_graph(part) == (
        "graph part(%s: f32[3] saved 's', %p: f32[3] parameter 'p') {\n"
        "  %d: f32[3] = detach(%p)\n"
        "  %n: f32[3] = sub(%d, %s)\n"
        "  return %n\n"
        "}\n"
    )


def test_extract_drops_replacements_that_nothing_reads() -> None:
    graph = parse_graph(SGD)
    nodes = {node.name: node for node in graph.nodes}
    unread = Placeholder("n", nodes["n"].meta, "saved", "n")
    part = extract(graph, "part", [nodes["e"]], [nodes["lr"]], replaced={nodes["n"]: unread})
    assert [node.name for node in part.inputs] == ["lr"]


def test_extract_refuses_inputs_it_was_not_given() -> None:
    graph = parse_graph(SGD)
    nodes = {node.name: node for node in graph.nodes}
    with pytest.raises(GraphError, match="needs %lr of sgd"):
        extract(graph, "part", [nodes["n"]], [nodes["p"], nodes["g"]])


def test_extract_orders_by_outputs() -> None:
    graph = parse_graph("""
    graph g(%x: f32[2] input 'x') {
      %a: f32[2] = exp(%x)
      %b: f32[2] = sin(%x)
      %c: f32[2] = neg(%a)
      return %c, %b
    }
    """)
    c, b = graph.outputs
    part = verify(extract(graph, "part", [c, b], graph.inputs, order=[b, c]))
    assert [call.op.name for call in part.calls] == ["sin", "exp", "neg"]
    assert [node.name for node in part.outputs] == ["c", "b"]
