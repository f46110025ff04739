"""Rebinding: a handle gets another cell, another history, or another `requires_grad`; who relies on it is told.

In: handles that captured code reads without asking for them anew (parameters, buffers). Out: `TensorWatch`: one
comparison tells that all of them stand for the cells they stood for, and require gradients as they did. It keeps the
cells alive, not the handles.
New values in a cell, and new `.grad`s, are not rebinding: training does not disturb the watch.
Whoever sets `_cell`, `_node`, `_view` or `_requires_grad` of a handle that others may know calls `rebound`.
Limit: a view takes its history from its base anew when it is asked (`lags`), so whoever relies on that must ask it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import ref

from compiler_core.tensor.memory.cell import Cell
from compiler_core.watch import NOBODY, Watch, Watches, add_watch, tell

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def rebound(tensor: Tensor) -> None:
    """Tell who watches `tensor` that it has been bound to something else."""
    watches: Watches = getattr(tensor, "_watches", NOBODY)  # the slot is empty until somebody watches
    if watches:
        tell(watches)


def lags(tensor: Tensor) -> bool:
    """Whether the history of `tensor` may change without `rebound`: that of a view, by a write to its base."""
    return tensor._view is not None and not tensor._view.detached


class _Binding:
    """One handle as it was bound."""

    __slots__ = ("cell", "kind", "requires_grad", "tensor", "text")

    def __init__(self, tensor: Tensor, text: str) -> None:
        self.tensor, self.text = ref(tensor), text
        self.kind: type[Tensor] = type(tensor)
        self.cell: Cell = tensor._cell
        self.requires_grad = tensor.requires_grad

    def difference(self) -> str:
        """What should hold and does not, "" if all is as it was."""
        tensor = self.tensor()
        if tensor is None:
            return f"{self.text} is the same tensor"
        if type(tensor) is not self.kind:
            return f"{self.text} is a {self.kind.__name__}"
        if tensor._cell is not self.cell:
            return f"{self.text} is stored where it was"
        if tensor.requires_grad is not self.requires_grad:
            return f"{self.text}.requires_grad is {self.requires_grad}"
        return ""


class TensorWatch(Watch):
    """Tells when one of the given handles, each with what the user calls it, has been bound to something else."""

    __slots__ = ("_bindings",)

    def __init__(self, tensors: Iterable[tuple[Tensor, str]]) -> None:
        super().__init__()
        told = self.told
        given = list(tensors)
        self._bindings = [_Binding(tensor, text) for tensor, text in given]
        for tensor, _ in given:
            add_watch(tensor, self)
        self.seen = told

    def find_difference(self) -> str:
        return next((difference for one in self._bindings if (difference := one.difference())), "")

    def culprits(self) -> list[Any]:
        """The tensors that are stored somewhere else."""
        tensors = [(one.tensor(), one.cell) for one in self._bindings]
        return [tensor for tensor, cell in tensors if tensor is not None and tensor._cell is not cell]

    def __reduce__(self) -> tuple[object, ...]:
        return Watch, ()
