"""Reductions of few long rows in two steps: for a GPU, which would give each row to one program.

In: a Graph. Out: one in which

    sum(x) over the last axes = sum(sum(x over the inner part of them))        and so what else nests (`Op.nests`)

where there are too few rows to fill the machine, as in a group norm of one group. The inner part ends where the array
that is summed was laid out in dims of its own (channels before pixels), so that what lies side by side in memory can be
read side by side, whichever of the two is innermost. Sums of 16-bit floats are kept in f32 between the steps.
"""

from __future__ import annotations

import math
from itertools import accumulate

from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.rewrite import Rewriter
from compiler_core.ops.registry import OPS
from compiler_core.ops.rules import is_elementwise
from compiler_core.records import dataclass

_RESHAPE = OPS["reshape"]
_FEW = 528  # rows: four programs a multiprocessor of an H200
_LONG = 8192  # elements of a row
_MIN_NUMEL = 1 << 18  # of all: less is done before it matters
_MIN_PART = 64  # elements of an inner part
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class LongRows:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        return Rewriter(graph, _rule).run() if any(_is_long(call) for call in graph.calls) else graph


def _is_long(call: Call) -> bool:
    """Whether it reduces the last axes of few long rows."""
    if not call.op.nests or not call.dtype.is_floating_point:
        return False
    shape, dims = call.args[0].shape, tuple(call.attrs["dims"])
    if dims != tuple(range(len(shape) - len(dims), len(shape))) or not all(isinstance(n, int) for n in shape):
        return False
    numel, rows = call.args[0].meta.numel, math.prod(shape[: len(shape) - len(dims)])
    return rows < _FEW and numel >= max(_LONG * rows, _MIN_NUMEL)


def _rule(rewriter: Rewriter, call: Call) -> Node | None:
    if not _is_long(call):
        return None
    (x,), op = call.args, call.op
    shape = x.shape[: len(x.shape) - len(call.attrs["dims"])]
    rows = math.prod(shape)
    part = _part(x, rows, x.meta.numel // rows)
    if not part:
        return None
    cut = rewriter.call("reshape", rewriter.wide(x), shape=(*shape, x.meta.numel // rows // part, part))
    inner = rewriter.call(op, cut, dims=(len(shape) + 1,))
    found = rewriter.call(op, inner, dims=(len(shape),))
    return rewriter.call("cast", found, dtype=call.dtype) if found.dtype is not call.dtype else found


def _part(x: Node, rows: int, length: int) -> int:
    """How many elements the inner part has; 0: the row cannot be cut so that there are enough parts, and long ones."""
    own = [n for n in _own_sizes(x, length) if n >= _MIN_PART]
    for programs, choose in ((2 * _FEW, max), (_FEW // 2, min)):
        fits = [n for n in own if rows * length // n >= programs]
        if fits:
            return choose(fits)
    most = length // math.ceil(2 * _FEW / rows)
    return next((n for n in range(most, _MIN_PART - 1, -1) if length % n == 0), 0)


def _own_sizes(x: Node, length: int) -> set[int]:
    """How many elements stand behind an index of a dim of the rows, in the shapes that what is reduced has had."""
    found: set[int] = set()
    for _ in range(_MAX_DEPTH):
        behind = {*accumulate(reversed(x.shape), lambda a, b: a * b, initial=1)}
        if length in behind:
            found |= {n for n in behind if length % n == 0 and n < length}
        if not isinstance(x, Call) or not x.args or not (is_elementwise(x.op.lower) or x.op is _RESHAPE):
            break
        x = max(x.args, key=lambda arg: arg.meta.numel)
    return found
