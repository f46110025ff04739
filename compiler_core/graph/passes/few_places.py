"""Sums of many rows into few places: for a GPU, as sums down the columns.

In: a Graph. Out: one in which index_add, where its result has few rows and many are added, is for each place the sum of
the rows whose index it is, the others counting as zero. In order, as index_add has it otherwise, two places (the token
types of BERT) are two programs with thousands of rows each; sums down columns are shared out, and read the rows once.
An index out of range is refused as before: `check_index` stands in front.
"""

from __future__ import annotations

from compiler_core.dtype import bool_
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.indexing.op import INDEX_ADD
from compiler_core.records import dataclass

_FEW = 8  # places
_MANY = 2048  # rows


@dataclass(frozen=True, slots=True)
class FewPlaces:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        return Rewriter(graph, _rule).run() if any(_is_of_few(call) for call in graph.calls) else graph


def _is_of_few(call: Call) -> bool:
    if call.op is not INDEX_ADD or not call.dtype.is_floating_point:
        return False
    base, index, _ = call.args
    if not all(isinstance(n, int) for n in (*base.shape, *index.shape)):
        return False
    return 0 < base.shape[0] <= _FEW and index.meta.numel >= _MANY and base.meta.numel > 0


def _rule(rewriter: Rewriter, call: Call) -> Node | None:
    if not _is_of_few(call):
        return None
    base, index, rows = call.args
    count, rest = index.meta.numel, base.shape[1:]
    flat = rewriter.call("reshape", index, shape=(count,))
    places = rewriter.call("check_index", flat, size=base.shape[0])
    rows = rewriter.call("reshape", rewriter.wide(rows), shape=(count, *rest))
    none = rewriter.full(rows.meta, 0.0)
    totals = []
    for place in range(base.shape[0]):
        is_here = rewriter.call("eq", places, rewriter.full(places.meta, place))
        column = rewriter.call("reshape", is_here, shape=(count, *(1,) * len(rest)))
        assert column.dtype is bool_
        chosen = rewriter.call("where", rewriter.call("expand", column, shape=rows.shape), rows, none)
        totals.append(rewriter.call("reshape", rewriter.call("sum", chosen, dims=(0,)), shape=(1, *rest)))
    added = rewriter.call("cat", *totals, dim=0) if len(totals) > 1 else totals[0]
    found = rewriter.call("add", rewriter.wide(base), added)
    return found if found.dtype is call.dtype else rewriter.call("cast", found, dtype=call.dtype)
