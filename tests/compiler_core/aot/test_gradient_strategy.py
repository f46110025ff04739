"""A strategy that cuts the backward: what the session is asked, in which order, and where gradients end up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from compiler_core.aot.strategy import HANDLED, Gradient, ParameterInfo, Segment
from compiler_core.capture import compile
from compiler_core.dtype import float32
from compiler_core.errors import GraphError
from compiler_core.graph.extract import extract
from compiler_core.graph.ir import Call, Graph, Placeholder
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, Array
from compiler_core.steps import compile_times
from compiler_core.tensor.making.random import manual_seed
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile import nn


def cut_after_each_gradient(backward: Graph, scaled: bool) -> list[Segment]:
    """One segment a gradient, in the order in which they are complete; each hands on all that later ones read."""
    place = {node: i for i, node in enumerate(backward.nodes)}
    order = sorted(range(len(backward.outputs)), key=lambda i: place[backward.outputs[i]])
    segments: list[Segment] = []
    done: dict[Any, Placeholder] = {}
    for number, index in enumerate(order):
        output = backward.outputs[index]
        graph = extract(backward, f"{backward.name}_{number}", [output], backward.inputs, replaced=done)
        used = {arg for call in graph.calls for arg in call.args} | set(graph.outputs)
        kept = [n for n in graph.nodes if not isinstance(n, Placeholder) or n in used]
        made = [n for n in graph.calls if n.op.name in ("matmul", "mul") and n.name != output.name]
        outputs = [*graph.outputs, *made]
        if scaled:
            kept, outputs = scale_first(kept, outputs)
        segments.append(Segment(Graph(graph.name, tuple(kept), tuple(outputs)), (index, *(None for _ in made))))
        verify(segments[-1].graph)
        by_name = {node.name: node for node in backward.nodes}
        done.update({by_name[n.name]: Placeholder(n.name, n.meta, "saved", n.name) for n in made})
    return segments


def scale_first(nodes: list[Any], outputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The first output times the session's scale."""
    scale = Placeholder("scale", TensorMeta((), float32), "scale")
    meta = outputs[0].meta
    copies = Call("scales", meta, op=OPS["expand"], args=(scale,), attrs={"shape": meta.shape}, location="")
    result = Call("scaled", meta, op=OPS["mul"], args=(outputs[0], copies), attrs={}, location="")
    return [scale, *nodes, copies, result], [result, *outputs[1:]]


@dataclass
class Recorder:
    """Strategy, plan and session in one: writes gradients into slots of one flat array, and keeps a diary."""

    scaled: bool = False
    handled: bool = False
    diary: list[tuple[Any, ...]] = field(default_factory=list)
    segments: Sequence[Segment] = ()
    forwards: int = 0
    is_stale: bool = False
    parameters_may_wait: bool = False

    def plan(self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> Recorder:
        self.parameters, self.is_stale = parameters, False
        self.segments = self.segments_of(backward, parameters, announces)
        self.metas = [node.meta for node in backward.outputs]
        self.offsets = np.cumsum([0, *(meta.numel for meta in self.metas)])
        return self

    def segments_of(self, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> tuple[Segment, ...]:
        return tuple(cut_after_each_gradient(backward, self.scaled))

    def on_forward(self) -> object:
        self.forwards += 1
        return self.forwards

    def begin(self, ticket: object, missing: Set[int]) -> Recorder:
        self.diary.append(("begin", ticket))
        self.flat = np.full(self.offsets[-1], np.nan, np.float32)
        return self

    def destination(self, output_index: int) -> Array | None:
        start, stop = self.offsets[output_index : output_index + 2]
        return self.flat[start:stop].reshape(self.metas[output_index].shape)

    def scale(self) -> float:
        return 0.25

    def segment_done(self, segment: int, gradients: Mapping[int, Array]) -> None:
        for gradient in gradients.values():
            assert np.shares_memory(gradient, self.flat)
            assert np.isfinite(gradient).all()
        self.diary.append(("done", segment, tuple(gradients)))

    def finish(self) -> Mapping[int, Gradient]:
        self.diary.append(("finish",))
        if not self.handled:
            return {}
        for info in self.parameters:
            if info.output_index is not None:
                info.tensor.grad = Tensor._wrap(self.destination(info.output_index))
        return dict.fromkeys((i.output_index for i in self.parameters if i.output_index is not None), HANDLED)


class Owner(nn.Module):
    """A module that announces a strategy, as DDP does."""

    def __init__(self, strategy: Recorder) -> None:
        super().__init__()
        manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1))
        self.spare = nn.Linear(2, 2)
        object.__setattr__(self, "strategy", strategy)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def __gradient_strategy__(self) -> Recorder:
        return self.strategy


def gradients(module: nn.Module) -> dict[str, Any]:
    return {n: None if p.grad is None else p.grad.numpy().copy() for n, p in module.named_parameters()}


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_segments_make_the_same_gradients(scaled: bool, handled: bool) -> None:
    strategy = Recorder(scaled=scaled, handled=handled)
    owner = Owner(strategy)
    x = randn(5, 3)
    owner.net(x).sum().backward()
    wanted = gradients(owner)
    owner.zero_grad()
    compile(owner, backend="aot_eager", fullgraph=True)(x).sum().backward()
    got = gradients(owner)
    for name, value in wanted.items():
        if value is None:
            assert got[name] is None
        else:
            np.testing.assert_allclose(got[name], value * (0.25 if scaled else 1.0), rtol=1e-5, atol=1e-7)
    assert len(strategy.segments) == 6


def test_the_session_is_asked_in_order() -> None:
    strategy = Recorder()
    compiled = compile(Owner(strategy), backend="aot_eager", fullgraph=True)
    x = randn(5, 3)
    first, second = compiled(x), compiled(x)
    second.sum().backward()
    first.sum().backward()
    tickets = [entry[1] for entry in strategy.diary if entry[0] == "begin"]
    assert tickets == [2, 1]
    steps = [entry[:2] for entry in strategy.diary[:8]]
    assert steps == [("begin", 2), *(("done", k) for k in range(6)), ("finish",)]


def test_parameters_are_told_with_their_gradients() -> None:
    strategy = Recorder()
    owner = Owner(strategy)
    owner.net[0].bias.requires_grad_(False)
    compile(owner, backend="aot_eager", fullgraph=True)(randn(5, 3))
    told = {info.name: info.output_index for info in strategy.parameters}
    assert list(told) == [name for name, _ in owner.named_parameters()]
    without = {name for name, index in told.items() if index is None}
    assert without == {"net.0.bias", "spare.weight", "spare.bias"}
    assert sorted(index for index in told.values() if index is not None) == list(range(5))


def test_plans_that_lose_a_gradient_are_refused() -> None:
    class Forgetful(Recorder):
        def plan(
            self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
        ) -> Recorder:
            super().plan(forward, backward, parameters, announces)
            self.segments = self.segments[:-1]
            return self

    with pytest.raises(GraphError, match="do not make each gradient once"):
        compile(Owner(Forgetful()), backend="aot_eager", fullgraph=True)(randn(5, 3))


def test_segments_that_read_what_nothing_makes_are_refused() -> None:
    class Reversed(Recorder):
        def plan(
            self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
        ) -> Recorder:
            super().plan(forward, backward, parameters, announces)
            self.segments = self.segments[::-1]
            return self

    with pytest.raises(GraphError, match="which nothing before it makes"):
        compile(Owner(Reversed()), backend="aot_eager", fullgraph=True)(randn(5, 3))


@pytest.mark.usefixtures("no_compile_times")
def test_a_plan_that_is_stale_is_made_again_without_the_forward() -> None:
    strategy = Recorder()
    owner = Owner(strategy)
    compiled = compile(owner, backend="codegen", fullgraph=True)
    x = randn(5, 3)
    compiled(x).sum().backward()
    wanted, first = gradients(owner), strategy.segments
    captures = len([t for t in compile_times() if t.step == "capture"])
    out = compiled(x)
    strategy.is_stale = True
    owner.zero_grad()
    out.sum().backward()
    assert strategy.segments is not first
    assert len([t for t in compile_times() if t.step == "capture"]) == captures
    for name, value in gradients(owner).items():
        if value is not None:
            np.testing.assert_array_equal(value, wanted[name])


def test_a_plan_that_comes_back_is_not_compiled_again() -> None:
    class Wish:
        now = "a"

    wish, made = Wish(), []

    class Planned(Recorder):
        """One plan for each wish."""

        made_for = ""

        def plan(
            self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
        ) -> Recorder:
            plan = Planned()
            plan.made_for = wish.now
            made.append(wish.now)
            return Recorder.plan(plan, forward, backward, parameters, announces)

        @property
        def is_stale(self) -> bool:
            return wish.now != self.made_for

        @is_stale.setter
        def is_stale(self, value: bool) -> None:
            pass

    owner = Owner(Planned())
    compiled = compile(owner, backend="aot_eager", fullgraph=True)
    x = randn(5, 3)
    for wished in "aabbabcab":
        wish.now = wished
        owner.zero_grad()
        compiled(x).sum().backward()
    assert made == ["a", "b", "c"]


class TwoHeads(nn.Module):
    """A shared layer and two heads, one of them piecewise constant."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.body(x)
        return self.left(y), self.right(y).round(), y.detach()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("used", [0, 1])
def test_parameters_of_an_output_that_the_loss_does_not_use_have_no_gradient(backend: str, used: int) -> None:
    manual_seed(0)
    module, x = TwoHeads(), randn(5, 3)
    module(x)[used].sum().backward()
    wanted = gradients(module)
    module.zero_grad()
    compile(module, backend=backend, fullgraph=True)(x)[used].sum().backward()
    got = gradients(module)
    unused = "right" if used == 0 else "left"
    assert got[f"{unused}.weight"] is None
    assert {name: value is None for name, value in got.items()} == {name: v is None for name, v in wanted.items()}
    for name, value in wanted.items():
        if value is not None:
            np.testing.assert_allclose(got[name], value, rtol=1e-5)
