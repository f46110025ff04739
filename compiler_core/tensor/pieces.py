"""The slices of a tensor along a dim, each without it: what `unbind` and iteration give, made at once.

In: an eager Tensor of the CPU that needs no gradient and carries no tangent. Out: Tensors on its memory, as `slice` and
`reshape` make them one by one; None for others, and while somebody looks at ops: of these the ops are asked. They are
alike: what is checked of one holds for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from compiler_core.ops import registry
from compiler_core.ops.registry import OPS, current_trace
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.memory.cell import ViewCell, view_in
from compiler_core.tensor.memory.view_link import ViewLink

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_SLICE, _RESHAPE = OPS["slice"], OPS["reshape"]
_RUN = registry.RUN


def pieces(self: Tensor, dim: int) -> tuple[Tensor, ...] | None:
    """The slices along `dim`, which counts from the first."""
    if (
        current_trace() is not None
        or registry.run_eager is not _RUN
        or (thread_mode.enabled and self._edge() is not None)
    ):
        return None
    cell, wrap, detached, new = self._cell, self._from_cell, not thread_mode.enabled, object.__new__
    value = cell.current()
    if type(value) is not np.ndarray or value.shape[dim] < 2:
        return None
    shape, before, behind = value.shape, value.shape[:dim], value.shape[dim + 1 :]
    first, last, steps, rest = (0,) * dim, (0,) * len(behind), (1,) * len(shape), {"shape": (*before, *behind)}
    moved = value.swapaxes(0, dim) if dim else value
    found = []
    for k in range(shape[dim]):
        attrs = {"starts": (*first, k, *last), "stops": (*before, k + 1, *behind), "steps": steps}
        window = moved[k : k + 1]
        part = view_in(new(ViewCell), cell, _SLICE, attrs, window.swapaxes(0, dim) if dim else window)
        middle = wrap(part)
        middle._view = ViewLink(self, None, part.seen, detached)
        shown = view_in(new(ViewCell), part, _RESHAPE, rest, part.raw.reshape(rest["shape"]))
        piece = wrap(shown)
        piece._view = ViewLink(middle, None, shown.seen, detached)
        found.append(piece)
    return tuple(found)
