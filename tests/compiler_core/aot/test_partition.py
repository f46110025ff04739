"""Partition: forward then backward is the joint graph; what is saved; what is never computed twice; in which order."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler_core.aot.branch import is_total
from compiler_core.aot.joint import Joint, make_joint
from compiler_core.aot.min_cut import INFINITE
from compiler_core.aot.partition import Partition, partition
from compiler_core.aot.recompute import CostModel, No
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.ops.registry import OPS
from compiler_core.ops.rules import Composed, is_elementwise

sys.path.append(str(Path(__file__).parents[1] / "graph"))
from random_small_graphs import random_graph, random_inputs


def joint_of(graph: Graph) -> Joint:
    joint = make_joint(graph, [node.dtype.is_floating_point for node in graph.inputs])
    return replace(joint, graph=run_passes(joint.graph, SIMPLIFY_JOINT))


def run_parts(parts: Partition, inputs: list[np.ndarray], tangents: list[np.ndarray]) -> list[np.ndarray]:
    """Gradients through the two halves, values handed over by name, as the wrapper does by place."""
    outputs = interpret(parts.forward, inputs)
    values = {node.name: value for node, value in zip(parts.forward.inputs, inputs)}
    values.update({parts.forward.outputs[i].name: outputs[i] for i in parts.saved})
    given = iter(tangents)
    return interpret(
        parts.backward, [next(given) if n.role == "tangent" else values[n.name] for n in parts.backward.inputs]
    )


def products(graph: Graph) -> int:
    return sum(call.op.name == "matmul" for call in graph.calls)


@pytest.mark.parametrize("seed", range(60))
def test_the_halves_are_the_whole(seed: int) -> None:
    graph = random_graph(seed)
    joint = joint_of(graph)
    if not joint.gradients:
        return
    parts = partition(joint)
    verify(parts.forward)
    verify(parts.backward)
    inputs = random_inputs(graph, seed)
    rng = np.random.default_rng(seed + 1)
    tangents = [rng.standard_normal(graph.outputs[i].shape) for i in joint.tangents]
    whole = interpret(joint.graph, [*inputs, *tangents])
    for got, want in zip(interpret(parts.forward, inputs), whole[: joint.outputs]):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(run_parts(parts, inputs, tangents), whole[joint.outputs :], strict=True):
        np.testing.assert_array_equal(got, want)
    assert products(parts.forward) + products(parts.backward) == products(joint.graph)


MLP = """
graph mlp(%x: f32[8, 16] input 'x', %w1: f32[16, 32] parameter 'w1', %b1: f32[32] parameter 'b1', \
%w2: f32[32, 4] parameter 'w2') {
  %h: f32[8, 32] = matmul(%x, %w1)
  %e: f32[8, 32] = expand(%b1) shape=(8, 32)
  %a: f32[8, 32] = add(%h, %e)
  %t: f32[8, 32] = tanh(%a)
  %two: f32[8, 32] = full() dtype=f32 shape=(8, 32) value=2.0
  %s: f32[8, 32] = mul(%t, %two)
  %y: f32[8, 4] = matmul(%s, %w2)
  return %y
}
"""


def test_mlp(golden: Callable[[str, str], None]) -> None:
    parts = partition(joint_of(parse_graph(MLP)))
    golden(
        "aot/mlp_partition.txt", f"{print_graph(parts.forward)}\n{print_graph(parts.backward)}\n// {parts.describe()}\n"
    )


def saved_names(text: str) -> list[str]:
    parts = partition(joint_of(parse_graph(text)))
    return [f"{parts.forward.outputs[i].meta}" for i in parts.saved]


def test_a_mask_is_saved_as_bool() -> None:
    text = """
    graph g(%x: f32[64] input 'x', %k: u64[3] rng 'k') {
      %r: u32[64] = philox(%k) shape=(64,) stream=0
      %t: u32[64] = full() dtype=u32 shape=(64,) value=9
      %m: bool[64] = lt(%r, %t)
      %z: f32[64] = full() dtype=f32 shape=(64,) value=0.0
      %y: f32[64] = where(%m, %x, %z)
      return %y
    }
    """
    assert saved_names(text) == ["bool[64]"]


def test_cheap_values_are_computed_again_from_inputs() -> None:
    text = """
    graph g(%x: f32[64] input 'x') {
      %z: f32[64] = full() dtype=f32 shape=(64,) value=0.0
      %r: f32[64] = maximum(%x, %z)
      %y: f32[64] = mul(%r, %r)
      return %y
    }
    """
    assert saved_names(text) == []


def test_a_result_that_the_backward_reads_is_returned_once() -> None:
    graph = parse_graph("graph g(%x: f32[64] input 'x') {\n  %y: f32[64] = tanh(%x)\n  return %y\n}")
    parts = partition(joint_of(graph))
    assert parts.saved == (0,)
    assert len(parts.forward.outputs) == 1


def test_what_only_the_backward_needs_is_computed_there() -> None:
    graph = parse_graph("graph g(%x: f32[64] input 'x') {\n  %y: f32[64] = erf(%x)\n  return %y\n}")
    parts = partition(joint_of(graph))
    assert Counter(call.op.name for call in parts.forward.calls) == {"erf": 1}
    assert "exp" in {call.op.name for call in parts.backward.calls}


def test_a_saved_view_is_saved_as_what_it_shows() -> None:
    text = """
    graph g(%x: f32[8, 4] input 'x') {
      %t: f32[8, 4] = atan(%x)
      %p: f32[4, 8] = permute(%t) dims=(1, 0)
      %q: f32[4, 8] = mul(%p, %p)
      return %q
    }
    """
    assert saved_names(text) == ["f32[8, 4]"]


def test_a_residual_stream_is_saved_not_added_up_again() -> None:
    """Recomputing it would cost the whole depth of the network at each layer."""
    layers = 4
    lines, stream = [], "x"
    for i in range(layers):
        lines += [f"%a{i}: f32[64, 8] = tanh(%{stream})", f"%m{i}: f32[64, 8] = matmul(%a{i}, %w{i})"]
        lines += [f"%s{i}: f32[64, 8] = add(%{stream}, %m{i})"]
        stream = f"s{i}"
    weights = ", ".join(f"%w{i}: f32[8, 8] parameter 'w{i}'" for i in range(layers))
    body = "\n  ".join(lines)
    graph = parse_graph(f"graph g(%x: f32[64, 8] input 'x', {weights}) {{\n  {body}\n  return %{stream}\n}}")
    parts = partition(joint_of(graph))
    tangent = next(node for node in parts.backward.inputs if node.role == "tangent")
    depends = {tangent}
    for call in parts.backward.calls:
        if depends & set(call.args):
            depends.add(call)
    again = [call for call in parts.backward.calls if call not in depends and call.op.name == "add"]
    assert again == []


def test_gradients_are_complete_in_reverse_layer_order() -> None:
    parts = partition(joint_of(parse_graph(MLP)))
    place = {node.name: i for i, node in enumerate(parts.backward.nodes)}
    x, w1, b1, w2 = (place[node.name] for node in parts.backward.outputs)
    assert w2 < min(b1, w1)
    after_w2 = [n.op.name for n in parts.backward.calls if place[n.name] < w2]
    assert set(after_w2) <= {"matmul", "permute", "tanh", "mul", "full", "add", "expand"}
    assert x == max(x, w1, b1, w2) or w1 > b1


@pytest.mark.parametrize("tokens", [64, 4])
def test_a_tied_heads_product_does_not_wait_for_the_embeddings(tokens: int) -> None:
    """It is smaller than the logits' gradient, which would be held until then; one that is larger waits."""
    graph = parse_graph(
        f"""graph g(%x: f32[{tokens}, 32] input 'x', %e: f32[32, 4] parameter 'e', %w: f32[4, 4] parameter 'w') {{
  %v: f32[{tokens}, 4] = matmul(%x, %e)
  %h: f32[{tokens}, 4] = tanh(%v)
  %u: f32[{tokens}, 4] = matmul(%h, %w)
  %t: f32[4, 32] = permute(%e) dims=(1, 0)
  %y: f32[{tokens}, 32] = matmul(%u, %t)
  return %y
}}"""
    )
    parts = partition(joint_of(graph))
    (tangent,) = (node for node in parts.backward.inputs if node.role == "tangent")
    shown = {tangent, *(call for call in parts.backward.calls if call.args == (tangent,))}
    products = [call for call in parts.backward.calls if call.op.name == "matmul"]
    readers = [place for place, call in enumerate(products) if not shown.isdisjoint(call.args)]
    assert len(readers) == 2
    assert (readers == [0, 1]) == (tokens == 64)


def test_the_reasons_to_keep_are_told() -> None:
    graph = parse_graph(MLP)
    model = CostModel(graph, graph.outputs)
    reasons = {node.name: model.may_recompute(node) for node in graph.nodes}
    assert reasons["x"] == No("an input")
    assert reasons["h"] == No("matmul is not elementwise")
    assert all(reasons[name] for name in ("t", "s", "e", "two"))


def test_costs_weigh_bytes_against_work() -> None:
    graph = parse_graph(MLP)
    model = CostModel(graph, graph.outputs)
    nodes = {node.name: node for node in graph.nodes}
    numel = 8 * 32
    assert model.recompute_cost(nodes["t"]) == 10 * numel
    assert model.recompute_cost(nodes["s"]) == numel + 4 * numel  # written again, for the product
    assert model.recompute_cost(nodes["e"]) == 0
    assert model.recompute_cost(nodes["h"]) >= INFINITE
    assert model.keep_cost(nodes["s"]) < model.keep_cost(nodes["t"])
    assert model.keep_cost(nodes["y"]) < 2 * nodes["y"].meta.nbytes  # a result is held anyway


def test_a_gelu_keeps_its_product_and_neither_itself_nor_its_tanh() -> None:
    text = """
    graph g(%x: f32[64, 16] input 'x', %w: f32[16, 32] parameter 'w', %v: f32[32, 16] parameter 'v') {
      %h: f32[64, 32] = matmul(%x, %w)
      %c: f32[64, 32] = mul(%h, %h)
      %i: f32[64, 32] = mul(%c, %h)
      %t: f32[64, 32] = tanh(%i)
      %g: f32[64, 32] = mul(%h, %t)
      %y: f32[64, 16] = matmul(%g, %v)
      return %y
    }
    """
    parts = partition(joint_of(parse_graph(text)))
    assert [parts.forward.outputs[i].name for i in parts.saved] == ["matmul"]


def test_what_is_compared_with_its_maximum_is_not_computed_again() -> None:
    """exp's last bit depends on the loop that computes it: the place of the maximum would not be found."""
    text = """
    graph g(%x: f32[64, 16] input 'x') {
      %e: f32[64, 16] = exp(%x)
      %n: f32[64, 16] = neg(%e)
      %m: f32[64] = max(%n) dims=(1,)
      return %m
    }
    """
    graph = joint_of(parse_graph(text))
    parts = partition(graph)
    assert "exp" not in {call.op.name for call in parts.backward.calls}
    model = CostModel(graph.graph, graph.graph.outputs[:1])
    exp = next(call for call in graph.graph.calls if call.op.name == "exp")
    assert model.may_recompute(exp) == No("exp may differ in the last bit, and it is compared for equality")
    assert all(model.may_recompute(call) for call in graph.graph.calls if call.op.name == "neg")


CONVOLUTIONS = """
graph two(%x: f32[2, 4, 6, 6] input 'x', %w: f32[4, 4, 3, 3] parameter 'w', %v: f32[4, 4, 3, 3] parameter 'v')DEVICE {
  %a: f32[2, 4, 6, 6] = convolution(%x, %w) dilation=(1, 1) groups=1 high=(1, 1) low=(1, 1) stride=(1, 1)
  %s: f32[2, 4, 6, 6] = mul(%a, %a)
  %r: f32[2, 4, 6, 6] = add(%s, %a)
  %b: f32[2, 4, 6, 6] = convolution(%r, %v) dilation=(1, 1) groups=1 high=(1, 1) low=(1, 1) stride=(1, 1)
  return %b
}
"""


@pytest.mark.parametrize(("device", "again"), [("", 1), (" on cuda:0", 0)])
def test_a_gpu_keeps_what_a_convolution_reads(device: str, again: int) -> None:
    """Rather than write it again in the backward."""
    parts = partition(joint_of(parse_graph(CONVOLUTIONS.replace("DEVICE", device))))
    operands = {call.args[0].name for call in parts.backward.calls if call.op.name == "convolution_weight"}
    made = {call.name for call in parts.backward.calls}
    assert len(operands & made) == again


WINDOW = "dilation=(1, 1) groups=1 high=(1, 1) low=(1, 1) stride=(1, 1)"
EXCITED = f"""
graph excited(%x: bf16[2, 4, 6, 6] input 'x', %w: bf16[4, 4, 3, 3] parameter 'w', %u: f32[4, 4] parameter 'u',
              %v: bf16[4, 4, 3, 3] parameter 'v') on cuda:0 {{
  %a: bf16[2, 4, 6, 6] = convolution(%x, %w) {WINDOW}
  %f: f32[2, 4, 6, 6] = cast(%a) dtype=f32
  %g: f32[2, 4, 6, 6] = sigmoid(%f)
  %h: f32[2, 4, 6, 6] = mul(%f, %g)
  %s: bf16[2, 4, 6, 6] = cast(%h) dtype=bf16
  %t: f32[2, 4, 6, 6] = cast(%s) dtype=f32
  %m: f32[2, 4] = sum(%t) dims=(2, 3)
  %p: f32[2, 4] = matmul(%m, %u)
  %q: bf16[2, 4] = cast(%p) dtype=bf16
  %e: bf16[2, 4, 1, 1] = reshape(%q) shape=(2, 4, 1, 1)
  %k: bf16[2, 4, 6, 6] = expand(%e) shape=(2, 4, 6, 6)
  %y: bf16[2, 4, 6, 6] = mul(%k, %s)
  %b: bf16[2, 4, 6, 6] = convolution(%y, %v) {WINDOW}
  return %b
}}
"""


def test_a_gpu_keeps_no_silu_that_is_read_again_across_a_product() -> None:
    """What convolutions make and read is kept (squeeze and excitation), not the silu between them, which is scaled."""
    parts = partition(joint_of(parse_graph(EXCITED)))
    kept = [parts.forward.outputs[i] for i in parts.saved]
    assert sum(node.shape == (2, 4, 6, 6) for node in kept) == 2
    assert "sigmoid" in {call.op.name for call in parts.backward.calls}


HALF_GELU = """
graph g(%x: bf16[64, 16] input 'x', %w: bf16[16, 32] parameter 'w', %b: bf16[64, 32] parameter 'b',
        %v: bf16[32, 16] parameter 'v') on cuda:0 {
  %h: bf16[64, 32] = matmul(%x, %w)
  %a: bf16[64, 32] = add(%h, %b)
  %c: f32[64, 32] = cast(%a) dtype=f32
  %t: f32[64, 32] = ACTIVATION(%c)
  %g: bf16[64, 32] = cast(%t) dtype=bf16
  %y: bf16[64, 16] = matmul(%g, %v)
  return %y
}
"""


@pytest.mark.parametrize("activation", ["tanh", "gelu_tanh", "elu", "sinc"])
def test_what_is_composed_of_elementwise_calls_is_kept_as_they_are(activation: str) -> None:
    """As the product in bf16, twice smaller than the f32 that the function reads."""
    attrs = " alpha=1.0 inner=1.0 scale=1.0" if activation == "elu" else ""
    text = HALF_GELU.replace("ACTIVATION(%c)", f"{activation}(%c){attrs}")
    parts = partition(joint_of(parse_graph(text)))
    kept = [parts.forward.outputs[i] for i in parts.saved]
    assert all(node.dtype.name == "bfloat16" for node in kept), parts.describe()


def test_long_functions_are_dear_under_a_budget_and_not_computed_for_nothing() -> None:
    """lgamma is made of ops: to compute it again costs more than tanh, and a branch not taken does not."""
    text = "graph g(%x: f32[64, 16] input 'x') {\n  %t: f32[64, 16] = NAME(%x)\n  return %t\n}"
    again = {}
    for name in ("tanh", "asinh", "lgamma"):
        graph = parse_graph(text.replace("NAME", name))
        again[name] = CostModel(graph, graph.outputs, held=8).recompute_cost(graph.calls[0])
    assert again["tanh"] < again["asinh"] == again["lgamma"] < INFINITE
    assert not is_total(parse_graph(text.replace("NAME", "lgamma")).calls[0])
    assert is_total(parse_graph(text.replace("NAME", "gelu_tanh")).calls[0])


def test_a_composition_is_elementwise_only_if_it_says_so() -> None:
    assert is_elementwise(OPS["gelu_tanh"].lower)
    assert not is_elementwise(OPS["std"].lower)
    assert not is_elementwise(Composed(lambda x: x))
