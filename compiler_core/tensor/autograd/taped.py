"""Derivatives of functions (torch.func): leaves of their own, the tape behind them, gradients, also while capturing.

In: Tensors that a derivative is taken by (`fresh`), results, weights. Out: gradients; what somebody outside may have.
While a graph is captured nothing is recorded, and handles say only that there is a history. Inside of these functions
(`inside`) the tape records there too: cells that hold nodes, and the same rules. So derivatives of captured code are
those of eager code, op by op, in the graph. What writes in place with a history, which capture expresses otherwise,
ends the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.errors import GraphBreak
from compiler_core.forward import level
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.value import held
from compiler_core.ops.primitives.custom_gradient import COPIED, CUSTOM_GRADIENT
from compiler_core.ops.registry import Attrs, Op, Value, current_trace
from compiler_core.tensor.autograd.grad_mode import enable_grad, taping
from compiler_core.tensor.autograd.tape import TRACED, GradNode, OpNode
from compiler_core.tensor.batching import lifted
from compiler_core.tensor.memory.cell import Cell

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class _Leaves(threading.local):
    """all: what `fresh` has made in the outermost function that this thread is in, by id."""

    def __init__(self) -> None:
        self.all: dict[int, Tensor] = {}


_leaves = _Leaves()


def depth() -> int:
    """How many of these functions this thread is in: what an inner one gives belongs to an outer one's tape."""
    return taping.depth


def traced() -> bool:
    """Whether these functions are recorded in a graph."""
    return current_trace() is not None


class inside:
    """Inside, the tape records."""

    __slots__ = ("recording",)

    def __enter__(self) -> None:
        self.recording = enable_grad()
        self.recording.__enter__()
        taping.depth += 1

    def __exit__(self, *error: Any) -> None:
        taping.depth -= 1
        self.recording.__exit__(*error)
        if not taping.depth:
            _leaves.all = {}


class closed:
    """Inside, a function runs that torch.func transforms: it may not ask for gradients itself."""

    __slots__ = ()

    def __enter__(self) -> None:
        taping.closed += 1

    def __exit__(self, *error: Any) -> None:
        taping.closed -= 1


def record(made: Tensor, trace: Any, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Tensor:
    """A traced result, with its node on the tape inside of these functions."""
    for notes in getattr(trace, "noted", ()):
        notes.update((held(v._read()), v) for v in values if hasattr(v, "_cell"))
    if not taping.depth or made._node is not TRACED:
        return made
    if op is CUSTOM_GRADIENT and attrs["rule"] != COPIED:  # whose gradient is the op's own: that of the identity
        raise no_write()
    edges = [v._edge() if hasattr(v, "_cell") else None for v in values]
    saved = [v._cell if hasattr(v, "_cell") else v for v in values]
    made._node = OpNode(op, attrs, lifted(edges, saved, made._cell.raw), saved, made._cell)
    return made


def no_write() -> GraphBreak:
    """What ends the graph."""
    return GraphBreak("a tensor is written to in place in a function that is differentiated", where=user_location())


def detached(x: Tensor) -> Tensor:
    """Without its history; with its tangents."""
    found: Tensor = x.detach()
    if level.on:
        level.carry(x, found)
    return found


def fresh(x: Tensor, attached: bool) -> Tensor:
    """A leaf with the value of x; attached: a view of it, if it has a history. Raises AutogradError for integers."""
    if attached and x.requires_grad:
        return x.view_as(x)
    if current_trace() is None or not x.dtype.is_inexact:
        leaf = detached(x)._require()
    else:
        leaf = x._from_cell(Cell(prims.reshape(x.detach()._read(), tuple(x.shape))))
        leaf._requires_grad = True
        if level.on:
            level.carry(x, leaf)
    _leaves.all[id(leaf)] = leaf
    return leaf


def reads_others(outs: Sequence[Any]) -> bool:
    """Whether there are leaves behind `outs` that none of these functions has made: parameters, say."""
    todo: list[Any] = [out._edge() for out in outs if hasattr(out, "_edge")]
    seen: set[int] = set()
    while todo:
        edge = todo.pop()
        if edge is None or id(edge) in seen:
            continue
        seen.add(id(edge))
        if edge is TRACED:
            return True
        if isinstance(edge, GradNode):
            todo += edge.edges
        elif id(edge) not in _leaves.all:
            return True
    return False


def gradients(
    outs: Sequence[Tensor], leaves: Sequence[Tensor], weights: Sequence[Tensor | None], create_graph: bool
) -> list[Tensor]:
    """Of outs, weighted, in all leaves; zeros where there is none. The tape stays."""
    from compiler_core.tensor.making.creation import full_like

    found = found_gradients(outs, leaves, weights, create_graph)
    return [full_like(x, 0.0) if g is None else g for g, x in zip(found, leaves, strict=True)]


def found_gradients(
    outs: Sequence[Tensor], leaves: Sequence[Tensor], weights: Sequence[Tensor | None], create_graph: bool
) -> tuple[Tensor | None, ...]:
    """Of outs, weighted, in all leaves; None where there is none. The tape stays."""
    from compiler_core.tensor.autograd import backward as autograd

    used = [(out, weight) for out, weight in zip(outs, weights, strict=True) if out.requires_grad]
    if not used:
        return (None,) * len(leaves)
    of, by = zip(*used)
    with inside():
        return autograd.grad(of, leaves, by, retain_graph=True, create_graph=create_graph, allow_unused=True)


def has_no_end() -> bool:
    """Whether a history that ends in leaves of these functions means nothing: in a graph that pushes tangents forward.

    Raises GraphBreak for any other graph: it cannot say so of its results. Inside of another of these functions, and in
    eager code, the history is there.
    """
    if current_trace() is None or taping.depth:
        return False
    if level.levels():
        return True
    raise GraphBreak("results have a history that ends in what a transform made", where=user_location(),
                     remedy="leave create_graph=True out, where nothing outside requires a gradient")  # fmt: skip
