"""Writing to a Tensor in place: what may be written to, where the value goes, and what history the handle then has.

In: a Tensor and the result that takes its place. Out: a replaced value in the cell (or, through a view, in the base, by
`views.scatter`), and a rebased history: a later gradient flows to what was written, not to what was overwritten.
These functions are Tensor's methods `_check_in_place`, `_snapshot` and `_assign`; `inplace.py` is written with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler_core.errors import AutogradError, DTypeError, GraphBreak, ShapeError
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.meta_value import no_data
from compiler_core.ops.registry import current_trace, meta_of
from compiler_core.tensor import views
from compiler_core.tensor.cell import Cell, ViewCell
from compiler_core.tensor.grad_mode import thread_mode
from compiler_core.tensor.placement import on_meta
from compiler_core.tensor.tape import TRACED, FunctionNode, GradNode, OutputNode

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # torch's dtype categories; a result may not be of a higher one


def check_in_place(self: Tensor) -> None:
    """Raises AutogradError where writing would lose a leaf's gradient."""
    if not thread_mode.enabled:
        return
    tensor: Tensor = self
    while tensor._view is not None and not tensor._view.detached:
        tensor = tensor._view.base
    if tensor._edge() is tensor:
        what = "a leaf that requires a gradient" if tensor is self else "a view of a leaf that requires a gradient"
        raise AutogradError(
            f"{what} is written to in place",
            remedy="write under no_grad(), or to a clone()",
        )


def snapshot(self: Tensor) -> Tensor:
    """The present value and history under a cell of its own: what an in-place method computes with."""
    edge = self._edge()
    return type(self)._from_cell(Cell(self._read()), edge if isinstance(edge, GradNode) else None)


def assign(self: Tensor, result: Tensor) -> None:
    """Put `result` (cast to this dtype) in this tensor's place, for all who share its memory. Shapes must agree."""
    result = _fit(self, result)
    enabled = thread_mode.enabled
    link = self._view
    recorded = enabled and (
        result._edge() is not None or self._edge() is not None or (link is not None and link.base.requires_grad)
    )
    if current_trace() is not None:
        _check_traced_write(self, recorded)
    if link is None or not recorded:
        self._cell.write(result._read())
        if recorded:
            _rebase(self, result)
        return
    if link.detached:
        if self._edge() is None and result._edge() is None:
            self._cell.write(result._read())  # through a detached view, without history on either side
            return
        raise AutogradError(
            "a view made under no_grad() (or of a detached tensor) is written to in place with a gradient recorded",
            remedy="make the view where gradients are recorded, or write under no_grad()",
        )
    cell = self._cell
    assert isinstance(cell, ViewCell)
    link.base._assign(views.scatter(cell.op, link.base, result, cell.attrs))


def _fit(self: Tensor, result: Tensor) -> Tensor:
    if self.is_meta or result.is_meta:
        result = _fit_meta(self, result)
    mine, other = meta_of(self), meta_of(result)
    if mine.shape != other.shape:
        raise ShapeError(
            "an in-place operation cannot change the shape", expected=str(mine.shape), got=str(other.shape)
        )
    if mine.dtype is other.dtype:
        return result
    if _RANKS[other.dtype.kind] > _RANKS[mine.dtype.kind]:
        raise DTypeError(
            "the result cannot be stored in place: its dtype is of a higher kind",
            expected=str(mine),
            got=str(other),
        )
    return prims.cast(result, mine.dtype)  # type: ignore[no-any-return]


def _fit_meta(self: Tensor, result: Tensor) -> Tensor:
    """What is written to a meta tensor has no data either. Raises NoDataError for a meta result in another tensor."""
    if not self.is_meta:
        raise no_data("copying a tensor of device meta to the CPU")
    return result if result.is_meta else on_meta(result)


def _rebase(self: Tensor, result: Tensor) -> None:
    """Take over the history of what was written."""
    before, edge = self._edge(), result._edge()
    if edge is not None and not isinstance(edge, GradNode):
        edge = prims.reshape(result, meta_of(self).shape)._edge()  # a leaf was copied as it is: record the copy
    if current_trace() is not None:
        node = TRACED
    elif isinstance(edge, GradNode):
        node = edge
    else:
        parent = FunctionNode("Overwrite", (before,), 1, lambda grads: [prims.full_like(grads[0], 0)], raw=False)
        node = OutputNode(parent, 0, meta_of(self))
    if isinstance(before, GradNode) and before.retained is not None and before.retained() is self:
        node.retained, before.retained = before.retained, None
    self._node = node
    self._requires_grad = False


def _check_traced_write(self: Tensor, recorded: bool) -> None:
    """Writes that a graph cannot express, while tracing."""
    tensor: Tensor = self
    detached = not recorded
    while tensor._view is not None:
        detached = detached or tensor._view.detached
        tensor = tensor._view.base
    if recorded and tensor._cell.is_external:
        why = "a value with a gradient is written into a tensor made outside the compiled function"
    elif detached and tensor.requires_grad:
        why = "a tensor that requires a gradient is written to outside of autograd"
    else:
        return
    raise GraphBreak(
        f"{why}, which cannot be traced", where=user_location(), remedy="do it outside the compiled function"
    )
