"""Writing to a Tensor in place: what may be written to, where the value goes, and what history the handle then has.

In: a Tensor and the result that takes its place. Out: a replaced value in the cell (or, through a view, in the base, by
`views.scatter`), and a rebased history: a later gradient flows to what was written, not to what was overwritten.
These functions are Tensor's methods `_check_in_place`, `_snapshot` and `_assign`; `inplace.py` is written with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from compiler_core.cuda import lone
from compiler_core.errors import AutogradError, DTypeError, GraphBreak, ShapeError
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.meta_value import no_data
from compiler_core.ops.primitives.custom_gradient import COPIED, HISTORY, OVERWRITTEN
from compiler_core.ops.registry import OPS, Value, current_trace, meta_of
from compiler_core.tensor.autograd.grad_mode import Inference, taping, thread_mode
from compiler_core.tensor.autograd.inference import check_written
from compiler_core.tensor.autograd.tape import TRACED, FunctionNode, GradNode, OutputNode
from compiler_core.tensor.making.placement import on_device_of, on_meta
from compiler_core.tensor.memory import views
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell, cell_of, memory_of, read
from compiler_core.tensor.memory.journal import note_change
from compiler_core.tensor.memory.rebinding import rebound

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor, ViewLink

_PERMUTE = OPS["permute"]
_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # torch's dtype categories; a result may not be of a higher one


def check_in_place(self: Tensor) -> None:
    """Raises AutogradError where writing would lose a leaf's gradient, and to inference tensors outside of the mode."""
    if Inference.in_use:
        check_written(self._cell)
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
    edge, cell = self._edge(), self._cell
    is_usual = (type(cell) is DeviceCell or type(cell) is Cell) and current_trace() is None
    is_laid = type(cell) is ViewCell and self._view is None and current_trace() is None
    now = _laid_as(cell) if is_laid else None
    if now is None:
        now = cell_of(cell.raw if is_usual else self._read())
    return type(self)._from_cell(now, edge if isinstance(edge, GradNode) else None)


def _laid_as(cell: Any) -> Cell | None:
    """The present value of a cell whose dims lie in another order (`layout.laid`) under one of its own that lies so."""
    root: Any = cell.base
    kind = type(root)
    if not (kind is DeviceCell or kind is Cell) or cell.op is not _PERMUTE or cell.seen != root.stamp:
        return None
    return ViewCell(kind(root.raw), _PERMUTE, cell.attrs, cell.raw)


def assign(self: Tensor, result: Tensor) -> None:
    """Put `result` (cast to this dtype) in this tensor's place, for all who share its memory. Shapes must agree."""
    if takes_place(self, result):
        return
    result = _fit(self, result)
    enabled = thread_mode.enabled
    link = self._view
    recorded = enabled and (
        result._edge() is not None or self._edge() is not None or (link is not None and link.base.requires_grad)
    )
    if recorded and link is not None:
        _check_not_of_several(self)
    if link is not None and link.detached and self._edge() is None and result._edge() is None:
        recorded = False  # through a detached view, without history on either side
    if link is None or not recorded:
        _put(self, result, recorded)
        return
    if link.detached:
        if current_trace() is not None and _is_detached(self, link):
            what = "a value with a gradient is written into a detached tensor"
            raise GraphBreak(what, where=user_location(), remedy="write to a clone()")
        raise AutogradError(
            "a view made under no_grad() (or of a detached tensor) is written to in place with a gradient recorded",
            remedy="make the view where gradients are recorded, or write under no_grad()",
        )
    cell = self._cell
    assert isinstance(cell, ViewCell)
    base = link.holder(cell)
    base._assign(views.scatter(cell.op, base, result, cell.attrs))


def takes_place(self: Tensor, result: Tensor) -> bool:
    """`assign` in the usual case, of storages that are alike, of one device, and whose dims lie in one order; False:
    nothing is done."""
    cell: Any = self._cell
    other: Any = result._cell
    if type(other) is not type(cell) or current_trace() is not None:
        return False
    root: Any = cell
    if type(cell) is ViewCell:
        root = _laid_alike(cell, other)
    kind = type(root)
    if not (kind is DeviceCell or kind is Cell):
        return False
    before: Any = cell.raw
    value: Any = other.raw
    is_one = type(before) is type(value) is (lone.array if kind is DeviceCell else np.ndarray)
    if not is_one or self._view is not None or result._view is not None:
        return False
    if before.dtype != value.dtype or before.shape != value.shape:
        return False
    if thread_mode.enabled:
        node, present = result._node, self._node
        if node is None and (present is not None or result._requires_grad or self._requires_grad):
            return False
        if present is not None and present.retained is not None:
            return False
        if node is not None:
            self._node, self._requires_grad = node, False
            rebound(self)
    if root is cell:
        cell.write(value)
        return True
    root.write(other.base.raw)
    cell.raw, cell.seen = value, root.stamp
    return True


def _laid_alike(cell: Any, other: Any) -> Any:
    """The root of a cell whose dims lie in another order (`layout.laid`), if `other`'s lie in the same; else None."""
    root, beside = cell.base, other.base
    kind = type(root)
    if type(beside) is not kind or not (kind is DeviceCell or kind is Cell) or cell.op is not _PERMUTE:
        return None
    is_now = cell.seen == root.stamp and other.seen == beside.stamp
    return root if is_now and other.op is _PERMUTE and cell.attrs == other.attrs else None


def _check_not_of_several(self: Tensor) -> None:
    """Raise AutogradError for a view that a function gave beside others, or a view of one."""
    link = self._view
    while link is not None and not link.detached:
        if link.several:
            raise AutogradError(
                f"Output of {link.several} is a view and is being modified inplace. This view is the output of a "
                "function that returns multiple views. Such functions do not allow the output views to be modified "
                "inplace.",
                remedy=f"replace {link.several} by indexing, or write to a clone()",
            )
        link = link.base._view


def _is_detached(self: Tensor, link: ViewLink) -> bool:
    """Whether this view, under a trace, is what `detach()` gave, which is no view to the tape."""
    cell = self._cell
    return cell is link.base._cell or (isinstance(cell, ViewCell) and cell.op is OPS["detach"])


def _put(self: Tensor, result: Tensor, recorded: bool) -> None:
    """Replace the value in the cell, and, where it is recorded, the history of this tensor, which is no view then."""
    if current_trace() is not None:
        if recorded and taping.depth:
            what = "a tensor is written to in place in a function that is differentiated"
            raise GraphBreak(what, where=user_location())
        (_write_traced if recorded else _write_beside_autograd)(self, result)
        return
    self._cell.write(result._read())
    if recorded:
        _rebase(self, result)


def _fit(self: Tensor, result: Tensor) -> Tensor:
    if Batched in (kinds := (type(result._cell.raw), type(self._cell.raw))):
        from compiler_core.tensor.batching import fitted

        result = fitted(self, result)
    elif kinds[0] is not kinds[1]:
        result = _fit_device(self, result)
    elif current_trace() is not None:
        result = _fit_traced(self, result)
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


def _fit_device(self: Tensor, result: Tensor) -> Tensor:
    """What is written goes to the device of what is written to. Raises NoDataError for a meta result elsewhere."""
    if self.is_meta:
        return result if result.is_meta else on_meta(result)
    if result.is_meta:
        raise no_data("copying a tensor of device meta to the CPU")
    return on_device_of(self, result)


def _fit_traced(self: Tensor, result: Tensor) -> Tensor:
    """The same under a trace: a constant, a number, or what the code made elsewhere."""
    trace: Any = current_trace()
    return trace.placed(result, self.device) if hasattr(trace, "placed") else result


def _rebase(self: Tensor, result: Tensor) -> None:
    """Take over the history of what was written."""
    before, edge = self._edge(), result._edge()
    if edge is not None and not isinstance(edge, GradNode):
        edge = prims.reshape(result, meta_of(self).shape)._edge()  # a leaf was copied as it is: record the copy
    node: GradNode
    if isinstance(edge, GradNode):
        node = edge
    else:
        parent = FunctionNode("Overwrite", (before,), 1, lambda grads: [prims.full_like(grads[0], 0)], raw=False)
        node = OutputNode(parent, 0, meta_of(self))
    if isinstance(before, GradNode) and before.retained is not None and before.retained() is self:
        node.retained, before.retained = before.retained, None
    self._node = node
    self._requires_grad = False
    rebound(self)


def over(self: Tensor, result: Tensor) -> Tensor:
    """`result`, which takes the place of `self`: where both have a history, what self was gets zeros."""
    if not thread_mode.enabled or result._edge() is None or not isinstance(self._edge(), GradNode):
        return result
    if current_trace() is not None:
        return prims.custom_gradient(result, result, self._snapshot(), rule=COPIED, sources=2)  # type: ignore[no-any-return]
    copied = type(result)._wrap(result._read())
    edges = (result._edge(), self._edge())
    node = FunctionNode("Copy", edges, 1, lambda grads: [grads[0], prims.full_like(grads[0], 0)], raw=False)
    copied._node = OutputNode(node, 0, meta_of(copied))
    return copied


# ---- under a trace


@runtime_checkable
class MemoryTrace(Protocol):
    """A trace that keeps what happens to memory and handles from outside."""

    def note_rebinding(self, handle: Tensor) -> None: ...
    def note_move(self, handle: Tensor) -> None: ...
    def note_recorded_write(self, handle: Tensor) -> None: ...
    def history(self, cell: Cell) -> Value | None: ...
    def keep_history(self, cell: Cell, before: Value) -> None: ...
    def takes_leaf(self, handle: Tensor) -> bool: ...
    def note_leaf(self, handle: Tensor, node: Value) -> None: ...


def note_rebinding(self: Tensor) -> None:
    """Say that this handle gets another memory, shape or history; a trace remembers it of one from outside."""
    if current_trace() is not None and self._cell.is_external:
        _memory_trace("a tensor made outside the compiled function gets another history").note_rebinding(self)


def note_requiring(self: Tensor, requires_grad: bool) -> None:
    """This handle is about to (no longer) require a gradient. One that the trace has made is a leaf from then on: what
    reads it has its history from a node of its own."""
    note_rebinding(self)
    trace: object = current_trace()
    if requires_grad and not taping.depth and isinstance(trace, MemoryTrace) and trace.takes_leaf(self):
        node = trace.bind(OPS["detach"], (read(self._cell),), {})  # type: ignore[attr-defined]
        note_change(self, "_cell")
        self._cell = HistoryCell(self._cell, node)
        trace.note_leaf(self, node)


def check_leaves(values: Sequence[Value]) -> None:
    """Raises GraphBreak for a leaf that was made in the graph, `(x * 2)._require()`, where the trace takes none."""
    for value in values if not taping.depth else ():
        if getattr(value, "_requires_grad", False) and value._node is None:
            cell = value._cell
            if not cell.is_external and not isinstance(cell, HistoryCell):
                raise GraphBreak(
                    "a leaf that was made in the graph is used there, and seen outside", where=user_location()
                )


def note_move(self: Tensor) -> None:
    """As `note_rebinding`, of a handle that gets another memory or shape."""
    if current_trace() is not None and self._cell.is_external:
        _memory_trace("a tensor made outside the compiled function gets another shape").note_move(self)


def _memory_trace(what: str) -> MemoryTrace:
    """The current trace, which can express what happens to memory from outside. Raises GraphBreak if it cannot."""
    trace: object = current_trace()
    if not isinstance(trace, MemoryTrace):
        raise GraphBreak(f"{what}, which cannot be traced here", where=user_location())
    return trace


def check_data(self: Tensor, other: Tensor) -> None:
    """Raises DTypeError where `self.data = other` would leave a tensor that requires a gradient, and has none."""
    if self.requires_grad and not other.dtype.is_inexact:
        what = "data set to a tensor that requires gradients must be floating point or complex dtype"
        raise DTypeError(what, got=other.dtype.name)


def set_data(self: Tensor, other: Tensor) -> None:
    """`self.data = other` under a trace: the other's memory, and the history that self has."""
    note_move(self)
    history = self._read() if self.requires_grad else None
    if history is not None and meta_of(self) != meta_of(other):
        raise GraphBreak(
            "assigning .data of another shape or dtype to a tensor with a gradient cannot be traced",
            where=user_location(),
        )
    note_change(self, "_cell", "_view")
    base = memory_of(other.detach()._cell)
    self._cell = base if history is None else HistoryCell(base, history)
    self._view = None


class HistoryCell(ViewCell):
    """The memory of `base`, for a handle whose history is that of the node `history`. For traces alone."""

    __slots__ = ("history",)

    def __init__(self, base: Cell, history: Value) -> None:
        super().__init__(base, OPS["detach"], {}, prims.custom_gradient(read(base), history, rule=HISTORY))
        self.history = history

    def current(self) -> Value:
        if self.seen != self._root.stamp:
            note_change(self, "raw", "seen")
            self.value = prims.custom_gradient(read(self.base), self.history, rule=HISTORY)
            self.seen = self._root.stamp
        return self.value

    def put(self, value: Value) -> None:
        super().put(value)
        self.seen = -1


def _write_traced(self: Tensor, result: Tensor) -> None:
    """A write that is recorded, to a tensor that is no view: its history is now that of the value."""
    value = result._read()
    if result._edge() is None:
        value = prims.custom_gradient(value, self._read(), rule=OVERWRITTEN)
    write_node(self, value)


def write_node(self: Tensor, value: Value) -> None:
    """Put a node of the trace, with the history it has there, in this tensor's place; it is no view."""
    trace = None
    if self._cell.is_external:
        trace = _memory_trace("a value with a gradient is written into a tensor made outside the compiled function")
    self._cell.write(value)
    if trace is not None:
        trace.note_recorded_write(self)
    before = self._node
    note_change(self, "_node", "_requires_grad")
    self._node = TRACED
    self._requires_grad = False
    rebound(self)
    if before is not None and before.retained is not None and before.retained() is self:
        self.retain_grad()


def _write_beside_autograd(self: Tensor, result: Tensor) -> None:
    """A write that is not recorded: who reads this memory with a history depends on what it depended on before."""
    bottom = self._cell
    while isinstance(bottom, ViewCell) and not bottom.is_external:
        bottom = bottom.base
    before = _history(self, bottom)
    self._cell.write(result.detach()._read() if result._edge() is not None else result._read())
    if before is None:
        return
    if bottom.is_external:
        _memory_trace("memory with a history").keep_history(bottom, before)
    else:
        note_change(bottom, "raw")
        bottom.raw = prims.custom_gradient(bottom.raw, before, rule=HISTORY)
    cell = self._cell
    while cell is not bottom and isinstance(cell, ViewCell):
        note_change(cell, "seen")
        cell.seen = -1  # the value that was written has no history: derive it from the base again
        cell = cell.base


def _history(self: Tensor, bottom: Cell) -> Value | None:
    """The node that readers of this memory depend on, if any has a history. bottom: its root, or one from outside."""
    if not self.dtype.is_inexact:
        return None
    tensor = self
    while tensor._view is not None:
        tensor = tensor._view.base
    if bottom.is_external:
        trace: object = current_trace()
        if isinstance(trace, MemoryTrace):
            return trace.history(bottom)
        return _memory_trace("a write outside of autograd").history(bottom) if tensor.requires_grad else None
    return bottom.raw if tensor.requires_grad else None
