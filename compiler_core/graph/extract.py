"""Takes a part of a Graph out as a Graph of its own.

In: a graph, the outputs wanted, the placeholders the part shall have, and nodes to be replaced (by placeholders).
Out: a Graph that holds exactly what the outputs need. Nodes keep their names and locations; nodes whose operands are
unchanged are shared with the original graph. Partitioner and DDP splitter both cut with this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Graph, Node, Placeholder


def extract(
    graph: Graph,
    name: str,
    outputs: Sequence[Node],
    inputs: Sequence[Placeholder],
    *,
    replaced: Mapping[Node, Placeholder] | None = None,
    order: Sequence[Node] | None = None,
) -> Graph:
    """The graph called `name` that computes `outputs`.

    replaced: node -> the placeholder that stands for it; those that are needed come first among the placeholders.
    order: outputs in the order in which they shall be complete; each node then stands as late as the first of them that
        needs it allows. None: the original order.
    Raises GraphError if an output needs an input that is in neither `inputs` nor `replaced`.
    """
    replaced = replaced or {}
    needed = _depth_first(outputs if order is None else order, replaced)
    if order is None:
        wanted = set(needed)
        needed = [node for node in graph.nodes if node in wanted]
    new: dict[Node, Node] = dict(replaced)
    body: list[Node] = []
    for node in needed:
        if isinstance(node, Placeholder):
            if node not in inputs:
                raise GraphError(f"graph {name} needs %{node.name} of {graph.name}, which is not among its inputs")
            new[node] = node
        elif node not in new:
            new[node] = _with_operands(node, new)
            body.append(new[node])
    used = {arg for node in body for arg in node.operands} | {new[node] for node in outputs}
    placeholders = [p for p in replaced.values() if p in used]
    return Graph(name, (*placeholders, *inputs, *body), tuple(new[node] for node in outputs), device=graph.device)


def _with_operands(node: Node, new: Mapping[Node, Node]) -> Node:
    if not isinstance(node, Call):
        return node
    args = tuple(new[arg] for arg in node.args)
    return node if args == node.args else node.changed(node.name, args)


def _depth_first(outputs: Sequence[Node], stop: Mapping[Node, Placeholder]) -> list[Node]:
    """What the outputs need, operands first, in the order of the outputs; nothing behind nodes in `stop`."""
    found: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(outputs)]
    while stack:
        node, ready = stack.pop()
        if node in found:
            continue
        if ready or node in stop or not node.operands:
            found[node] = None
            continue
        stack.append((node, True))
        stack.extend((operand, False) for operand in reversed(node.operands))
    return list(found)
