"""Gradients that a backward pass is given on memory of others (NumPy's): where nothing of them is kept, not copied.

In: the Tensor that `backward(gradient)` was given, and the edge where it comes in. Out: its array. A value is
immutable, so lent memory (`memory/lent.py`) is copied before it becomes one. A compiled call reads its gradients while
it runs, and makes new arrays of them: it is shown the memory, if nobody else sees the gradient on its way: no hook, no
retain_grad, no other gradient to add it to, nobody who asked for it, and no tape on which the call runs again. What the
call gives is looked at once more (`apart`): a backend of the user's may hand a gradient through.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.ops.registry import Array, Value, current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.tape import Edge, FunctionNode, GradNode, OutputNode
from compiler_core.tensor.memory.cell import Cell, shown

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LentGradient:
    """A gradient on memory of others."""

    cell: Cell

    def taken(self) -> Value:
        return self.cell.taken()

    def shown(self) -> Array:
        """The memory: not to be kept, nor written to."""
        memory: Array = shown(self.cell)
        return memory


def value_of(grad: Tensor) -> Value | LentGradient:
    """What the pass is given: the value, or, on memory of NumPy's, who knows it."""
    cell = grad._cell
    is_lent = current_trace() is None and cell.root.is_lent and type(cell.raw) is np.ndarray
    return LentGradient(cell) if is_lent else grad._read()


def only_reads(edge: Edge, run_again: Collection[GradNode]) -> bool:
    """Whether a gradient that comes to an edge goes into a compiled call as it is, and no further.

    run_again: calls that are run again, on the tape.
    """
    if not isinstance(edge, OutputNode) or edge.hooks is not None or edge.retained is not None:
        return False
    call = edge.edges[0]
    if not isinstance(call, FunctionNode) or call in run_again:
        return False
    return call.is_compiled and not call.has_hooks and call.hooks is None


def apart(grads: Sequence[Any], lent: Sequence[Array]) -> Sequence[Any]:
    """The gradients that a call gave, those that show lent memory copied."""
    if not any(type(g) is np.ndarray and np.may_share_memory(g, memory) for g in grads for memory in lent):
        return grads
    return [g.copy() if type(g) is np.ndarray and any(np.may_share_memory(g, m) for m in lent) else g for g in grads]
