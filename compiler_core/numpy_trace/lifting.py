"""Where traced arrays meet real ones: an array of the caller's as a value to trace, and results as real arrays.

In: ndarrays (arguments, or what else traced code reads from outside), Tensors that hold results. Out: Tensors on the
caller's memory, or, where the default device is a CUDA device, on its copy there; ndarrays and NumPy scalars.
Invariants: a write to a lifted array reaches the caller's memory, when the graph has run; a result has memory of its
own (which results that are views of one another share) unless it is, or is a view of, the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.device import Device, check_device, default_device
from compiler_core.dtype import of
from compiler_core.errors import DTypeError
from compiler_core.numpy_trace.array import not_traced
from compiler_core.ops.registry import Array, Value, bind, current_trace, use_trace
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell
from compiler_core.tensor.memory.lent import LentCell, is_computed, memory, storage_on
from compiler_core.tensor.memory.views import Strides
from compiler_core.tensor.tensor import Tensor


class ArrayCell(LentCell):
    """A cell on an array of the caller's with strides of its own, which may be negative."""

    __slots__ = ()

    @property
    def is_dense(self) -> bool:  # type: ignore[override]
        """Whether the elements lie in order, without gaps."""
        return bool(self.raw.flags.c_contiguous)

    @property
    def is_ordered(self) -> bool:  # type: ignore[override]
        """Whether they lie in order, but for gaps."""
        return self.is_dense

    def strides(self) -> Strides:
        itemsize = self.raw.dtype.itemsize
        return tuple(step // itemsize for step in self.raw.strides)


class DeviceArrayCell(DeviceCell):
    """A copy of the caller's array on a CUDA device; what is written goes into the caller's, too."""

    __slots__ = ("host",)

    def __init__(self, array: Array, place: Device) -> None:
        super().__init__(place.put(array))
        self.host = array

    def put(self, value: Value) -> None:
        if not self.host.flags.writeable:
            raise ValueError("assignment destination is read-only")
        super().put(value)
        if current_trace() is None:
            np.copyto(self.host, cuda.fetch(value))


def why_not(array: Array) -> str:
    """What an array is that no Tensor can stand for; empty for all others."""
    try:
        of(array.dtype)
    except DTypeError:
        return f"an array of dtype {array.dtype}"
    if type(array) is not np.ndarray:
        return f"a {type(array).__name__}, a subclass of ndarray,"
    steps = [step for step, size in zip(array.strides, array.shape) if size > 1 and array.size]
    if any(step % array.itemsize for step in steps) or (array.flags.writeable and 0 in steps):
        return "an array whose elements overlap"
    return ""


def lift(array: Array) -> Tensor:
    """A Tensor on the caller's array, or its copy on the default device. Raises GraphBreak for what cannot be one."""
    if why := why_not(array):
        raise not_traced(why)
    place = check_device(default_device())
    if place.is_gpu:
        return Tensor._from_cell(DeviceArrayCell(array, place))
    is_plain = array.flags.c_contiguous and array.size > 0
    return Tensor._from_cell(storage_on(array) if is_plain else ArrayCell(array))


def callers(handle: Tensor) -> Array:
    """The caller's array that `lift` was given."""
    cell = handle._cell
    return cell.host if isinstance(cell, DeviceArrayCell) else cell.raw


def lift_number(number: Any) -> Tensor:
    """A 0-d Tensor of one of NumPy's numbers."""
    return Tensor._from_cell(Cell(np.array(number)))


def to_result(tensor: Tensor, is_scalar: bool, is_outside: bool) -> Any:
    """What eager code would have: an ndarray, or a NumPy scalar. tensor: real, after the graph has run.

    is_outside: the memory was there before. Then the result is the caller's array, or a view of it, or of a Tensor's
    memory; otherwise it has memory of its own.
    """
    cell = tensor._cell
    root = cell.root
    if isinstance(root, DeviceCell):
        if is_outside:
            return _outside_on_device(cell)
        _bring(root)
    if is_scalar:
        return np.array(cell.current())[()]
    if is_computed(cell):  # a conjugate
        return cell.taken()
    return cell.current() if isinstance(root, ArrayCell) or (cell is root and root.is_lent) else memory(cell)


def _bring(root: DeviceCell) -> None:
    """Have the root of results, made on a device, hold its value on the host; views of it are taken anew."""
    root.raw = cuda.fetch(root.current())
    root.__class__ = Cell  # type: ignore[assignment]
    root.stamp += 1


def _outside_on_device(cell: Cell) -> Array:
    """The caller's array, or a view of it, of one copied to a device; of a Tensor there, a read-only copy."""
    if isinstance(cell.root, DeviceArrayCell):
        return _host_view(cell)
    array: Array = cuda.fetch(cell.current())
    array.flags.writeable = False
    return array


def _host_view(cell: Cell) -> Array:
    if isinstance(cell, ViewCell):
        with use_trace(None):
            view: Array = bind(cell.op, _host_view(cell.base), **cell.attrs)
        return view
    assert isinstance(cell, DeviceArrayCell)
    return cell.host


def regain(function: Callable[..., Any], args: Any, kwargs: dict[str, Any], place: int | None) -> Any:
    """The view that a copy stood for, made by NumPy of real arrays."""
    result = function(*args, **kwargs)
    return result if place is None else result[place]
