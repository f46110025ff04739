"""What flows back through `custom_gradient` (ops/primitives/custom_gradient.py) while a joint graph is made.

In: the calls of one rule (a group), the cotangents of their results. Out: the cotangents of their sources.
On the tape: `tensor/autograd/boundaries.py`. Invariant: the calls of a group stand together in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.graph.ir import Call, Node
from compiler_core.ops.primitives.custom_gradient import CUSTOM_GRADIENT, rule_of
from compiler_core.ops.registry import Value


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
    pulled = rule_of(first.attrs).pull(by_slot(group, [known.get(c) for c in group]), first.args[1:], len(sources))
    return list(zip(sources, pulled, strict=True))


def by_slot(group: Sequence[Call], values: Sequence[Value | None]) -> list[Value | None]:
    """One for each slot up to the last that is there."""
    slots = {call.attrs["slot"]: value for call, value in zip(group, values)}
    return [slots.get(slot) for slot in range(max(slots) + 1)]
