"""split_module: a graph cut into submodules, by what a function says of each node.

In: a GraphModule, the module that holds what its nodes name, a function: node -> the number (or name) of its part. Out:
a GraphModule that calls `submod_0`, `submod_1`, ... in an order in which each comes after those it reads. Arguments and
attributes (`get_attr`) stay outside, and are handed in; a part with several results gives a tuple. A module at `a.b`
is `a_b` in its part.
Raises: FxError where parts need each other's results (a cycle).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from distcompile.fx.errors import FxError
from distcompile.fx.graph import Graph
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.node import Node, map_arg
from distcompile.nn.module import Module

__all__ = ["split_module"]

_OUTSIDE = ("placeholder", "get_attr")


@dataclass
class Partition:
    """The nodes of one part. inputs: what they read of others; outputs: what others read; needs: parts of these."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    inputs: dict[Node, None] = field(default_factory=dict)
    outputs: dict[Node, None] = field(default_factory=dict)
    needs: set[str] = field(default_factory=set)


def split_module(
    m: GraphModule, root_m: Module, split_callback: Callable[[Node], Any], qualname_map: dict[str, str] | None = None,
    keep_original_order: bool = False, keep_original_node_name: bool = False, keep_original_input_name: bool = True, *,
    partition_affix: str | None = None, tuple_return: bool = False,
) -> GraphModule:  # fmt: skip
    """`m` as calls of its parts. See the head of this file.

    qualname_map: filled: path of a module in its part -> its path before. partition_affix: stands in parts' names.
    tuple_return: a part with one result gives a tuple, too. The `keep_...` are torch's, without effect: parts stand in
    the order of their first nodes where they may, and names are those of the nodes.
    """
    stem = f"submod_{partition_affix}_" if partition_affix else "submod_"
    owner: dict[Node, Partition] = {}
    parts: dict[str, Partition] = {}
    for node in m.graph.nodes:
        if node.op not in (*_OUTSIDE, "output"):
            name = f"{stem}{split_callback(node)}"
            owner[node] = parts.setdefault(name, Partition(name))
            owner[node].nodes.append(node)
    for node in m.graph.nodes:
        for read in node.all_input_nodes:
            _note(owner.get(node), read, owner.get(read))
    graph, values = Graph(), dict[Node, Any]()
    for node in m.graph.nodes:
        if node.op in _OUTSIDE:
            values[node] = graph.node_copy(node)
    held: dict[str, Any] = {str(node.target): _at(root_m, node.target) for node in values if node.op == "get_attr"}
    for part in _in_order(parts):
        held[part.name] = _module(part, root_m, qualname_map, tuple_return=tuple_return)
        call = graph.call_module(part.name, tuple(values[node] for node in part.inputs))
        if len(part.outputs) == 1 and not tuple_return:
            values[next(iter(part.outputs))] = call
        else:
            values.update(
                (node, graph.call_function(operator.getitem, (call, k))) for k, node in enumerate(part.outputs)
            )
    graph.output(map_arg(m.graph.output_node().args[0], values.__getitem__))
    made = GraphModule(held, graph)
    made.train(m.training)
    return made


def _note(part: Partition | None, read: Node, source: Partition | None) -> None:
    """A node of `part` (None: the output) reads a node of `source` (None: of what stays outside)."""
    if part is source:
        return
    if part is not None:
        part.inputs[read] = None
    if source is not None:
        source.outputs[read] = None
        if part is not None:
            part.needs.add(source.name)


def _in_order(parts: dict[str, Partition]) -> list[Partition]:
    """Each after those that it needs."""
    left, done = dict(parts), list[Partition]()
    while left:
        ready = next((part for part in left.values() if part.needs.isdisjoint(left)), None)
        if ready is None:
            raise FxError("cycle exists between partitions!", got=", ".join(left))
        done.append(left.pop(ready.name))
    return done


def _module(part: Partition, root: Module, names: dict[str, str] | None, *, tuple_return: bool) -> GraphModule:
    graph, values = Graph(), dict[Node, Any]()
    for node in part.inputs:
        values[node] = graph.placeholder(node.name, node.type)
        values[node].meta = dict(node.meta)
    held: dict[str, Any] = {}
    for node in part.nodes:
        values[node] = made = graph.node_copy(node, values.__getitem__)
        if node.op == "call_module":
            made.target = str(node.target).replace(".", "_")
            held[made.target] = _at(root, node.target)
            if names is not None:
                names[f"{part.name}.{made.target}"] = str(node.target)
    results = tuple(values[node] for node in part.outputs)
    graph.output(results[0] if len(results) == 1 and not tuple_return else results)
    return GraphModule(held, graph)


def _at(root: Module, target: Any) -> Any:
    """What a module has at a path."""
    return operator.attrgetter(str(target))(root)
