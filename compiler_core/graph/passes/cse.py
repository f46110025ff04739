"""Common subexpression elimination: of equal calls the first stays, and its users take over the others'.

Two calls are equal when op, operands (in either order for commutative ops), attributes and region are: what a
checkpoint drops is not kept for another's sake. Ops are pure, random ones too (their key is an operand, their stream an
attribute). Constants are equal by content.
Limit: before autograd it makes one slope of two that are equal, for the sum of their gradients. Where the slope is
infinite and one gradient is 0, that is an infinity, and NaN in eager code.
In: Graph. Out: Graph without duplicates. Method: value numbering in one sweep.
"""

from __future__ import annotations

from typing import Any

from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.graph.passes.rewrite import Rewriter, frozen
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Cse:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        seen: dict[tuple[Any, ...], Node] = {}

        def known(rewriter: Rewriter, call: Call) -> Node | None:
            if call.op.effect:
                return None
            key = call_key(call)
            if key not in seen:
                seen[key] = call
                return None
            return seen[key]

        return _Numbering(graph, known).run()


class _Numbering(Rewriter):
    """A rewriter that also merges equal constants."""

    def append(self, node: Node) -> Node:
        if isinstance(node, Constant):
            key = (node.meta, node.array.tobytes())
            first: Node = self.constants.setdefault(key, node)
            if first is not node:
                return first
        return super().append(node)

    def run(self) -> Graph:
        self.constants: dict[tuple[Any, ...], Node] = {}
        return super().run()


def call_key(call: Call) -> tuple[Any, ...]:
    """What makes two calls the same computation."""
    args = tuple(map(id, call.args))
    if call.op.commutative:
        args = tuple(sorted(args))
    return (call.op.name, args, frozen(call.attrs), call.region)
