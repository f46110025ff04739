"""Runs a captured graph on Tensors, op by op, for the tape: with its hooks and rules, and for a compiled call a second
time (`Replay`).

In: a captured graph, values of its inputs, the backward hooks of the call. Out: Tensors with a history on the tape.
A compiled backward gives the gradients of inputs, whole and once. Who asks for more of a call gets it from the tape: a
gradient that can be differentiated again (`create_graph=True`), and the gradient of an output that the call itself uses
(hooks, `retain_grad()`, `autograd.grad`), of which only a part is known outside. The call is computed again, then, from
the arrays that it was given, random bits included; nothing is compiled for it, so such a backward runs at eager speed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler_core.aot.boundary import (
    GRADIENT_BOUNDARY,
    OPAQUE_BACKWARD,
    Gradients,
    Hook,
    boundary_groups,
    gradient_boundary,
    opaque_backward,
    saved_of,
    sources_of,
)
from compiler_core.aot.custom_gradient import rule_groups
from compiler_core.aot.tensor_hooks import TensorHooks
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.ops.registry import Array, Value
from compiler_core.tensor.autograd.backward import attach_node
from compiler_core.tensor.autograd.boundaries import rule_on_tape
from compiler_core.tensor.autograd.grad_mode import enable_grad
from compiler_core.tensor.autograd.tape import Edge, FunctionNode, GradNode, HookHandle
from compiler_core.tensor.tensor import Tensor


class TapeGraph:
    """A captured graph, to be run on Tensors. has_hooks: the hooks of a call are there when it is run."""

    def __init__(self, graph: Graph, *, has_hooks: bool) -> None:
        self.graph, self.has_hooks = graph, has_hooks
        self.groups, self.rules = boundary_groups(graph.calls), rule_groups(graph.calls)

    def run(self, values: Sequence[Value], hooks: Sequence[Hook]) -> list[Value]:
        """The outputs. hooks: of this call, by number; they may come later."""
        with enable_grad():  # the graph says itself what is detached
            return interpret(self.graph, values, override=partial(self._crossing, hooks))

    def _crossing(self, hooks: Sequence[Hook], call: Call, values: Mapping[Node, Value]) -> Mapping[Node, Value] | None:
        """Puts the hooks of one call on the tape, for all tensors of a boundary at once; and rules."""
        if call in self.rules:
            return rule_on_tape(self.rules[call], values)
        if call not in self.groups:
            return None
        hook = hooks[call.attrs["boundary"]] if self.has_hooks else None
        if isinstance(hook, TensorHooks) and _observe(values[call.args[0]], hook):
            return {call: values[call.args[0]]}
        return _cross(self.groups[call], partial(_call_hook, hooks, call.attrs["boundary"]), values)


class Replay:
    """See the head of this file. wanted: the inputs that take gradients. tangents: the outputs that have cotangents."""

    def __init__(self, graph: Graph, wanted: Sequence[int], tangents: Sequence[int]) -> None:
        self.tape, self.wanted, self.tangents = TapeGraph(graph, has_hooks=True), wanted, tangents

    def __call__(
        self, inputs: Sequence[Array], edges: Sequence[Edge], hooks: Sequence[Hook]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(inputs, outputs) of the call. edges: where the gradients of the inputs go from these."""
        given = [Tensor._wrap(inputs[i]) for i in self.wanted]
        attach_node(FunctionNode("Replay", tuple(edges), len(given), list, raw=False), given)
        values: list[Value] = list(inputs)
        for place, tensor in zip(self.wanted, given):
            values[place] = tensor
        results = self.tape.run(values, hooks)
        return given, [as_tensor(results[i]) for i in self.tangents]


def own_hooks(graph: Graph) -> dict[int, int]:
    """Output -> the boundary right before it, if the captured code registered hooks on that tensor itself."""
    found = {}
    for place, node in enumerate(graph.outputs):
        if isinstance(node, Call) and node.op is GRADIENT_BOUNDARY and node.attrs["width"] == 1:
            found[place] = node.attrs["boundary"]
    return found


def _observe(value: Value, hooks: TensorHooks) -> bool:
    """Put `hooks` on the tensor itself, as eager does: gradients of gradients reach it by other ways, too."""
    node = value._edge() if isinstance(value, Tensor) else None
    if not isinstance(node, GradNode):
        return False
    HookHandle(node.add_hooks(), lambda grad: (hooks(grad) or (None,))[0])
    return True


def as_tensor(value: Value) -> Tensor:
    """`value`, an array or a Tensor."""
    return value if isinstance(value, Tensor) else Tensor._wrap(value)


def _call_hook(hooks: Sequence[Hook], key: int, *args: Any) -> Gradients | None:
    """Hook `key` of a call, which has them by the time of its backward."""
    return hooks[key](*args)


def _cross(group: Sequence[Call], hook: Hook, values: Mapping[Node, Value]) -> Mapping[Node, Value]:
    """The calls of one boundary on Tensors."""
    first, slots = group[0], [call.attrs["slot"] for call in group]
    sources = tuple(as_tensor(values[node]) for node in sources_of(first))
    if first.op is not OPAQUE_BACKWARD:
        passed = gradient_boundary(sources, hook)
        return {call: passed[slot] for call, slot in zip(group, slots)}
    saved = tuple(as_tensor(values[node]) for node in saved_of(first))
    outputs = tuple(as_tensor(values[call.args[0]]).detach() for call in group)

    def rule(saved: tuple[Tensor, ...], *cotangents: Tensor | None) -> Gradients | None:
        given: list[Tensor | None] = [None] * first.attrs["width"]
        for slot, cotangent in zip(slots, cotangents):
            given[slot] = cotangent
        return hook(saved, *given)

    return dict(zip(group, opaque_backward(outputs, sources, rule, saved)))
