"""Where a function has reached its bound: told by its result, which is kept anyway, and not by a mask that is kept too.

In: a differentiated Graph. Out: one in which, besides y = where(x < c, c, x) itself (a relu; or with x <= c), whoever
asks x <= c asks y <= c, which is the same for every x, NaN and both zeros among them. The partition may then keep y
alone: a network of convolutions keeps a third less.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeGuard

from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.cse import Cse
from compiler_core.graph.passes.rewrite import Rewriter, splat
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class ResultMasks:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        if not any(map(_is_bounded, graph.calls)):
            return graph
        return Cse().apply(Rewriter(graph, _Rule()).run())


@dataclass(frozen=True, slots=True)
class _Rule:
    """results: of an operand and its bound, by name and number, the result, and the bound."""

    results: dict[tuple[str, float], tuple[Node, Node]] = field(default_factory=dict)

    def __call__(self, rewriter: Rewriter, call: Call) -> Node | None:
        if _is_bounded(call):
            _, bound, x = call.args
            limit = splat(bound)
            if limit is not None:
                self.results.setdefault((x.name, limit), (call, bound))
            return None
        args = [self._asked(rewriter, arg) for arg in call.args]
        if all(one is None for one in args):
            return None
        return rewriter.call(call.op, *[one or arg for one, arg in zip(args, call.args)], **call.attrs)

    def _asked(self, rewriter: Rewriter, mask: Node) -> Node | None:
        """x <= c, asked of the result; None: it is something else."""
        if not _asks(mask, ("le",)):
            return None
        x, bound = mask.args
        limit = splat(bound)
        found = None if limit is None else self.results.get((x.name, limit))
        return None if found is None else rewriter.call("le", *found)


def _is_bounded(call: Call) -> bool:
    """Whether it is where(x < c, c, x), or where(x <= c, c, x)."""
    if call.op.name != "where":
        return False
    mask, bound, x = call.args
    if not _asks(mask, ("lt", "le")) or mask.args[0] is not x:
        return False
    limit = splat(bound)
    return limit is not None and limit == splat(mask.args[1])


def _asks(node: Node, names: tuple[str, ...]) -> TypeGuard[Call]:
    """Whether it is one of these comparisons."""
    return isinstance(node, Call) and node.op.name in names
