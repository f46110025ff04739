"""Outputs of a compiled call that are also used inside of it: outside, only a part of their gradient can be seen.

In: a captured graph, which of its inputs take gradients, its outputs with cotangents. Out: for each of these outputs,
the others to which gradients flow from it inside the graph. A hook outside, `retain_grad()` or `backward(inputs=...)`
on such an output would get what comes from outside alone. Where the rest is not nothing the call is computed again, on
the tape (`tensor/autograd/again.py`), or it is an error, if its gradients are somebody else's (`wrapper.BackwardCall`).
Hooks registered, and gradients retained, inside the compiled function are in its graph.
The graph is the captured one, not a simplified one, in which two equal tensors may have become one.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.aot.boundary import is_boundary, sources_of
from compiler_core.aot.custom_gradient import gradient_operands
from compiler_core.aot.joint import differentiable_nodes
from compiler_core.graph.ir import Call, Graph, Node


def used_inside(graph: Graph, wanted: Sequence[bool], tangents: Sequence[int]) -> tuple[int, ...]:
    """For output tangents[t], the mask of those (by place in `tangents`) to which gradients flow from it inside."""
    flows = differentiable_nodes(graph, wanted)
    ends: dict[Node, int] = {}
    for bit, i in enumerate(tangents):
        ends[graph.outputs[i]] = ends.get(graph.outputs[i], 0) | 1 << bit
    behind: dict[Node, int] = {}
    for call in reversed(graph.calls):
        mask = behind.get(call, 0) | ends.get(call, 0)
        for arg in _operands(call) if mask and call in flows else ():
            if arg in flows:
                behind[arg] = behind.get(arg, 0) | mask
    return tuple(behind.get(graph.outputs[i], 0) for i in tangents)


def _operands(call: Call) -> tuple[Node, ...]:
    return sources_of(call) if is_boundary(call) else gradient_operands(call)
