"""Sums down the columns, as batch norm takes them, with fewer sweeps over memory: for a GPU.

In: a differentiated Graph. Out: one in which sums of f32 over all axes but one read less, one after the other:

    sum(c * x) = c * sum(x)             c is one number a column: then several sums share sum(x)
    sum(y + c * (x - mean)) = sum(y)    a deviation adds up to nothing: one sum fewer in the gradient of batch norm
    sum((x - mean)^2) = sum(d^2) - sum(d)^2 / n, and sum(x) = sum(d) + n k, where d = x - k and k is near

so that mean and variance come of one sweep, and batch norm's gradient needs two sums, of g and of g (x - mean).
The last rule is for x that was a 16-bit float, whose own rounding is far above what the difference loses: k is the
median of three of the numbers that are summed, so it lies a few standard deviations from the mean.
Method: shifted data, Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", section 3.
"""

from __future__ import annotations

from typing import TypeAlias

from compiler_core.dtype import bfloat16, float16, float32
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.graph.passes.cse import Cse
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.rewrite import Rewriter, splat
from compiler_core.records import dataclass

_MIN_NUMEL = 1 << 16  # elements: a smaller array is in the cache anyway
_MAX_DEPTH = 8
_MAX_FACTORS = 6

Dims: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """See the head of this file."""

    def apply(self, graph: Graph) -> Graph:
        if not any(_is_column_sum(call) for call in graph.calls):
            return graph
        made = Rewriter(graph, _Rule(graph)).run()
        return Dce().apply(Cse().apply(made))


def _is_column_sum(call: Call) -> bool:
    """Whether one axis is kept, and there is enough to sum."""
    if call.op.name != "sum" or call.dtype is not float32 or len(call.shape) != 1:
        return False
    return call.args[0].meta.numel >= _MIN_NUMEL and len(call.args[0].shape) > 1


class _Rule:
    """deviations: `x - mean(x)` by name -> the axes of that mean. shifted: the names of arrays whose squared deviations
    are summed, which are cast from 16-bit floats.
    """

    def __init__(self, graph: Graph) -> None:
        self.deviations = {call.name: dims for call in graph.calls if (dims := _axes_of_deviation(call)) is not None}
        sums = [call for call in graph.calls if _is_column_sum(call)]
        self.shifted = {x.name for call in sums if (x := self._squared(call)) is not None}

    def __call__(self, rewriter: Rewriter, call: Call) -> Node | None:
        if not _is_column_sum(call):
            return None
        dims = _dims(call)
        (x,) = call.args
        if x.name in self.shifted:
            return _shifted_sum(rewriter, x, dims)
        squared = self._squared(call)
        if squared is not None and squared.name in self.shifted:
            return _shifted_squares(rewriter, squared, dims)
        if _is(x, "mul"):
            return _scaled_sum(rewriter, x, dims)
        return self._without_deviation(rewriter, x, dims) if _is(x, "add") else None

    def _squared(self, call: Call) -> Call | None:
        """x, cast from a 16-bit float, if `call` sums (x - mean(x))^2."""
        (squares,) = call.args
        if not isinstance(squares, Call) or squares.op.name != "mul" or squares.args[0] is not squares.args[1]:
            return None
        deviation = squares.args[0]
        if not isinstance(deviation, Call) or self.deviations.get(deviation.name) != _dims(call):
            return None
        x = deviation.args[0]
        is_wide = isinstance(x, Call) and x.op.name == "cast" and x.args[0].dtype in (bfloat16, float16)
        return x if is_wide else None  # type: ignore[return-value]

    def _without_deviation(self, rewriter: Rewriter, added: Node, dims: Dims) -> Node | None:
        for term, rest in (added.operands, added.operands[::-1]):
            if self._adds_up_to_nothing(term, dims):
                return rewriter.call("sum", rest, dims=dims)
        return None

    def _adds_up_to_nothing(self, term: Node, dims: Dims) -> bool:
        """Whether it is a deviation, scaled by columns."""
        axis = _kept_axis(len(term.shape), dims)
        for _ in range(_MAX_DEPTH):
            if self.deviations.get(term.name) == dims:
                return True
            if not _is(term, "mul"):
                return False
            rest = [other for scale, other in (term.operands, term.operands[::-1]) if _column(scale, axis) is not None]
            if not rest:
                return False
            term = rest[0]
        return False


def _is(node: Node, op: str) -> bool:
    return isinstance(node, Call) and node.op.name == op


def _dims(call: Call) -> Dims:
    return tuple(call.attrs["dims"])


def _kept_axis(rank: int, dims: Dims) -> int:
    (axis,) = set(range(rank)) - set(dims)
    return axis


# ---- columns


def _column(node: Node, axis: int) -> Node | None:
    """What `node` is a broadcast of, if its elements differ along `axis` only: an array of as many elements."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(node, Call):
            return None
        inner = node.args[0] if node.args else None
        if inner is None:
            return None
        if node.op.name == "permute":
            axis = node.attrs["dims"][axis]
        elif node.op.name == "expand":
            extent = node.shape[axis]
            axis -= len(node.shape) - len(inner.shape)
            if axis < 0 or inner.shape[axis] != extent:
                return None
            if inner.shape[axis] == inner.meta.numel:
                return inner
        else:
            return None
        node = inner
    return None


def _flat(rewriter: Rewriter, column: Node) -> Node:
    return rewriter.call("reshape", column, shape=(column.meta.numel,)) if len(column.shape) != 1 else column


def _spread(rewriter: Rewriter, column: Node, like: Node, axis: int) -> Node:
    """`column`, of one axis, broadcast along all others of `like`."""
    shape = tuple(n if d == axis else 1 for d, n in enumerate(like.shape))
    return rewriter.call("expand", rewriter.call("reshape", column, shape=shape), shape=like.shape)


# ---- deviations


def _axes_of_deviation(call: Call) -> Dims | None:
    """The axes of the mean, if `call` is x - mean(x)."""
    if call.op.name != "sub" or call.dtype is not float32:
        return None
    x, mean = call.args
    for axis in range(len(call.shape)):
        column = _column(mean, axis)
        total = None if column is None else _sum_of_mean(column)
        if total is not None and total.args[0] is x and set(_dims(total)) == {*range(len(x.shape))} - {axis}:
            return _dims(total)
    return None


def _sum_of_mean(column: Node) -> Call | None:
    """The sum, if `column` is sum(x) / n."""
    while _is(column, "reshape"):
        column = column.operands[0]
    if not _is(column, "div"):
        return None
    total, count = column.operands
    if not isinstance(total, Call) or total.op.name != "sum" or splat(count) is None:
        return None
    return total if float(splat(count)) == _count(total.args[0], total) else None


# ---- rules


def _scaled_sum(rewriter: Rewriter, product: Node, dims: Dims) -> Node | None:
    """The factors that are columns, taken out of the sum."""
    axis = _kept_axis(len(product.shape), dims)
    rest: list[Node] = []
    columns: list[Node] = []
    for factor in _factors(product, _MAX_FACTORS):
        column = _column(factor, axis)
        (rest if column is None else columns).append(factor if column is None else column)
    if not columns or not rest:
        return None
    rest.sort(key=lambda node: node.name)  # so that equal products are one
    found = rest[0]
    for factor in rest[1:]:
        found = rewriter.call("mul", found, factor)
    total = rewriter.call("sum", found, dims=dims)
    for column in columns:
        total = rewriter.call("mul", total, _flat(rewriter, column))
    return total


def _factors(node: Node, most: int) -> list[Node]:
    """What is multiplied, if it is at most `most` factors; else the two of `node`."""
    if not _is(node, "mul") or most < 2:
        return [node]
    a, b = node.operands
    left = _factors(a, most - 1)
    return [*left, *_factors(b, most - len(left))]


def _shift(rewriter: Rewriter, x: Node, dims: Dims) -> tuple[Node, Node]:
    """(k, x - k), where k: f32[columns] is the median of three rows of x: so one that is far off does not matter."""
    axis = _kept_axis(len(x.shape), dims)
    low, middle, high = (_row(rewriter, x, axis, part) for part in range(3))
    least, most = rewriter.call("minimum", low, middle), rewriter.call("maximum", low, middle)
    first = rewriter.call("maximum", least, rewriter.call("minimum", most, high))
    return first, rewriter.call("sub", x, _spread(rewriter, first, x, axis))


def _row(rewriter: Rewriter, x: Node, axis: int, part: int) -> Node:
    """One row of x, f32[columns], that lies `part` thirds from its first."""
    (narrow,) = x.operands
    starts = tuple(0 if d == axis else part * n // 3 for d, n in enumerate(x.shape))
    stops = tuple(n if d == axis else first + 1 for d, (first, n) in enumerate(zip(starts, x.shape, strict=True)))
    row = rewriter.call("slice", narrow, starts=starts, stops=stops, steps=(1,) * len(x.shape))
    return rewriter.call("cast", rewriter.call("reshape", row, shape=(x.shape[axis],)), dtype=float32)


def _count(x: Node, total: Node) -> float:
    return float(x.meta.numel // max(total.meta.numel, 1))


def _shifted_sum(rewriter: Rewriter, x: Node, dims: Dims) -> Node:
    first, shifted = _shift(rewriter, x, dims)
    total = rewriter.call("sum", shifted, dims=dims)
    count = rewriter.full(total.meta, _count(x, total))
    return rewriter.call("add", total, rewriter.call("mul", first, count))


def _shifted_squares(rewriter: Rewriter, x: Node, dims: Dims) -> Node:
    _, shifted = _shift(rewriter, x, dims)
    total = rewriter.call("sum", shifted, dims=dims)
    squares = rewriter.call("sum", rewriter.call("mul", shifted, shifted), dims=dims)
    mean = rewriter.call("div", total, rewriter.full(total.meta, _count(x, total)))
    found = rewriter.call("sub", squares, rewriter.call("mul", total, mean))
    return rewriter.call("maximum", found, rewriter.full(found.meta, 0.0))
