"""Constant folding: computes at compile time what does not depend on any input.

A value all of whose elements are one number is written as `full`; arithmetic and movement of such values is `full`
again, however large, and costs no memory. Other constants are folded by running the op, up to SMALL elements.
In: Graph. Out: Graph. Numbers come from `Op.eager`, so folding rounds as running would.
Limits: `iota` is left alone (generated code computes it for free), random ops too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler_core.errors import DATA_ERRORS, ClosedSizesError
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.graph.passes.rewrite import Rewriter, splat
from compiler_core.ops.registry import Array
from compiler_core.ops.rules import Movement, is_elementwise
from compiler_core.records import dataclass
from compiler_core.symbolic.size import symbols_in

SMALL = 4096  # elements of an operand or result


@dataclass(frozen=True, slots=True)
class Fold:
    """See the head of this file. after_autograd: what is empty is constant, though a gradient could pass through it."""

    after_autograd: bool = False

    def apply(self, graph: Graph) -> Graph:
        return _Folding(graph, _fold_or_empty if self.after_autograd else fold_call).run()


class _Folding(Rewriter):
    """A rewriter that also writes one-element constants as `full`, so that rules need to know one form only."""

    def append(self, node: Node) -> Node:
        if isinstance(node, Constant) and node.meta.numel == 1 and (value := splat(node)) is not None:
            return self.full(node.meta, value)
        return super().append(node)


def fold_call(rewriter: Rewriter, call: Call) -> Node | None:
    """The folded form of `call`, or None: of one that fails, which it does when it is run."""
    try:
        return _folded(rewriter, call)
    except DATA_ERRORS:
        return None


def _folded(rewriter: Rewriter, call: Call) -> Node | None:
    if not call.args or not _are_known(call.args) or call.op.random or call.op.effect:
        return None
    if all(splat(arg) is not None for arg in call.args):
        if is_elementwise(call.op.lower):
            return rewriter.full(call.meta, _number(_evaluate(call, [_scalar(arg) for arg in call.args])))
        if isinstance(call.op.lower, Movement):
            return rewriter.full(call.meta, splat(call.args[0]))
    if all(map(_is_small, call.args)) and _is_small(call):
        result = _evaluate(call, [_array(arg) for arg in call.args])
        if not result.size:
            return rewriter.full(call.meta, 0)
        first = result.reshape(-1)[:1]
        if np.all(result == first) and not _has_sign(result):
            return rewriter.full(call.meta, _number(first[0]))
        return rewriter.constant(result)
    return None


def _are_known(args: Sequence[Node]) -> bool:
    """Whether each is a constant, or one number everywhere."""
    for arg in args:  # noqa: SIM110  most are not, which is told at once
        if not isinstance(arg, Constant) and splat(arg) is None:
            return False
    return True


def _has_sign(array: Array) -> bool:
    """Whether a number of `array`, or a part of one, has its sign set: 0 and -0 compare equal."""
    return any(bool(np.signbit(part.astype(float)).any()) for part in (array.real, array.imag))


def _fold_or_empty(rewriter: Rewriter, call: Call) -> Node | None:
    """`fold_call`, or an empty constant."""
    is_empty = call.args and _is_empty(call) and not _is_behind_effect(call)
    return rewriter.full(call.meta, 0) if is_empty else fold_call(rewriter, call)


def _is_empty(call: Call) -> bool:
    """Whether it surely is."""
    try:
        return call.meta.numel == 0
    except ClosedSizesError:
        return False


def _is_behind_effect(call: Call) -> bool:
    """Whether other ranks take part in what an empty value is computed from: on them it may not be empty."""
    todo, seen = [call], set[Node]()
    while todo:
        found = todo.pop()
        if found.op.effect:
            return True
        seen.add(found)
        todo += [arg for arg in found.args if isinstance(arg, Call) and arg not in seen]
    return False


def _is_small(node: Node) -> bool:
    return not symbols_in(node.shape) and node.meta.numel <= SMALL


def _scalar(node: Node) -> Array:
    return np.asarray(splat(node)).astype(node.dtype.numpy)  # which wraps, as full does


def _array(node: Node) -> Array:
    return node.array if isinstance(node, Constant) else np.broadcast_to(_scalar(node), node.shape)


def _evaluate(call: Call, arrays: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(call.op.eager(np, *arrays, **call.attrs), order="C").astype(call.dtype.numpy, copy=False)


def _number(value: Array | np.generic) -> bool | int | float | complex:
    """The Python number of a one-element result."""
    array = np.asarray(value).reshape(())
    number: bool | int | float | complex = array.item() if array.dtype.kind in "biufc" else float(array)
    return number
