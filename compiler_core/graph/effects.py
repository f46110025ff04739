"""Calls that other ranks take part in (`Op.effect`): what keeps them, and what keeps their order.

In: nodes of a graph. Out: those of its effects that nothing returned depends on, which become outputs for their own
sake: a rank that does not read what a collective gave it takes part all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.graph.ir import Call, Graph, Node


def has_effects(nodes: Sequence[Node]) -> bool:
    """Whether a call among these is an effect."""
    return any(isinstance(node, Call) and node.op.effect for node in nodes)


def effects_unread(nodes: Sequence[Node], returned: Sequence[Node]) -> list[Node]:
    """The effects among `nodes`, in topological order, that none of `returned` needs; of those behind one another the
    last."""
    if not has_effects(nodes):
        return []
    live = set(returned)
    unread: list[Node] = []
    for node in reversed(nodes):
        if isinstance(node, Call) and node.op.effect and node not in live:
            unread.append(node)
            live.add(node)
        if node in live:
            live.update(node.operands)
    return unread[::-1]


def has_only_collectives(graph: Graph) -> bool:
    """Whether all events of a graph are those of its collectives (`passes/launch.py`)."""
    return len(graph.behind) == len(graph.waits) == len(graph.signals) and sorted(graph.behind) == list(
        range(len(graph.signals))
    )
