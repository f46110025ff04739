"""Hooks on tensors that captured code makes: `y.register_hook(fn)` and `y.retain_grad()` as boundaries of the graph.

In: the graph of a trace, and which of its nodes have hooks. Out: the graph with a boundary right behind each of these
nodes, which everything reads in its place: what was computed before the hook was registered too, for a hook sees the
whole gradient. So the hook runs where the tape would run it: at every backward, when that gradient is complete.
Invariant: a node without hooks, or whose hooks were all removed again, gets no boundary.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler_core.aot.boundary import GRADIENT_BOUNDARY
from compiler_core.graph.ir import Call, Graph, Node

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class TensorHooks:
    """The hooks of one tensor, as a boundary's hook. hooks: as of a tape node. kept: handles that keep the gradient."""

    def __init__(self) -> None:
        self.hooks: dict[int, Callable[[Tensor], Tensor | None]] = {}
        self.kept: list[weakref.ref[Tensor]] = []

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.hooks or self.kept)

    def __call__(self, grad: Tensor | None) -> tuple[Tensor] | None:
        if grad is None:
            return None
        for hook in list(self.hooks.values()):
            replaced = hook(grad)
            grad = grad if replaced is None else replaced
        for kept in self.kept:
            handle = kept()
            if handle is not None:
                handle._accumulate_grad(grad, grad.requires_grad)
        return (grad,)


def with_boundaries(graph: Graph, hooked: Mapping[Node, int], name: Callable[[str], str]) -> Graph:
    """`graph` with boundary number `hooked[node]` behind each of these nodes. name: gives one that no node has."""
    if not hooked:
        return graph
    new: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        copy = node
        if isinstance(node, Call) and any(new[arg] is not arg for arg in node.args):
            copy = node.changed(node.name, tuple(new[arg] for arg in node.args))
        new[node] = copy
        nodes.append(copy)
        if node in hooked:
            new[node] = _boundary(copy, hooked[node], name("hooked"))
            nodes.append(new[node])
    return replace(graph, nodes=tuple(nodes), outputs=tuple(new[node] for node in graph.outputs))


def _boundary(node: Node, number: int, name: str) -> Call:
    attrs = {"boundary": number, "slot": 0, "width": 1, "sources": 1}
    location, region = (node.location, node.region) if isinstance(node, Call) else ("", 0)
    return Call(name, node.meta, op=GRADIENT_BOUNDARY, args=(node, node), attrs=attrs, location=location, region=region)
