"""What flows back through `custom_gradient` (ops/primitives/custom_gradient.py): while a joint graph is made, and on
the tape.

In: the calls of one rule (a group), the cotangents of their results. Out: the cotangents of their sources.
Invariant: the calls of a group stand together in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from compiler_core.graph.ir import Call, Node
from compiler_core.ops.primitives.custom_gradient import CUSTOM_GRADIENT, rule_of
from compiler_core.ops.registry import Value

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def gradient_operands(call: Call) -> tuple[Node, ...]:
    """The operands of a call to which gradients may flow."""
    return call.args if call.op is not CUSTOM_GRADIENT else call.args[1 : 1 + call.attrs["sources"]]


def rule_groups(calls: Sequence[Call]) -> dict[Call, list[Call]]:
    """First call -> all calls, of each rule that is asked for several at once; of the others, each call by itself."""
    groups: dict[object, list[Call]] = {}
    for call in calls:
        if call.op is CUSTOM_GRADIENT:
            rule = rule_of(call.attrs)
            groups.setdefault(rule if rule.joint else call, []).append(call)
    return {group[0]: group for group in groups.values()}


def rule_cotangents(group: Sequence[Call], known: Mapping[Node, Node]) -> list[tuple[Node, Value | None]]:
    """(source, cotangent) of the calls of one rule, under the joint's trace. known: the cotangents so far."""
    if not any(call in known for call in group):
        return []
    first = group[0]
    sources = gradient_operands(first)
    pulled = rule_of(first.attrs).pull(_by_slot(group, [known.get(c) for c in group]), first.args[1:], len(sources))
    return list(zip(sources, pulled, strict=True))


def _by_slot(group: Sequence[Call], values: Sequence[Value | None]) -> list[Value | None]:
    """One for each slot up to the last that is there."""
    slots = {call.attrs["slot"]: value for call, value in zip(group, values)}
    return [slots.get(slot) for slot in range(max(slots) + 1)]


def rule_on_tape(group: Sequence[Call], environment: Mapping[Node, Value]) -> dict[Node, Value]:
    """The results of one rule's calls on Tensors, with the rule as their history."""
    from compiler_core.tensor.autograd.backward import attach_node
    from compiler_core.tensor.autograd.grad_mode import thread_mode
    from compiler_core.tensor.autograd.tape import FunctionNode
    from compiler_core.tensor.tensor import Tensor

    first = group[0]
    others = [_as_tensor(environment[arg]) for arg in first.args[1:]]
    results = [Tensor._wrap(_as_tensor(environment[call.args[0]])._read()) for call in group]
    sources, rule = first.attrs["sources"], rule_of(first.attrs)
    kept = [other if other.is_leaf and other.requires_grad else other._snapshot() for other in others]

    def backward(grads: Sequence[Value | None]) -> Sequence[Value | None]:
        given = [g if g is None or not thread_mode.enabled or isinstance(g, Tensor) else Tensor._wrap(g) for g in grads]
        values = kept if thread_mode.enabled else [other._read() for other in kept]
        return rule.pull(_by_slot(group, given), values, sources)

    edges = tuple(other._edge() for other in others[:sources])
    if thread_mode.enabled and any(edge is not None for edge in edges):
        attach_node(FunctionNode(rule.split(".")[0], edges, len(group), backward, raw=False), results)
    return dict(zip(group, results))


def _as_tensor(value: Value) -> Tensor:
    from compiler_core.tensor.tensor import Tensor

    return value if isinstance(value, Tensor) else Tensor._wrap(value)
