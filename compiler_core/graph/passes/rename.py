"""Rename: numbers calls and constants by op, in order: `mul`, `mul_1`, `mul_2`, ...

In: Graph. Out: the same graph under names that depend on its structure alone, not on what passes did before: texts
read well, and equal graphs have equal text (the cache key). Placeholders keep their names: callers know them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Rename:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        taken = {node.name for node in graph.inputs}
        counts: Counter[str] = Counter()
        new: dict[Node, Node] = {}
        for node in graph.nodes:
            if isinstance(node, Placeholder):
                new[node] = node
                continue
            name = _free_name(node.op.name if isinstance(node, Call) else "const", taken, counts)
            args = tuple([new[arg] for arg in node.operands])
            if name == node.name and args == node.operands:
                new[node] = node
            else:
                new[node] = node.changed(name, args) if isinstance(node, Call) else replace(node, name=name)
        return graph.with_nodes(new.values(), [new[node] for node in graph.outputs])


def _free_name(stem: str, taken: set[str], counts: Counter[str]) -> str:
    while True:
        name = f"{stem}_{counts[stem]}" if counts[stem] else stem
        counts[stem] += 1
        if name not in taken:
            taken.add(name)
            return name
