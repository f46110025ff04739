"""Attention of 16-bit floats on a CUDA device: in their own dtype, where elsewhere they are made f32 before and after.

In: a Graph, before differentiation. Out: if it is of a CUDA device, a Graph in which the op `attention`, whose operands
were 16-bit floats cast to f32, takes these as they are, and so its backward will: kernels multiply them as they are and
sum in f32 (ops/attention/kernels.py). What is read of the result is cast where it is read; that this gives the dtype
that was cast from again, and so vanishes, is seen here too. Where a call's kernels would refuse, it stays as it is.
The numbers differ from f32's as torch's fused attention's do: weights are rounded before they multiply values.
"""

from __future__ import annotations

import math
from dataclasses import field

from compiler_core.dtype import FLOATING, float32
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.canonicalise_movement import slice_of_cat
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.expand import kernels_take
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.attention.op import ATTENTION
from compiler_core.ops.attention.sizes import NARROW, AttentionSizes
from compiler_core.records import dataclass

_MOVES = ("slice", "reshape", "permute")


@dataclass(frozen=True, slots=True)
class NarrowAttention:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        if not graph.device.startswith("cuda") or not any(_inner(call) for call in graph.calls):
            return graph
        return Dce().apply(Rewriter(graph, _Rule()).run())


@dataclass(frozen=True, slots=True)
class _Rule:
    """packed: the results that stand for f32's, by name; wide: casts to f32 of parts of them."""

    packed: set[str] = field(default_factory=set)
    wide: set[str] = field(default_factory=set)

    def __call__(self, rewriter: Rewriter, call: Call) -> Node | None:
        if operands := _inner(call):
            return self._narrowed(rewriter, call, operands)
        first = call.args[0] if call.args else call
        if call.op.name == "slice" and first.name in self.packed:
            return slice_of_cat(rewriter, call)
        if call.op.name in _MOVES and first.name in self.wide:
            assert isinstance(first, Call)
            return self._widened(rewriter, rewriter.call(call.op, *first.args, **call.attrs))
        if call.op.name == "cast" and first.name in self.wide:
            assert isinstance(first, Call)
            return first.args[0] if first.args[0].dtype is call.dtype else None
        return None

    def _narrowed(self, rewriter: Rewriter, call: Call, operands: tuple[Node, ...]) -> Node:
        """What the call's result was: in f32, logarithms in one number."""
        sizes = AttentionSizes.of([node.meta for node in operands], call.attrs["causal"])
        found, parts, start = rewriter.call(ATTENTION, *operands, **call.attrs), [], 0
        for shape in sizes.packed(found.dtype):
            stop = start + math.prod(shape)
            part = rewriter.call("slice", found, starts=(start,), stops=(stop,), steps=(1,))
            parts.append(self._widened(rewriter, part))
            start = stop
        out, upper, lower = parts
        whole = rewriter.call("cat", out, rewriter.call("add", upper, lower), dim=0)
        self.packed.add(whole.name)
        return whole

    def _widened(self, rewriter: Rewriter, node: Node) -> Node:
        made = rewriter.call("cast", node, dtype=float32)
        self.wide.add(made.name)
        return made


def _inner(node: Node) -> tuple[Node, ...]:
    """The 16-bit floats (a mask of truth values, a key of dropout) that an attention of f32 is of; () if it is not."""
    if not isinstance(node, Call) or node.op is not ATTENTION or node.dtype is not float32:
        return ()
    found = tuple(_uncast(arg) if arg.dtype in FLOATING else arg for arg in node.args)
    narrow = {arg.dtype for arg in found if arg.dtype in FLOATING}
    if len(narrow) != 1 or not narrow <= set(NARROW):
        return ()
    return found if kernels_take(ATTENTION, [node.meta for node in found], node.attrs) else ()


def _uncast(node: Node) -> Node:
    return node.args[0] if isinstance(node, Call) and node.op.name == "cast" else node
