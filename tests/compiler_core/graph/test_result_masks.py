"""A relu's gradient asks its result, bit for bit: the mask of its operand is not kept beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import pipeline
from compiler_core.aot.joint import make_joint
from compiler_core.aot.partition import partition
from compiler_core.dtype import bool_
from compiler_core.graph.interpret import interpret
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.result_masks import ResultMasks
from distcompile import nn

FORMS = ("le", "lt")  # how the result is told; its gradient is 0 at the bound
ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 2.0], np.float32)

RELU = """graph f(%x: f32[8] input 'x', %w: f32[8] input 'w') {
  %full: f32[8] = full() dtype=f32 shape=(8,) value=BOUND
  %le: bool[8] = le(%x, %full)
  %where: f32[8] = where(%le, %full, %x)
  %mul: f32[8] = mul(%where, %w)
  return %mul
}"""


@pytest.mark.parametrize("bound", ["0.0", "-1.5"])
@pytest.mark.parametrize("form", FORMS)
def test_the_mask_is_the_results(form: str, bound: str) -> None:
    joint = make_joint(parse_graph(of_form(form).replace("BOUND", bound)), [True, True])
    before = SIMPLIFY_JOINT[: SIMPLIFY_JOINT.index(ResultMasks())]
    made = run_passes(joint.graph, (*before, ResultMasks(), Dce()))
    asked = [(call.op.name, call.args[0].name) for call in made.calls if call.op.name in FORMS]
    assert asked == [(form, "x"), ("le", "where" if form == "le" else "limited")]
    inputs = [ODD, ODD[::-1].copy(), np.ones(8, np.float32)]
    for got, want in zip(interpret(made, inputs), interpret(joint.graph, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def of_form(form: str) -> str:
    """As a relu is composed (`lt`), which keeps -0.0, or as a threshold."""
    if form == "le":
        return RELU
    limited = """%lt: bool[8] = lt(%x, %full)
  %detach: f32[8] = detach(%x)
  %limited: f32[8] = where(%lt, %full, %detach)
  %where: f32[8] = where(%le, %limited, %x)"""
    return RELU.replace("%where: f32[8] = where(%le, %full, %x)", limited)


@pytest.mark.parametrize("form", FORMS)
def test_no_mask_is_kept(form: str) -> None:
    joint = make_joint(parse_graph(of_form(form).replace("BOUND", "0.0")), [True, True])
    graph = run_passes(joint.graph, SIMPLIFY_JOINT)
    parts = partition(type(joint)(graph, joint.outputs, joint.tangents, joint.gradients, joint.reaches))
    assert all(parts.forward.outputs[i].dtype is not bool_ for i in parts.saved)


def test_another_where_has_its_mask() -> None:
    """where(x <= 0, 1, x) tells nothing of x."""
    text = RELU.replace("BOUND", "0.0").replace("where(%le, %full, %x)", "where(%le, %w, %x)")
    graph = parse_graph(text)
    assert ResultMasks().apply(graph) is graph


def test_a_network_has_eager_codes_gradients() -> None:
    dc.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Threshold(0.5, 0.5), nn.ReLU6(), nn.Linear(8, 2))
    x = dc.tensor(np.stack([ODD, np.zeros(8, np.float32), ODD[::-1].copy()])).nan_to_num(0.3, 2.0, -2.0)
    grads = []
    for call in (net, dc.compile(net)):
        for p in net.parameters():
            p.grad = None
        call(x).square().sum().backward()
        grads.append([p.grad.numpy().copy() for p in net.parameters() if p.grad is not None])
    for got, want in zip(grads[1], grads[0], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_networks_relu_keeps_its_result_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []

    def noted(*args: Any) -> Any:
        parts = partition(*args)
        kept.extend(parts.forward.outputs[i].dtype for i in parts.saved)
        return parts

    monkeypatch.setattr(pipeline, "partition", noted)
    net = dc.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))
    net(dc.ones(4, 8)).sum().backward()
    assert kept
    assert bool_ not in kept
