"""Where a view's history comes from: the link from a Tensor to the one that it was taken from.

In: the base, and the history that it had. Out: `ViewLink`, by which a view takes its history anew once the base has
another (`Tensor._edge`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler_core.tensor.autograd.tape import Edge
from compiler_core.tensor.memory.cell import Cell, ViewCell

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class ViewLink:
    """Where a view's history comes from. edge: the base's, when it was last taken, which was at this stamp of the root.

    detached: the view has none. several: the function that gave it beside others, or "".
    """

    __slots__ = ("base", "detached", "edge", "several", "stamp")

    def __init__(self, base: Tensor, edge: Edge, stamp: int, detached: bool) -> None:
        self.base, self.edge, self.stamp, self.detached = base, edge, stamp, detached
        self.several = ""

    def root(self) -> Tensor:
        """What the base shows in its turn, if that is a view with a history: torch's `_base`."""
        base = self.base
        while base._view is not None and not base._view.detached:
            base = base._view.base
        return base

    def holder(self, cell: Cell) -> Tensor:
        """The handle that shows what a view with `cell` was taken from: the base, or, if that one has got another shape
        in place since, what it was before."""
        handle = self.base
        while isinstance(cell, ViewCell) and handle._cell is not cell.base and handle._view is not None:
            handle = handle._view.base
        return handle
