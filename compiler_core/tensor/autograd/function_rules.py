"""Calls of an `autograd.Function` under a trace: its results, with the user's backward as a rule of the graph.

In: a `FunctionCall` whose forward was traced. Out: traced results. What backward computes is traced at once, on
placeholders for its gradients and for the tensors in the context, and becomes a graph (`GraphRule`), which is inlined
wherever the call is differentiated. A backward that could do more than compute (function_purity.py), or that cannot be
traced, runs in Python at every backward, with real values (`PythonRule` behind `aot.boundary.opaque_backward`).
Invariant: a rule holds no tensor: those in the context are operands of the call, and are put into a copy of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.aot.boundary import opaque_backward
from compiler_core.breaking import Otherwise
from compiler_core.errors import GraphBreak
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.graph.over_batch import over_batch
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.primitives.custom_gradient import Rule
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.registry import Value, current_trace, meta_of, use_trace
from compiler_core.tensor.autograd.function_calls import FunctionCall, FunctionContext, fresh, is_changed, pull
from compiler_core.tensor.autograd.function_purity import only_computes
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.autograd.tape import TRACED
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.writing import write_node
from compiler_core.tensor.tensor import Tensor


def record_in_graph(call: FunctionCall) -> list[Any]:
    """The results of a call, under a trace."""
    template, held = _without_tensors(call.ctx)
    sources = [a for a, need in zip(call.args, call.needs) if need]
    values = [call.outputs[k] for k in call.differentiable]
    rule = _rule(call, template, held) if values else None
    if rule is not None:
        others = [t._read() for t in (*sources, *held)]
        nodes = [
            prims.custom_gradient(v._read(), *others, rule=rule, slot=k, sources=len(sources))
            for k, v in enumerate(values)
        ]
    else:
        python = PythonRule(call, template, tuple(t.requires_grad for t in held))
        passed = opaque_backward(tuple(v.detach() for v in values), tuple(sources), python, tuple(held))
        nodes = [t._read() for t in passed]
    made = dict(zip(call.differentiable, nodes))
    return [_result(call, k, made.get(k)) for k in range(len(call.outputs))]


def _result(call: FunctionCall, place: int, node: Value | None) -> Any:
    """Output `place`. node: its value with its history, None if it has none."""
    output = call.outputs[place]
    is_dirty = id(output) in call.dirty
    if node is None:
        return output if is_dirty else fresh(output)
    if is_dirty:
        write_node(output, node)
        return output
    return Tensor._from_cell(Cell(node), TRACED)


# ---- backward as a graph


class GraphRule(Rule):
    """A backward that was traced.

    graph: from a cotangent for each differentiable output, then the tensors of the context, to the gradients of those
    sources that have one (`given`). mapped: the rule of batches, by their size.
    """

    graph: Graph
    given: tuple[bool, ...]
    cotangents: int
    mapped: dict[int, GraphRule]
    joint = True

    @staticmethod
    def of(name: str, graph: Graph, given: Sequence[bool], cotangents: int) -> GraphRule:
        """A rule of that name."""
        rule = GraphRule(name)
        rule.graph, rule.given, rule.cotangents, rule.mapped = graph, tuple(given), cotangents, {}
        return rule

    def over_batch(self, size: int) -> GraphRule:
        if size not in self.mapped:
            graph = over_batch(self.graph, size, [True] * len(self.graph.inputs))
            self.mapped[size] = GraphRule.of(f"{self}_of_{size}", graph, self.given, self.cotangents)
        return self.mapped[size]

    def pull(self, cotangents: Sequence[Value | None], others: Sequence[Value], sources: int) -> Sequence[Value | None]:
        given = [*cotangents, *(None,) * (self.cotangents - len(cotangents))]
        inputs = [
            prims.full(node.shape, 0, node.dtype) if value is None else value
            for value, node in zip(given, self.graph.inputs)
        ]
        found = iter(interpret(self.graph, [*inputs, *others[sources:]]))
        return [next(found) if there else None for there in self.given]


class RuleTrace(GraphBuilder):
    """Records a backward by itself: it may read nothing but its gradients and what the context holds."""

    def read_cell(self, cell: Cell, handle: object) -> Value:
        """Nothing from outside."""
        raise _untraceable("reads a tensor that its context does not hold")

    def write_cell(self, cell: Cell, node: Value) -> None:
        """Nor this."""
        raise _untraceable("writes to a tensor from outside")

    def note_copy(self, node: Value) -> None:
        """Nothing from outside is read, so none is copied."""

    def next_rng(self) -> tuple[Value, int]:
        """Nor this."""
        raise _untraceable("draws random numbers")

    def draws_outside(self) -> bool:
        """`next_rng` is asked, and refuses."""
        return False

    def outside_draw(self, draw: Draw) -> Value:
        """Nor this."""
        raise _untraceable("draws random numbers")


def _untraceable(what: str) -> GraphBreak:
    return GraphBreak(f"a backward {what}", where=user_location())


def _rule(call: FunctionCall, template: FunctionContext, held: Sequence[Tensor]) -> GraphRule | None:
    """The backward as a rule; None if it has to run in Python. Traced again if what ended it does otherwise then."""
    breaks = GraphBreak.made()
    while True:
        before = Otherwise.count
        found = _traced(call, template, held)
        GraphBreak.forget(breaks)
        if found is not None or Otherwise.count == before:
            return found


def _traced(call: FunctionCall, template: FunctionContext, held: Sequence[Tensor]) -> GraphRule | None:
    """The backward as a rule; None if it cannot be traced as it is."""
    is_told_none = not call.ctx._materialize and len(call.outputs) > 1
    if is_told_none or not only_computes(getattr(call.function, "__rule__", call.function.backward), call.ctx):
        return None
    builder = RuleTrace(call.name)
    breaks = GraphBreak.made()
    with use_trace(builder), no_grad():
        cotangents = {k: builder.placeholder("g", meta_of(call.outputs[k])) for k in call.differentiable}
        tensors = [Tensor._wrap(builder.placeholder("held", meta_of(t))) for t in held]
        given = [None if k not in cotangents else Tensor._wrap(cotangents[k]) for k in range(len(call.outputs))]
        try:
            grads = pull(call.function, _with_tensors(template, tensors), given, call.metas, call.wanted)
        except Exception:  # noqa: BLE001 (the user's code: what it raises, it raises in every backward)
            return None
        found = [g for g, need in zip(grads, call.needs) if need]
        nodes = [_node(builder, g) for g in found if g is not None]
    graph = builder.build(nodes)
    if GraphBreak.made() != breaks or not _is_closed(graph):
        return None
    trace: Any = current_trace()
    name = trace.unique_name(call.name)
    return GraphRule.of(name, graph, [g is not None for g in found], len(cotangents))


def _node(builder: GraphBuilder, gradient: Tensor) -> Node:
    value = gradient._read()
    return value if isinstance(value, Node) else builder.constant(value)


def _is_closed(graph: Graph) -> bool:
    """Whether it reads no node of another trace, which a closure may have brought in."""
    mine = set(graph.nodes)
    return all(node in mine for node in (*graph.outputs, *(arg for call in graph.calls for arg in call.args)))


# ---- backward in Python


class PythonRule:
    """A backward that runs as it is. Takes the tensors of the context, then a gradient (or None) for each output.

    requiring: which tensors of the context required a gradient: a backward that runs forward again (checkpoints) asks.
    """

    def __init__(self, call: FunctionCall, template: FunctionContext, requiring: tuple[bool, ...]) -> None:
        self.function, self.template, self.requiring = call.function, template, requiring
        self.metas, self.wanted, self.needs = call.metas, call.wanted, call.needs
        self.differentiable = call.differentiable

    def __call__(self, held: Sequence[Tensor], *cotangents: Tensor | None) -> list[Tensor | None]:
        grads: list[Tensor | None] = [None] * len(self.metas)
        for place, cotangent in zip(self.differentiable, cotangents):
            grads[place] = cotangent
        ctx = _with_tensors(self.template, [_requiring(t) if need else t for t, need in zip(held, self.requiring)])
        given = pull(self.function, ctx, grads, self.metas, self.wanted)
        return [grad for grad, need in zip(given, self.needs) if need]


def _requiring(tensor: Tensor) -> Tensor:
    """`tensor`, or a leaf of its value, that requires a gradient."""
    return tensor if tensor.requires_grad else tensor.detach()._require()


# ---- contexts without their tensors


class Held:
    """Stands for tensor `place` of a context."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def _without_tensors(ctx: FunctionContext) -> tuple[FunctionContext, list[Tensor]]:
    """A copy of the context with `Held` for each tensor, and these."""
    places: dict[int, int] = {}
    held: list[Tensor] = []

    def replace(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in places:
            places[id(value)] = len(held)
            held.append(value)
        return Held(places[id(value)])

    template = copy.copy(ctx)
    saved = [(t, 0 if t is None or not is_changed(t, version) else -1) for t, version in ctx._saved]  # -1: was changed
    template.__dict__.update(_mapped({**vars(ctx), "_saved": saved, "_dirty": (), "_no_grad": set()}, replace))
    return template, held


def _with_tensors(template: FunctionContext, held: Sequence[Tensor]) -> FunctionContext:
    """A copy of the template with these tensors in their places."""
    ctx = copy.copy(template)
    ctx.__dict__.update(_mapped(vars(template), lambda value: held[value.place] if isinstance(value, Held) else value))
    ctx._saved = [(t, -1 if t is None or version else t._cell.version) for t, version in ctx._saved]
    return ctx


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with the function applied to what plain lists, tuples and dicts in it hold."""
    if type(value) is dict:
        return {key: _mapped(item, function) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_mapped(item, function) for item in value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, function) for item in value)
    return function(value)
