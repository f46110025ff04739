"""Graphs that hold backwards: made anew and taken apart, they give what they gave as they were captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import pipeline
from compiler_core.aot.partition import partition
from compiler_core.aot.within import Within, backwards_marked, backwards_within
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.minify import example_inputs
from compiler_core.graph.passes import SIMPLIFY, run_passes
from compiler_core.graph.verify import verify
from compiler_core.ops.registry import Array
from distcompile import nn


def captured(monkeypatch: pytest.MonkeyPatch, step: Callable[..., Any], *given: dc.Tensor) -> Graph:
    """The graph of one call, which must not break."""
    seen = []

    def keep(request: pipeline.CompileRequest) -> Within | None:
        seen.append(request.graph)
        return within(request)

    within = pipeline._within
    monkeypatch.setattr(pipeline, "_within", keep)
    dc.compile(step, fullgraph=True, backend="aot_eager")(*given)
    (graph,) = seen
    return graph


def simplified(graph: Graph) -> Graph:
    return run_passes(graph, SIMPLIFY)


def made_anew(graph: Graph) -> Within:
    found = backwards_within(graph, simplified)
    assert found is not None
    verify(found.graph)
    verify(found.whole())
    return found


def same(got: Sequence[Array], want: Sequence[Array]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def halves(within: Within, inputs: Sequence[Array]) -> list[Array]:
    """What the forward gives, and what then the rest does, as the outputs of the step."""
    joint, places = within.joint()
    parts = partition(joint)
    first = interpret(parts.forward, inputs)
    values = dict(zip([node.name for node in within.graph.inputs], inputs))
    values |= {parts.forward.outputs[i].name: first[i] for i in parts.saved}
    tangents = [node.name for node in within.graph.inputs if node.role == "tangent"]
    values |= {name: first[place] for name, place in zip(tangents, places[within.outputs :], strict=True)}
    second = interpret(parts.backward, [values[node.name] for node in parts.backward.inputs])
    both = [*first[: joint.outputs], *second]
    return [both[place] for place in places[: within.outputs]]


def attention(x: dc.Tensor, w: dc.Tensor) -> dc.Tensor:
    """Written out: x f32[B, H, T, C], w f32[C, C]."""
    q = x @ w
    scores = (q @ x.transpose(-2, -1)) * 0.25
    return scores.softmax(-1) @ x


def descend(loss: Callable[..., dc.Tensor], *parameters: dc.Tensor) -> Callable[..., dc.Tensor]:
    optimizer = dc.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def step(*given: dc.Tensor) -> dc.Tensor:
        optimizer.zero_grad()
        value = loss(*given)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def parameter(*shape: int) -> dc.Tensor:
    dc.manual_seed(len(shape))
    return nn.Parameter(dc.randn(*shape))


def test_attention_that_is_written_out_is_one_op(monkeypatch: pytest.MonkeyPatch) -> None:
    w = parameter(16, 16)
    graph = captured(monkeypatch, descend(lambda x: attention(x, w).square().mean(), w), dc.randn(2, 2, 8, 16))
    assert backwards_marked(graph)
    within = made_anew(graph)
    assert {"attention", "attention_backward"} <= {call.op.name for call in within.graph.calls}
    assert "attention" not in {call.op.name for call in simplified(graph).calls}
    inputs = example_inputs(graph, 0)
    same(interpret(within.whole(), inputs), interpret(graph, inputs))
    same(halves(within, inputs), interpret(graph, inputs))


def test_two_roots_and_what_is_read_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    w, v = parameter(4, 4), parameter(4)

    def step(x: dc.Tensor) -> tuple[dc.Tensor, ...]:
        hidden = (x @ w).tanh()
        first, second = (hidden * v).sum(), hidden.square().mean()
        dc.autograd.backward([first, second], [dc.tensor(0.5), first.detach()])
        grad = w.grad
        w.grad = None
        assert grad is not None
        with dc.no_grad():
            w.sub_(grad * hidden.detach().mean())
        return first.detach(), grad, hidden.detach() + 1

    graph = captured(monkeypatch, step, dc.randn(3, 4))
    inputs = example_inputs(graph, 1)
    within = made_anew(graph)
    same(interpret(within.whole(), inputs), interpret(graph, inputs))
    same(halves(within, inputs), interpret(graph, inputs))


def test_backwards_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which the second goes through what the first has changed."""
    w, v = parameter(16, 16), parameter(16, 16)

    def step(x: dc.Tensor) -> dc.Tensor:
        attention(x, w).square().mean().backward()
        with dc.no_grad():
            w.sub_(w.grad * 0.1)
        w.grad = None
        loss = attention(attention(x, w), v).square().mean()
        loss.backward()
        return loss.detach()

    graph = captured(monkeypatch, step, dc.randn(1, 2, 4, 16))
    within = made_anew(graph)
    assert sum(call.op.name == "attention_backward" for call in within.graph.calls) == 3
    inputs = example_inputs(graph, 2)
    same(interpret(within.whole(), inputs), interpret(graph, inputs))
    same(halves(within, inputs), interpret(graph, inputs))


def test_a_penalty_on_gradients_stays_as_it_was_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    w = parameter(3, 3)

    def step(x: dc.Tensor) -> dc.Tensor:
        out = (x @ w).tanh().sum()
        (slope,) = dc.autograd.grad(out, x, create_graph=True)
        loss = out + slope.square().sum()
        (found,) = dc.autograd.grad(loss, w)
        return found

    graph = captured(monkeypatch, step, dc.randn(2, 3, requires_grad=True))
    inputs = example_inputs(graph, 3)
    same(interpret(made_anew(graph).whole(), inputs), interpret(graph, inputs))


@pytest.mark.parametrize("budget", [1.0, 0.5])
def test_steps_in_turn_are_steps(budget: float) -> None:
    """Losses and parameters of a network, whole in one program and in two, and of eager code."""
    results = []
    for run in (lambda f: f, dc.compile(fullgraph=True, memory_budget=budget)):
        dc.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.BatchNorm1d(32), nn.Dropout(0.0), nn.Linear(32, 4))
        x = dc.randn(16, 8)
        step = run(descend(lambda x, net=net: net(x).square().mean(), *net.parameters()))
        losses = [step(x).item() for _ in range(5)]
        results.append([losses, *[value.detach().numpy() for value in net.state_dict().values()]])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
