"""Tensors under vmap: how a dim of one becomes the batch, and back, with the tape; what is written there.

In: Tensors, and the level of one call of vmap (ops/batching/value.py). Out: `entered`, a view of the Tensor that
stands for one example, and `left`, the Tensor of all examples. Both are nodes of the tape, each the other's gradient.
An operand that is one for all examples of an op's result has an edge through `LIFT`: a gradient that comes after the
call of vmap has ended is that of all examples, and is summed; one that is asked for inside is each example's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compiler_core.errors import BatchError
from compiler_core.forward import level as forward
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias, Strides
from compiler_core.ops.batching.running import enter, leave
from compiler_core.ops.batching.value import Level, levels, levels_of
from compiler_core.ops.registry import Op, Value, current_trace
from compiler_core.ops.rules import Movement
from compiler_core.tensor.autograd.grad_mode import taping, thread_mode
from compiler_core.tensor.autograd.tape import TRACED, Edge, LiftNode, OpNode
from compiler_core.tensor.memory.cell import Cell, ViewCell, cell_of, read
from compiler_core.tensor.memory.layout import laid
from compiler_core.tensor.memory.view_link import ViewLink
from compiler_core.tensor.memory.writing import check_leaves

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def _node_op(name: str, vjp: Callable[..., Any], alias: Alias | None = None) -> Op:
    """An op for nodes of the tape alone: no graph holds it."""
    none: Any = None
    return Op(name, none, none, vjp, Movement(none), (), (), alias=alias)


def _entered_strides(in_shape: Any, in_strides: Strides, level: Level, dim: int) -> Strides:
    return (*in_strides[:dim], *in_strides[dim + 1 :])


def _lifted_back(g: Value, out: Value, x: Value, among: tuple[Level, ...]) -> tuple[Value]:
    """Summed over the levels that have ended."""
    running, given = levels(), levels_of(g._cell.raw if hasattr(g, "_cell") else g)
    for level in among:
        if level in given and level not in running:  # else it is summed already, or zero
            g = prims.sum(_leave(g, level, 0), (0,))
    return (g,)


def _enter(x: Value, level: Level, dim: int) -> Value:
    return entered(x, level, dim) if hasattr(x, "_cell") else enter(x, level, dim)


def _leave(x: Value, level: Level, dim: int) -> Value:
    return left(x, level, dim) if hasattr(x, "_cell") else leave(x, level, dim)


ENTER = _node_op(
    "vmap_enter",
    lambda g, out, x, level, dim: (_leave(g, level, dim),),
    Alias(lambda base, new, level, dim: _leave(new, level, dim), _entered_strides),
)
LEAVE = _node_op("vmap_leave", lambda g, out, x, level: (_enter(g, level, 0),))
LIFT = _node_op("vmap_lift", _lifted_back)


class EnteredCell(ViewCell):
    """The memory of `base`, seen by one example."""

    __slots__ = ()

    def current(self) -> Value:
        if self.seen != self._root.stamp:
            self.value = enter(_present(self.base), **self.attrs)
            self.seen = self._root.stamp
        return self.value


def _present(cell: Cell, handle: Tensor | None = None) -> Value:
    """The value as it is now; of lent memory that very memory."""
    return cell.current() if current_trace() is None else read(cell, handle)


def entered(x: Tensor, level: Level, dim: int) -> Tensor:
    """What one example sees of `x`, of which `dim` is the batch: a view."""
    if current_trace() is not None:
        check_leaves((x,))
    attrs = {"level": level, "dim": dim}
    cell = EnteredCell(x._cell, ENTER, attrs, enter(_present(x._cell, x), level, dim))
    edge = x._edge() if thread_mode.enabled else None
    made = x._from_cell(cell, _node(ENTER, attrs, edge, x._cell, cell))
    made._view = ViewLink(x, edge, cell.seen, detached=not thread_mode.enabled)
    _carry(x, made, lambda tangent: entered(tangent, level, dim))
    return made


def left(x: Tensor, level: Level, dim: int) -> Tensor:
    """The Tensor of all examples, which lie along a new `dim`."""
    if level in levels_of(x._cell.raw):
        attrs = {"level": level}
        cell = _cell_of(leave(_present(x._cell, x), level, 0))
        edge = x._edge() if thread_mode.enabled else None
        made = x._from_cell(cell, _node(LEAVE, attrs, edge, x._cell, cell))
        _carry(x, made, lambda tangent: left(tangent, level, 0))
    else:
        shape = tuple(x.shape)
        made = prims.expand(prims.reshape(x, (1, *shape)), (level.size, *shape))
    if not dim:
        return made
    return prims.permute(made, (*range(1, dim + 1), 0, *range(dim + 1, made.ndim)))  # type: ignore[no-any-return]


def _carry(x: Tensor, made: Tensor, move: Callable[[Tensor], Tensor]) -> None:
    """Let `made` carry the tangents of x (forward mode), moved alike."""
    for one in forward.levels() if forward.on else ():
        tangent = forward.tangent_of(x, one)
        if tangent is not None:
            with forward.resting(one):
                forward.give(made, move(tangent), one)


def _node(op: Op, attrs: dict[str, Any], edge: Edge, saved: Cell, out: Cell) -> Any:
    if edge is None or (current_trace() is not None and not taping.depth):
        return None if edge is None else TRACED
    return OpNode(op, attrs, [edge], [saved], out)


def _cell_of(value: Value) -> Cell:
    """A storage for a value that may lie in memory in any way: row-major, or seen with its dims in another order."""
    if type(value) is not np.ndarray or value.flags.c_contiguous:
        return cell_of(value)
    order = tuple(sorted(range(value.ndim), key=lambda d: -value.strides[d]))
    if value.transpose(order).flags.c_contiguous:
        return laid(cell_of(value), order)
    return cell_of(np.ascontiguousarray(value))


def of_each(made: Tensor, like: Tensor) -> Tensor:
    """A fresh tensor as one of each example where `like` stands for a batch: so each can write into its own."""
    for level in reversed(levels_of(like._cell.raw)):
        made = entered(left(made, level, 0).clone(), level, 0)
    return made


def lifted(edges: Sequence[Edge], saved: Sequence[Any], out: Value) -> Sequence[Edge]:
    """The edges of an op's operands: of what is one for all examples of a level of the result, through LIFT."""
    every = levels_of(out)
    if not every:
        return edges
    result: list[Edge] = []
    for edge, cell in zip(edges, saved):
        if edge is not None:
            known = edge.attrs["among"] if isinstance(edge, LiftNode) else ()
            among = tuple(one for one in every if one not in levels_of(cell.raw) and one not in known)
            edge = LiftNode(LIFT, {"among": among}, [edge], [cell], cell) if among else edge
        result.append(edge)
    return result


def lifted_edges(arguments: Sequence[Any], results: Sequence[Any]) -> tuple[Edge, ...]:
    """The edges of a call's arguments: of what is one for all examples of a level of the results, through LIFT."""
    given = [x if hasattr(x, "_cell") else None for x in arguments]
    edges = [None if x is None else x._edge() for x in given]
    batched = max((r._cell.raw for r in results if hasattr(r, "_cell")), key=lambda v: len(levels_of(v)), default=None)
    return tuple(lifted(edges, [None if x is None else x._cell for x in given], batched))


# ---- a Function's own rule


class VmapInfo(NamedTuple):
    """What the `vmap` of an autograd.Function is told of the call."""

    batch_size: int
    randomness: str


def level_among(arguments: Sequence[Any]) -> Level | None:
    """The innermost level of Tensors that stand for a batch."""
    found = [one for x in arguments if hasattr(x, "_cell") for one in levels_of(x._cell.raw)]
    return max(found, key=lambda one: one.number, default=None)


def taken_out(arguments: Sequence[Any], level: Level) -> tuple[Any, ...]:
    """(info, the dim of the batch in each argument, None without one, the arguments of all examples)."""
    is_in = [hasattr(x, "_cell") and level in levels_of(x._cell.raw) for x in arguments]
    dims = tuple(0 if yes else None for yes in is_in)
    info = VmapInfo(level.size, level.randomness)
    return info, dims, *(left(x, level, 0) if yes else x for x, yes in zip(arguments, is_in))


def put_in(results: Any, dims: Any, level: Level) -> Any:
    """What a Function's `vmap` returned, as one example sees it."""
    if isinstance(results, tuple):
        each = dims if isinstance(dims, tuple) else (dims,) * len(results)
        return tuple(put_in(result, dim, level) for result, dim in zip(results, each, strict=True))
    return results if dims is None else entered(results, level, dims % results.ndim)


# ---- writes


def fitted(self: Tensor, result: Tensor) -> Tensor:
    """What is written into `self`, for the levels that that has. Raises BatchError for a value of more of them."""
    mine, given = levels_of(self._cell.raw), levels_of(result._cell.raw)
    if any(level not in mine for level in given):
        raise BatchError(
            "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in "
            "extra_args that has more elements than `self`: a value of each example is written into a tensor that is "
            "one for all",
            remedy="use the operation that is not in place, or make the tensor of a mapped one: x.new_zeros(...), "
            "torch.zeros_like(x)",
        )
    for level in reversed(mine):  # the outermost call of vmap first
        if level not in given:
            result = entered(left(result, level, 0), level, 0)
    return result
