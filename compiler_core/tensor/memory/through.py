"""Writing through a view into memory that nobody else looks at: the rest of the storage stays where it is.

In: a storage, a view of it, the view's new value. Out: whether it was written. Values are immutable to everybody who
can look at them (ownership.py), so a write through a view makes the storage anew, as large as it is. Where all
references to its array are those of the storage and of the views from it down to this one, nobody could tell.
Limits: arrays of the CPU that own their memory, from a size on where the copy costs more than asking.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

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
    if type(value) is not np.ndarray or type(root.raw) is not np.ndarray or root.raw.nbytes < LEAST:
        return False
    if view.seen != root.stamp or not _is_window(root, view, value):
        return False
    if value.base is root.raw and value.strides == view.raw.strides and _address(value) == _address(view.raw):
        return True  # what stands there: of `x[k] += y`
    if _references(view) != _ALONE:
        return False
    beside, cell = 0, view
    while cell is not root:
        beside += cell.raw.base is root.raw
        cell = cell.base  # type: ignore[assignment]
    if _references(root) != _ALONE + beside:
        return False
    np.copyto(view.raw, value)
    return True


def _address(array: Any) -> int:
    place: int = array.__array_interface__["data"][0]
    return place


def _is_window(root: Cell, view: ViewCell, value: Any) -> bool:
    """Whether the view's array is a part of the storage's, no element twice, and may be written."""
    shown, flags = view.raw, root.raw.flags
    fits = shown.base is root.raw and shown.shape == value.shape and shown.dtype == value.dtype
    return fits and flags.owndata and flags.c_contiguous and shown.flags.writeable and 0 not in shown.strides
