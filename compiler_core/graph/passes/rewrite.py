"""The engine under the rewriting passes: one sweep over a graph that may put other nodes in place of a call.

In: a Graph and a rule `(Rewriter, Call) -> Node | None`. Out: a new Graph; nodes that no rule touched keep name,
attributes and location, so texts before and after differ only where something happened.
A rule builds replacements with `Rewriter.call`, which offers them to the rule again until it has nothing to say:
a sweep therefore reaches a local fixed point. Rules must shrink some measure, or a sweep would not end; a depth limit
turns a rule that does not into an error. A rule that asks of sizes what is not known of them does not apply: nothing is
assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from compiler_core.dtype import bfloat16, float16, float32
from compiler_core.errors import ClosedSizesError, GraphError
from compiler_core.graph.input_sizes import assuming_nothing
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS, Op, meta_of
from compiler_core.symbolic.size import Sym

DEPTH_LIMIT = 64


class Pass(Protocol):
    """Graph -> Graph."""

    def apply(self, graph: Graph) -> Graph: ...


class Rewriter:
    """The graph under reconstruction: what stands for an old node that is not kept, and the new nodes in order."""

    def __init__(self, graph: Graph, rule: Rule) -> None:
        self.graph = graph
        self.rule = rule
        self.nodes: list[Node] = []
        self.replacement: dict[Node, Node] = {}
        self._replaced = self.replacement.keys()
        self.names = {node.name for node in graph.nodes}
        self.location, self.region = "", 0
        self.depth = 0
        self._uses: Counter[str] | None = None
        self._tried: Counter[str] = Counter()

    def run(self) -> Graph:
        """Visit every node once, operands replaced, and return the new graph."""
        with assuming_nothing(self.graph):
            for node in self.graph.nodes:
                made = self.visit(node) if isinstance(node, Call) else self.append(node)
                if made is not node:
                    self.replacement[node] = made
        return self.graph.with_nodes(self.nodes, self._instead(self.graph.outputs))

    def visit(self, call: Call) -> Node:
        if not self._replaced.isdisjoint(call.args):
            call = call.changed(call.name, self._instead(call.args))
        self.location, self.region = call.location, call.region
        return self.settle(call)

    def _instead(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple([self.replacement.get(node, node) for node in nodes])

    def settle(self, call: Call) -> Node:
        """What the rule makes of `call`; `call` itself, appended, if nothing."""
        depth = self.depth
        if depth == DEPTH_LIMIT:
            raise GraphError(f"rewriting does not end at %{call.name} = {call.op.name}(...)", where=call.location)
        self.depth = depth + 1
        try:
            node = self.rule(self, call)
        except ClosedSizesError:
            node = None
        self.depth = depth
        return self.append(call) if node is None else node

    def append(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def wide(self, node: Node) -> Node:
        """`node` in f32, if it is a 16-bit float."""
        return self.call("cast", node, dtype=float32) if node.dtype in (bfloat16, float16) else node

    def call(self, op: Op | str, *args: Node, **attrs: Any) -> Node:
        """A new call (or what the rule makes of it), at the place, location and region of the one being visited."""
        op = OPS[op] if isinstance(op, str) else op
        meta = op.infer(*(arg.meta for arg in args), **attrs)
        where = {"location": self.location, "region": self.region}
        return self.settle(Call(self.fresh(op.name), meta, op=op, args=args, attrs=attrs, **where))  # type: ignore[arg-type]

    def constant(self, array: np.ndarray[Any, np.dtype[Any]]) -> Node:
        return self.append(Constant(self.fresh("const"), meta_of(array), array=array))

    def full(self, meta: TensorMeta, value: Any) -> Node:
        kind = {"f": float, "b": bool, "c": complex}.get(meta.dtype.kind, int)
        return self.call("full", shape=meta.shape, value=kind(value), dtype=meta.dtype)

    def use_count(self, node: Node) -> int:
        """How many calls and outputs read `node` in the graph before the sweep; 2 ("several") for a new node."""
        if self._uses is None:
            read = [arg for call in self.graph.calls for arg in dict.fromkeys(call.args)]
            self._uses = Counter(node.name for node in (*read, *self.graph.outputs))
        return self._uses.get(node.name, 2)

    def fresh(self, stem: str) -> str:
        """A name that no node of the graph has: deterministic."""
        name = stem
        while name in self.names:
            self._tried[stem] += 1
            name = f"{stem}_r{self._tried[stem]}"
        self.names.add(name)
        return name


Rule: TypeAlias = Callable[[Rewriter, Call], Node | None]


def first_said(rules: Sequence[Rule], rewriter: Rewriter, call: Call) -> Node | None:
    """What the rules make of a call: the first that has something to put in its place. A rule that asks of sizes what
    is not known of them has nothing."""
    depth = rewriter.depth
    for rule in rules:
        try:
            node = rule(rewriter, call)
        except ClosedSizesError:
            rewriter.depth = depth
            continue
        if node is not None:
            return node
    return None


def frozen(attrs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes as a hashable key; types count, so 1 and 1.0 and True, or 0.0 and -0.0, differ."""
    return tuple(sorted([(key, repr(value)) for key, value in attrs.items()])) if attrs else ()


def splat(node: Node) -> Any:
    """The one number that every element of `node` is, as a Python scalar; None if that is not known."""
    if isinstance(node, Call) and node.op.name == "full":
        return None if isinstance(node.attrs["value"], Sym) else node.attrs["value"]
    if isinstance(node, Constant) and node.meta.numel == 1:
        return node.array.reshape(()).item() if node.dtype.numpy.kind in "biufc" else float(node.array.reshape(()))
    return None
