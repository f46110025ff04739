"""Decompose: ops beyond the core set are written with core ops, by the rule on each op's block (`Op.engines`).

In: a Graph that nobody will differentiate. Out: one whose calls are core ops, or ops that no core op expresses. Events
stay. With `takes`, for an engine that knows more or less than the core set: a call that it takes stays as it is; one
that it does not take is decomposed where it takes all of that, else it stays whole, for our own code.
Method: as `Expand`. What a call became is dropped again where an engine does not take some of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.expand import Recorder
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.registry import Op, Value, use_trace
from compiler_core.ops.rules import Decomposed
from compiler_core.records import dataclass

Takes: TypeAlias = Callable[[Call], bool]


@dataclass(frozen=True, slots=True)
class Decompose:
    """See the head of this file. takes: whether an engine takes a call; None: it takes the core set.

    rules: op -> composition, in place of what the ops' blocks say; other ops stay.
    """

    takes: Takes | None = None
    rules: Mapping[Op, Callable[..., Value | None]] | None = None

    def apply(self, graph: Graph) -> Graph:
        if all(self._stays(call) for call in graph.calls):
            return graph
        return Rewriter(graph, self._rule).run().called_as(graph)

    def _stays(self, call: Call) -> bool:
        if self._composition(call) is None:
            return True
        return self.takes is not None and self.takes(call)

    def _composition(self, call: Call) -> Callable[..., Value | None] | None:
        if self.rules is not None:
            return self.rules.get(call.op)
        return call.op.engines.expand if isinstance(call.op.engines, Decomposed) else None

    def _rule(self, rewriter: Rewriter, call: Call) -> Node | None:
        expand = self._composition(call)
        if expand is None or self._stays(call):
            return None
        before, names = len(rewriter.nodes), set(rewriter.names)
        with use_trace(Recorder(rewriter)):
            result: Node | None = expand(*call.args, **call.attrs)
        made = [node for node in rewriter.nodes[before:] if isinstance(node, Call)]
        if result is None or not (self.takes is None or all(map(self.takes, made))):
            del rewriter.nodes[before:]
            rewriter.names = names
            return None
        return result
