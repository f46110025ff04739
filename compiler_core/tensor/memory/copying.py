"""Copies of Tensors: `copy.copy`, `copy.deepcopy`, and what pickle keeps. They keep the class and the attributes.

In: a Tensor. Out: a leaf: on the same memory (copy), or with memory of its own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from compiler_core.device import Device, check_device, cpu
from compiler_core.errors import AutogradError
from compiler_core.ops.registry import Array, bind
from compiler_core.overrides.state import is_tensor
from compiler_core.tensor.memory.cell import Cell, DataCell, ViewCell, cell_of
from compiler_core.tensor.memory.layout import Order, laid, order_for

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def shallow_copy(self: Tensor) -> Tensor:
    """A leaf on the same memory, as torch's `copy.copy`."""
    new: Tensor = remade(type(self), self._cell, self.requires_grad)
    new.__dict__.update(self.__dict__)
    return new


def deep_copy(self: Tensor, memo: dict[int, object]) -> Tensor:
    """A leaf with its own cell.

    Raises AutogradError for a non-leaf, and for a subclass whose `new_empty` gives something else, as torch.
    """
    if not self.is_leaf:
        raise AutogradError("only leaf tensors can be deep-copied", remedy="detach() it, or clone()")
    if not is_tensor(type(self)) and type(self.new_empty([])) is not type(self):
        raise AutogradError(
            "The default implementation of __deepcopy__() for non-wrapper subclasses only works for subclass types "
            "that implement new_empty() and for which that function returns another instance of the same subclass. "
            "You should either properly implement new_empty() for your subclass or override __deepcopy__() if it "
            "is intended behavior for new_empty() to return an instance of a different type."
        )
    if not self.is_meta:
        self._own_array("deepcopy()")
    new = remade(type(self), _copied(self._cell, memo), self._requires_grad)
    memo[id(self)] = new
    new.__dict__.update(copy.deepcopy(self.__dict__, memo))
    new._grad = copy.deepcopy(self._grad, memo)
    return new


def _copied(cell: Cell, memo: dict[int, Any]) -> Cell:
    """`cell` on a copy of its root: one for all tensors of a `copy.deepcopy` that share it."""
    if isinstance(cell, DataCell):
        return _copied(cell.base, memo)
    if not isinstance(cell, ViewCell):
        from compiler_core.tensor.memory.storage import copied_root

        return copied_root(cell, memo)
    base = _copied(cell.base, memo)
    return ViewCell(base, cell.op, cell.attrs, bind(cell.op, base.current(), **cell.attrs))


def rebuild_as(
    kind: type[Tensor], array: Array, requires_grad: bool, place: Device = cpu, order: Order | None = None
) -> Tensor:
    """A leaf of class `kind` that holds `array`, on `place`; its dims lie in this order, None: row-major."""
    cell = cell_of(array if place is cpu else check_device(place).put(array))
    return remade(kind, cell if order is None else laid(cell, order), requires_grad)


def remade(kind: Any, *given: Any) -> Tensor:
    """An instance of `kind` (cell, requires_grad), without running code of its own."""
    base: Any = next(base for base in kind.__mro__ if is_tensor(base))
    return base.__new__(kind, *given)  # type: ignore[no-any-return]


def reduced(self: Tensor, protocol: object) -> tuple[Any, ...]:
    """What pickle keeps."""
    value = self._read() if self.is_meta else self._array("pickling")
    place: tuple[Any, ...] = () if self.device.type != "cuda" else (self.device,)
    if not self._cell.is_ordered:
        place = (*(place or (cpu,)), order_for(self._cell, None))
    return rebuild_as, (type(self), value, self.requires_grad, *place), (self.__dict__ or None)


def set_state(self: Tensor, state: dict[str, Any]) -> None:
    """Give a Tensor that pickle has made its attributes."""
    self.__dict__.update(state)
