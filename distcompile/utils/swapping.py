"""torch.utils.swap_tensors: two handles exchange everything that they are.

In: two Tensors. Out: each has the other's memory, history, class and attributes; who holds one now sees the other's.
"""

from __future__ import annotations

from compiler_core.tensor.memory.rebinding import rebound
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

_PARTS = ("_cell", "_grad", "_hooks", "_node", "_requires_grad", "_view")


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Raises ArgumentError (a RuntimeError) for a tensor that a computation still needs, as views do."""
    for tensor in (t1, t2):
        if tensor._view is not None or tensor._node is not None:
            raise ArgumentError("swap_tensors: a view, or what was computed with gradients, cannot be swapped")
    for part in _PARTS:
        mine, its = getattr(t1, part), getattr(t2, part)
        setattr(t1, part, its)
        setattr(t2, part, mine)
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    rebound(t1)
    rebound(t2)
