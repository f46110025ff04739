"""The backward of some of a call's outputs: what no cotangent that came can reach is not computed.

In: a backward graph (of the partition) and the arrivals that do not come. Out: the graph of the outputs that are wanted
of it; None where nothing would be saved. `Pruned` compiles it when it first runs.
Method: a tangent that does not come is zero; so is what is zero where these operands are (`VANISHES`). Where zero meets
what is not, a constant takes its place, which simplifying folds away. So an infinity that is on no path from the
tangents that came makes no NaN, as on the tape: there zeros never meet it.
Limits: past an op that is in no table, zeros are computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from compiler_core.aot.cutting import is_free
from compiler_core.aot.recompute import needed_for
from compiler_core.graph.ir import Call, Graph, GraphBuilder, Node, Placeholder
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.ops import prims
from compiler_core.ops.registry import Op, use_trace
from compiler_core.ops.rules import Movement
from compiler_core.records import dataclass

if TYPE_CHECKING:
    from compiler_core.aot.wrapper import Cut

# op -> sets of operands: where all of one set are zero, so is the result
FIRST, EITHER, BOTH = ((0,),), ((0,), (1,)), ((0, 1),)
VANISHES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("neg", "cast", "div", "conj", "real", "imag", "sum", "cumsum", "take", "gather"), FIRST),
    **dict.fromkeys(("windows_add", "window_sum"), FIRST),
    **dict.fromkeys(("mul", "matmul", "convolution", "convolution_input", "convolution_weight"), EITHER),
    **dict.fromkeys(("convolution_last", "convolution_last_input", "convolution_last_weight"), EITHER),
    **dict.fromkeys(("add", "sub", "slice_scatter", "attention_backward", "complex"), BOTH),
    **dict.fromkeys(("index_add", "scatter_add"), ((0, 2),)),
    "where": ((1, 2),),
}


@dataclass(slots=True)
class Pruned:
    """A pruned backward. reads: the places of the values that it reads. cut: compiles it, once."""

    reads: frozenset[int]
    compile: Callable[[], Cut]
    _cut: Cut | None = field(default=None)

    @property
    def cut(self) -> Cut:
        if self._cut is None:
            self._cut = self.compile()
        return self._cut


def prune(backward: Graph, absent: Sequence[Placeholder], kept: Sequence[int]) -> Graph | None:
    """`backward` where none of `absent` comes. kept: the outputs that it shall have."""
    zero: set[Node] = set(absent)
    for call in backward.calls:
        if _vanishes(call, zero):
            zero.add(call)
    if all(is_free(node) for node in zero if isinstance(node, Call)):
        return None
    return _without(backward, zero, kept)


def only_read(graph: Graph) -> Graph:
    """`graph` with those of its placeholders that it reads."""
    used = needed_for(graph, graph.outputs)
    nodes = tuple(node for node in graph.nodes if not isinstance(node, Placeholder) or node in used)
    return graph.with_nodes(nodes)


def zero_sets(op: Op, count: int) -> tuple[tuple[int, ...], ...]:
    """Sets of the `count` operands of `op`: where all of one set are zero, so is the result."""
    if isinstance(op.lower, Movement):
        return FIRST
    return (tuple(range(count)),) if op.name == "cat" else VANISHES.get(op.name, ())


def _vanishes(call: Call, zero: set[Node]) -> bool:
    """Whether the result is zero where these nodes are."""
    return any(all(call.args[k] in zero for k in places) for places in zero_sets(call.op, len(call.args)))


class _Rest(GraphBuilder):
    """What is left of `graph`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(f"{graph.name}_pruned")
        self.device = graph.device
        self.placeholders.extend(graph.inputs)
        self._counts = {node.name: 1 for node in graph.nodes}


def _without(graph: Graph, zero: set[Node], kept: Sequence[int]) -> Graph:
    """`graph` without the nodes that are zero, simplified."""
    rest = _Rest(graph)
    new: dict[Node, Node] = {node: node for node in graph.nodes if node not in zero}

    def of(node: Node) -> Node:
        if node not in new:
            new[node] = prims.full(node.shape, 0, node.dtype)
        return new[node]

    with use_trace(rest):
        for node in graph.nodes:
            if isinstance(node, Placeholder) or node in zero:
                continue
            args = tuple(map(of, node.operands))
            if isinstance(node, Call) and args != node.args:
                new[node] = node.changed(node.name, args)
            rest.body.append(new[node])
        outputs = [of(graph.outputs[k]) for k in kept]
    return run_passes(rest.build(outputs), SIMPLIFY_JOINT)
