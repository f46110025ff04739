"""Handles from outside that a traced call gives another memory, shape or history: `x.unsqueeze_(0)`, `p.data = y`,
`x.mul_(w)` where w takes a gradient, `x.detach_()`.

In: a handle that the trace has `rebound`, as it is at the end of the trace, and what it was. Out: `Rebinding`, which a
later call applies once the graph ran and its writes are done.
Invariant: origins stand for the handles as they were before (`stand_ins`), since a handle cannot be a view of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.capture.compiled.kept import KeptTensor
from compiler_core.capture.outside_memory import Rebound
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.tape import is_traced
from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.tensor import Tensor

KEPT, NONE, RESULT = "kept", "none", "result"


@dataclass(frozen=True, slots=True)
class Rebinding:
    """What becomes of a handle. result: how to make the tensor that it becomes, or takes its history from, if any does.

    moves: it gets that tensor's memory. history: that of the tensor (RESULT), none (NONE), or the one it has (KEPT).
    viewed: whether it is a view of something then.
    """

    known: KeptTensor
    result: Any
    moves: bool
    history: str
    viewed: bool
    requires_grad: bool

    def apply(self, target: Tensor | None, arguments: Sequence[Tensor]) -> None:
        """Make the handle what it becomes. target: the tensor that `result` describes."""
        handle = self.known.now(arguments)
        if target is not None and self.moves:
            handle._cell = target._cell
            handle._view = target._view
        if not self.viewed:
            handle._view = None
        if self.history != KEPT:
            handle._node = None if target is None or self.history == NONE else target._node
        handle._requires_grad = self.requires_grad
        rebound(handle)


def what_changed(before: Rebound) -> tuple[bool, str]:
    """(whether the handle moved to other memory or another shape, where its history comes from)."""
    handle = before.handle
    if is_traced(handle._node):
        history = RESULT
    else:
        history = NONE if handle._node is None else KEPT
    return handle._cell is not before.cell, history


def stand_in(handle: Tensor) -> Tensor:
    """A handle on the same memory with the same history, for what is taken from `handle` before it moves."""
    same = Tensor._from_cell(handle._cell, handle._node)
    same._view = handle._view
    return same
