"""Sums of attention's gradients over all positions, as the gradient of a bias is one: by the kernels that compute them.

In: a Graph for a GPU, after autograd, not yet cut. Out: one in which a sum over batch and positions of the gradients of
queries, keys and values that lie beside each other, or of some heads of them, is part of what `attention_backward`
gives (`summed`): its blocks are summed where they are, in registers, and 16-bit floats that the step has just written
are not read again for it.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import NamedTuple

from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.expand import kernels_take
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.attention.op import ATTENTION_BACKWARD
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class AttentionSums:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        sums = {call.name: found for call in graph.calls if (found := _columns_summed(call)) is not None}
        sums = {name: found for name, found in sums.items() if found.backward not in graph.outputs}
        if not sums:
            return graph
        return Dce().apply(Rewriter(graph, _Rule(sums, {found.backward.name for found in sums.values()})).run())


class _Columns(NamedTuple):
    """Some columns of the gradients that a call of `attention_backward` gives beside each other: first up to last."""

    backward: Call
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Rule:
    """sums: by the names of calls that are such. backwards: the names of what they are of; made: what these became."""

    sums: dict[str, _Columns]
    backwards: set[str]
    made: dict[str, Node] = field(default_factory=dict)

    def __call__(self, rewriter: Rewriter, call: Call) -> Node | None:
        if call.name in self.backwards:
            attrs = {**call.attrs, "summed": True}
            meta = call.op.infer(*(arg.meta for arg in call.args), **attrs)
            made = self.made[call.name] = rewriter.append(replace(call, meta=meta, attrs=attrs))
            return _part(rewriter, made, 0, call.meta.numel)
        if call.name in self.sums:
            backward, first, last = self.sums[call.name]
            start = backward.meta.numel
            return _part(rewriter, self.made[backward.name], start + first, start + last)
        return None


def _part(rewriter: Rewriter, packed: Node, start: int, stop: int) -> Node:
    return rewriter.call("slice", packed, starts=(start,), stops=(stop,), steps=(1,))


def _columns_summed(call: Call) -> _Columns | None:
    """What `call` sums, if it sums columns of attention's gradients over all rows."""
    if call.op.name != "sum" or tuple(call.attrs["dims"]) != tuple(range(len(call.args[0].shape) - 1)):
        return None
    found = _columns(_behind_reshapes(call.args[0]))
    return found if found is not None and call.shape == (found.last - found.first,) else None


def _columns(node: Node) -> _Columns | None:
    if not isinstance(node, Call):
        return None
    if node.op is ATTENTION_BACKWARD:
        sizes = AttentionSizes.of([arg.meta for arg in node.args[3:]], node.attrs["causal"])
        takes = sizes.has_gradients_beside(node.dtype) and not node.attrs["summed"]
        takes = takes and kernels_take(node.op, [arg.meta for arg in node.args], node.attrs)
        return _Columns(node, 0, sizes.columns) if takes else None
    return _sliced(node) if node.op.name == "slice" else None


def _sliced(node: Call) -> _Columns | None:
    """Of a slice of columns (of heads, if each has its own dim)."""
    starts, stops, steps = (node.attrs[name] for name in ("starts", "stops", "steps"))
    (source,) = node.args
    cut = [d for d, n in enumerate(source.shape) if (starts[d], stops[d]) != (0, n)]
    whole = _columns(_behind_reshapes(source))
    if whole is None or len(cut) != 1 or any(step != 1 for step in steps):
        return None
    (dim,) = cut
    inner = math.prod(source.shape[dim + 1 :])
    if inner * source.shape[dim] != whole.last - whole.first:
        return None
    return _Columns(whole.backward, whole.first + starts[dim] * inner, whole.first + stops[dim] * inner)


def _behind_reshapes(node: Node) -> Node:
    while isinstance(node, Call) and node.op.name == "reshape":
        node = node.args[0]
    return node
