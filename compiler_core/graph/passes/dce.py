"""Dead code elimination: drops constants and calls that no output depends on. Every op is pure, so nothing else counts.

Placeholders stay: they are the calling convention. In: Graph. Out: Graph, same order.
"""

from __future__ import annotations

from compiler_core.graph.ir import Graph, Node, Placeholder
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Dce:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        live: set[Node] = set(graph.outputs)
        for node in reversed(graph.nodes):
            if node in live:
                live.update(node.operands)
        nodes = tuple(node for node in graph.nodes if node in live or isinstance(node, Placeholder))
        return graph if len(nodes) == len(graph.nodes) else graph.with_nodes(nodes)
