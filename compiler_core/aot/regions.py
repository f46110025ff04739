"""Checkpointed functions in a joint graph: which of their values may be kept for the backward.

In: a joint graph whose calls know their region, the nodes that depend on a tangent, the forward's results.
Out: `Regions`: `inner` (never kept, always computed again), `leaving` (never computed again: read outside) and `kept`
(never computed again, as the function's policy has it).
A value of a region leaves it if it is a result, or if what the backward reads is computed from it elsewhere: without
keeping these, everything back to the first region's inputs would be computed again at once. (AOTAutograd's partitioner
keeps the values between adjacent checkpoints for the same reason.) Half-gradients that depend on no tangent are inner
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.kept import keep_of, number_of


class Regions:
    """See the head of this file."""

    def __init__(self, graph: Graph, after: Set[Node], needed: Set[Node], results: Iterable[Node]) -> None:
        members: set[Node] = {call for call in graph.calls if call.region and call not in after}
        self.leaving: set[Node] = set()
        if members:
            read = self._read_by_backward(graph, after, needed)
            self.leaving = {node for node in results if node in members and node in read}
            for call in graph.calls:
                if call in after or call in read:
                    self.leaving.update(
                        arg for arg in call.args if arg in members and _region(arg) != number_of(call.region)
                    )
        self.kept = {node for node in members if isinstance(node, Call) and keep_of(node.region)}
        self.inner: set[Node] = members - self.leaving - self.kept

    @staticmethod
    def _read_by_backward(graph: Graph, after: Set[Node], needed: Set[Node]) -> set[Node]:
        """What depends on no tangent and is needed to compute the gradients."""
        read: set[Node] = set()
        for node in reversed(graph.nodes):
            if (node in after and node in needed) or node in read:
                read.update(arg for arg in node.operands if arg not in after)
        return read


def _region(node: Node) -> int:
    return number_of(node.region) if isinstance(node, Call) else 0
