"""Where a function has reached its bound: told by its result, which is kept anyway, and not by a mask that is kept too.

In: a differentiated Graph. Out: one in which, besides y = where(x <= c, c, x) itself (a relu), whoever asks x <= c asks
y <= c, which is the same for every x, NaN and both zeros among them. The partition may then keep y alone: a network of
convolutions keeps a third less.
"""

from __future__ import annotations

from dataclasses import field

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
    """results: of a mask, by name, what it is the mask of, and its bound."""

    results: dict[str, tuple[Node, Node]] = field(default_factory=dict)

    def __call__(self, rewriter: Rewriter, call: Call) -> Node | None:
        if _is_bounded(call):
            mask, bound, _ = call.args
            self.results.setdefault(mask.name, (call, bound))
            return None
        if not any(arg.name in self.results for arg in call.args):
            return None
        args = [rewriter.call("le", *self.results[arg.name]) if arg.name in self.results else arg for arg in call.args]
        return rewriter.call(call.op, *args, **call.attrs)


def _is_bounded(call: Call) -> bool:
    """Whether it is where(x <= c, c, x)."""
    if call.op.name != "where":
        return False
    mask, bound, x = call.args
    if not isinstance(mask, Call) or mask.op.name != "le" or mask.args[0] is not x:
        return False
    limit = splat(bound)
    return limit is not None and limit == splat(mask.args[1])
