"""Expand: ops that loops do not compute whole (convolutions, gelu) are written with those that they do.

In: Graph, after autograd; for `Expand` also after the partition. Out: Graph without calls whose lower rule is an
`Expansion` or `Composed`; after `AttentionComposed`, without attention as one op, and after `PoolingComposed`, without
the backward of a maximum over windows as one op, for a backend that has no routine. Events stay.
The rule runs on the call's operands under a trace that appends to the graph being rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler_core import log
from compiler_core.dtype import float32
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.meta import TensorMeta
from compiler_core.ops.attention.op import COMPOSED
from compiler_core.ops.convolution.last import LAST
from compiler_core.ops.pooling.windows_maximum import WINDOW_MAX_PUT
from compiler_core.ops.pooling.windows_maximum import composed as window_max_put
from compiler_core.ops.registry import Attrs, Op, Value, use_trace
from compiler_core.ops.routine import Routine, contiguous
from compiler_core.ops.rules import Composed, Expansion
from compiler_core.records import dataclass

_ATTENDS = frozenset(op.name for op in COMPOSED)


@dataclass(frozen=True, slots=True)
class Expand:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        # what an op is written with may be written with others in its turn
        while any(isinstance(call.op.lower, Expansion | Composed) for call in graph.calls):
            graph = Rewriter(graph, _expanded).run().called_as(graph)
        return graph


@dataclass(frozen=True, slots=True)
class AttentionComposed:
    """See the head of this file. kernels: whether those calls stay that the routine's kernels for a GPU take."""

    kernels: bool = False

    def apply(self, graph: Graph) -> Graph:
        if not any(self._is_composed(call) for call in graph.calls):
            return graph

        def rule(rewriter: Rewriter, call: Call) -> Node | None:
            return _composed(rewriter, call) if self._is_composed(call) else None

        return Rewriter(graph, rule).run().called_as(graph)

    def _is_composed(self, call: Call) -> bool:
        if call.op not in COMPOSED:
            return False
        return not (self.kernels and kernels_take(call.op, [arg.meta for arg in call.args], call.attrs))


def kernels_take(op: Op, metas: Sequence[TensorMeta], attrs: Mapping[str, Any]) -> bool:
    """Whether the kernels of this op's routine take such operands, as contiguous arrays; why not is logged."""
    kernels = op.lower.kernels if isinstance(op.lower, Routine) else None
    if kernels is None:
        return False
    why = kernels.refuses(tuple(map(contiguous, metas)), attrs)
    if why:
        log.emit("fusion", f"{op.name} is composed of other ops: {why}")
    return not why


def attends_f32(graph: Graph) -> bool:
    """Whether it attends in f32, as one op, or a pass may yet see that it does."""
    of = {call.op.name for call in graph.calls if call.dtype is float32}
    return not of.isdisjoint(_ATTENDS) or {"matmul", "exp"} <= of


@dataclass(frozen=True, slots=True)
class PoolingComposed:
    """See the head of this file. routines: whether those calls stay that a routine takes, unless convolutions are near,

    which have channels last, as pooling beside them then has.
    """

    routines: bool = False

    def apply(self, graph: Graph) -> Graph:
        stay = self.routines and not any(call.op in LAST for call in graph.calls)
        if not any(_is_composed(call, stay) for call in graph.calls):
            return graph

        def rule(rewriter: Rewriter, call: Call) -> Node | None:
            return _written(rewriter, call, window_max_put, call.attrs) if _is_composed(call, stay) else None

        return Rewriter(graph, rule).run().called_as(graph)


def _is_composed(call: Call, stay: bool) -> bool:
    if call.op is not WINDOW_MAX_PUT:
        return False
    lower = call.op.lower
    has_routine = isinstance(lower, Routine) and lower.native_for(call.dtype, call.attrs) is not None
    return not (stay and has_routine)


@dataclass(frozen=True, slots=True)
class Recorder:
    """A trace whose calls become nodes of the rewriter's graph."""

    rewriter: Rewriter

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        nodes = (value if isinstance(value, Node) else self.rewriter.constant(value) for value in values)
        return self.rewriter.call(op, *nodes, **attrs)


def _expanded(rewriter: Rewriter, call: Call) -> Node | None:
    rule = call.op.lower
    return _written(rewriter, call, rule.expand, call.attrs) if isinstance(rule, Expansion | Composed) else None


def _composed(rewriter: Rewriter, call: Call) -> Node:
    attrs = {name: value for name, value in call.attrs.items() if name != "learned"}
    return _written(rewriter, call, COMPOSED[call.op], attrs)


def _written(rewriter: Rewriter, call: Call, function: Callable[..., Value], attrs: Mapping[str, Any]) -> Node:
    with use_trace(Recorder(rewriter)):
        result: Node = function(*call.args, **attrs)
    return result
