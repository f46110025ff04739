"""Joint graphs: gradients against float64 differences and against the tape; shapes, order, locations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_core.aot.joint import Joint, make_joint
from compiler_core.dtype import float32
from compiler_core.errors import GraphError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import OPS, use_trace
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.tensor import Tensor

sys.path.append(str(Path(__file__).parents[1] / "graph"))
from random_small_graphs import random_graph, random_inputs


def joint_of(graph: Graph) -> Joint:
    joint = make_joint(graph, [node.dtype.is_floating_point for node in graph.inputs])
    verify(joint.graph)
    return joint


def run_joint(joint: Joint, inputs: list[np.ndarray], tangents: list[np.ndarray]) -> list[np.ndarray]:
    """The gradients."""
    return interpret(joint.graph, [*inputs, *tangents])[joint.outputs :]


def tangents_of(joint: Joint, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed + 1)
    return [rng.standard_normal(joint.graph.outputs[i].shape) for i in joint.tangents]


@pytest.mark.parametrize("seed", range(60))
def test_gradients_are_the_tapes(seed: int) -> None:
    graph = random_graph(seed)
    joint = joint_of(graph)
    inputs, tangents = random_inputs(graph, seed), tangents_of(joint, seed)
    tensors = [Tensor._wrap(array).requires_grad_() for array in inputs]
    outputs = interpret(graph, tensors)
    assert [i for i, t in enumerate(outputs) if t.requires_grad] == list(joint.tangents)
    if not joint.tangents:
        return
    roots = [outputs[i] for i in joint.tangents]
    taped = grad(roots, tensors, [Tensor._wrap(t) for t in tangents], allow_unused=True)
    assert [i for i, g in enumerate(taped) if g is not None] == list(joint.gradients)
    simplified = replace(joint, graph=run_passes(joint.graph, SIMPLIFY_JOINT))
    for variant in (joint, simplified):
        for got, i in zip(run_joint(variant, inputs, tangents), joint.gradients, strict=True):
            np.testing.assert_allclose(got, taped[i].numpy(), rtol=1e-8, atol=1e-9, err_msg=f"seed {seed}\n{graph}")


def is_smooth(seed: int) -> bool:
    """Whether the gradient of a random graph is the derivative of what it computes."""
    return not any(call.op.name in ("detach", "maximum") for call in random_graph(seed).calls)


@pytest.mark.parametrize("seed", [seed for seed in range(100) if is_smooth(seed)][:15])
def test_gradients_are_differences(seed: int) -> None:
    graph = random_graph(seed)
    joint = joint_of(graph)
    inputs, tangents = random_inputs(graph, seed), tangents_of(joint, seed)

    def loss(arrays: list[np.ndarray]) -> float:
        outputs = interpret(graph, arrays)
        return float(sum((outputs[i] * t).sum() for i, t in zip(joint.tangents, tangents)))

    rng = np.random.default_rng(seed)
    for gradient, i in zip(run_joint(joint, inputs, tangents), joint.gradients, strict=True):
        direction = rng.standard_normal(inputs[i].shape)
        ahead, behind = list(inputs), list(inputs)
        ahead[i], behind[i] = inputs[i] + 1e-6 * direction, inputs[i] - 1e-6 * direction
        slope = (loss(ahead) - loss(behind)) / 2e-6
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-6)


def test_gradients_have_their_inputs_shape_and_dtype() -> None:
    graph = parse_graph("""
    graph g(%w: bf16[3] parameter 'w', %x: f32[2, 3] input 'x') {
      %c: f32[3] = cast(%w) dtype=f32
      %e: f32[2, 3] = expand(%c) shape=(2, 3)
      %y: f32[2, 3] = mul(%e, %x)
      return %y
    }
    """)
    joint = joint_of(graph)
    assert [node.meta for node in joint.graph.outputs[1:]] == [node.meta for node in graph.inputs]


def test_inputs_without_a_path_get_no_gradient() -> None:
    graph = parse_graph("""
    graph g(%x: f32[2] input 'x', %unused: f32[2] parameter 'u', %cut: f32[2] parameter 'c', %i: i64[2] input 'i') {
      %d: f32[2] = detach(%cut)
      %m: f32[2] = mul(%x, %d)
      %s: f32[2] = sign(%m)
      return %m, %s, %i
    }
    """)
    joint = joint_of(graph)
    assert (joint.gradients, joint.tangents) == ((0,), (0, 1))
    assert joint.graph.outputs[-1].op.name == "mul"  # the zeros from sign are not added
    wanted = make_joint(graph, [False] * 4)
    assert (wanted.gradients, wanted.tangents) == ((), ())


@pytest.mark.parametrize("op", [prims.round, prims.sign, prims.floor, prims.ceil, prims.trunc])
def test_inputs_behind_a_piecewise_constant_op_get_zeros_as_from_the_tape(op: Callable[..., Any]) -> None:
    builder = GraphBuilder("flat")
    x = builder.placeholder("x", TensorMeta((3,), float32))
    with use_trace(builder):
        graph = builder.build([prims.exp(op(x))])
    joint = joint_of(graph)
    assert joint.gradients == (0,)
    np.testing.assert_array_equal(run_joint(joint, [np.ones(3, "f4")], [np.ones(3, "f4")])[0], np.zeros(3))
    handle = Tensor(np.ones(3, "f4")).requires_grad_()
    assert grad(op(handle).exp().sum(), [handle])[0].tolist() == [0.0, 0.0, 0.0]


def test_nothing_flows_through_detach() -> None:
    builder = GraphBuilder("detached")
    x = builder.placeholder("x", TensorMeta((3,), float32))
    with use_trace(builder):
        graph = builder.build([prims.exp(prims.detach(x))])
    assert joint_of(graph).gradients == ()


def test_results_alone_have_cotangents() -> None:
    graph = parse_graph("""
    graph g(%x: f32[2] input 'x') {
      %a: f32[2] = exp(%x)
      %b: f32[2] = neg(%x)
      return %a, %b
    }
    """)
    assert make_joint(graph, [True], results=1).tangents == (0,)


def test_backward_nodes_carry_the_forward_line() -> None:
    builder = GraphBuilder("g")
    x = builder.placeholder("x", TensorMeta((2,), float32))
    y = builder.call(OPS["tanh"], [x], {}, location="model.py:7")
    joint = make_joint(builder.build([y]), [True])
    assert {call.location for call in joint.graph.calls} == {"model.py:7"}


def test_a_wrong_vjp_is_found_out() -> None:
    wrong = replace(OPS["neg"], vjp=lambda g, out, x: (prims.sum(g, (0,)),))
    builder = GraphBuilder("g")
    x = builder.placeholder("x", TensorMeta((2,), float32))
    y = builder.call(wrong, [x], {}, location="model.py:9")
    with pytest.raises(GraphError, match=r"%x a cotangent that does not fit") as error:
        make_joint(builder.build([y]), [True])
    assert error.value.got == "f32[]"
