"""Writing through a view into memory that nobody else looks at: the rest of the storage stays where it is.

In: a storage, a view of it, the view's new value. Out: whether it was written. Values are immutable to everybody who
can look at them (ownership.py), so a write through a view makes the storage anew, as large as it is. Where all
references to its array are those of the storage and of the views from it down to this one, nobody could tell.
On a CUDA device memory is looked at by pointers, too: all references to it and to them must be those of these arrays.
Limits: arrays that own their memory, from a size on where the copy costs more than asking.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import cuda

if TYPE_CHECKING:
    from compiler_core.tensor.memory.cell import Cell, ViewCell

LEAST = 4096  # bytes


class _Holder:
    """Has one reference to an array, as a cell has."""

    __slots__ = ("raw",)

    def __init__(self) -> None:
        self.raw = np.zeros(1)


def _references(holder: Any) -> int:
    return getrefcount(holder.raw)


_ALONE = _references(_Holder())


def write_through(root: Cell, view: ViewCell, value: Any) -> bool:
    """Put `value` into the memory that `view` shows of `root`."""
    kind = type(root.raw)
    if type(value) is not kind or view.seen != root.stamp or root.raw.nbytes < LEAST:
        return False
    is_there = kind is not np.ndarray
    if (is_there and not cuda.is_array(value)) or not _is_window(root, view, value):
        return False
    if value.base is root.raw and value.strides == view.raw.strides and _address(value) == _address(view.raw):
        return True  # what stands there: of `x[k] += y`
    if _references(view) != _ALONE:
        return False
    parts = [root.raw, view.raw]
    cell = view.base
    while cell is not root:
        if cell.raw.base is root.raw:
            parts.append(cell.raw)
        cell = cell.base  # type: ignore[attr-defined]
    if _references(root) != _ALONE + len(parts) or (is_there and _users(parts) != _USERS):  # views, and this list
        return False
    if is_there:
        with cuda.on(value.data.device_id):
            view.raw[...] = value
    else:
        np.copyto(view.raw, value)
    return True


def _address(array: Any) -> int:
    place: int = array.__array_interface__["data"][0] if type(array) is np.ndarray else array.data.ptr
    return place


def _users(parts: list[Any]) -> tuple[int, int]:
    """References to the memory of a device's arrays beyond those of their pointers, and to these beyond the arrays'."""
    pointers = [one.data for one in parts]
    apart = {id(one): one for one in pointers}
    memory = pointers[0].mem
    beyond = [getrefcount(one) - 2 * sum(other is one for other in pointers) for one in apart.values()]
    return getrefcount(memory) - len(apart), max(beyond)


class _Pointer:
    __slots__ = ("mem",)

    def __init__(self) -> None:
        self.mem = object()


class _Part:
    """Has a pointer, as an array of a device has."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = _Pointer()


_USERS = _users([_Part()])


def _is_window(root: Cell, view: ViewCell, value: Any) -> bool:
    """Whether the view's array is a part of the storage's, no element twice, and may be written."""
    shown, flags = view.raw, root.raw.flags
    fits = shown.base is root.raw and shown.shape == value.shape and shown.dtype == value.dtype
    is_writeable = type(shown) is not np.ndarray or shown.flags.writeable
    return fits and flags.owndata and flags.c_contiguous and is_writeable and 0 not in shown.strides
