"""Who else can see an array: whether the value of a cell may be overwritten, because the cell alone refers to it.

In: a cell. Out: the array that a new value of it may be written to: its own, or a fresh one.
Values are immutable to everybody who can look at them. An array that only its cell refers to is looked at by nobody
else, so a pointwise update may reuse its memory: no second buffer, and no page faults for a fresh one.

An array qualifies if it owns its memory (a view would change its base), is writable, C-contiguous, and has exactly the
references that a cell and the asking expression hold: the number is measured, not assumed. Saved operands of a tape,
views, NumPy aliases and other cells all count as references, and then the value stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from sys import getrefcount
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.device import device_of
from compiler_core.ops.registry import Array
from compiler_core.tensor.memory.cell import Cell, DeviceCell


def _references(cell: Cell) -> int:
    return getrefcount(cell.value)


_ALONE = _references(Cell(np.zeros(1)))


def is_sole_owner(cell: Cell) -> bool:
    """Whether nothing but `cell` refers to its array, and its memory is its own. Hold no reference while asking."""
    if cell.root is not cell or _references(cell) != _ALONE:
        return False
    flags = cell.value.flags  # refers to the array: counted before this line
    if not (flags.owndata and flags.c_contiguous):
        return False
    return bool(flags.writeable) if type(cell.value) is np.ndarray else is_alone_on_device(cell.value)


def is_writeable(array: Array) -> bool:
    """Whether an array may be written to: one of a device may."""
    return type(array) is not np.ndarray or bool(array.flags.writeable)


def is_alone_on_device(array: Array) -> bool:
    """Whether it lies in one piece, and no other array has its memory: CuPy's views refer to that, not to the array."""
    if not array.flags.c_contiguous:
        return False
    pointer: Any = array.data
    return (getrefcount(pointer), getrefcount(pointer.mem)) == _alone_on_device(cuda.module())


@cache
def _alone_on_device(module: Any) -> tuple[int, int]:
    array = module.empty(1)
    pointer = array.data  # which the array refers to
    return getrefcount(pointer), getrefcount(pointer.mem)


# whether an array is one that a pool of compiled code hands out again when nobody else holds it; they say so themselves
POOLS: list[Callable[[Array], bool]] = []
_WORTH_ASKING_NBYTES = 65536  # below, a copy costs less than to ask all pools


def is_pools_alone(cell: Cell) -> bool:
    """Whether only `cell` and a pool hold its array: nobody else gets it for as long as the cell has it."""
    if cell.raw.nbytes < _WORTH_ASKING_NBYTES or _references(cell) != _ALONE + 1:
        return False
    return type(cell.raw) is np.ndarray and cell.raw.flags.c_contiguous and any(knows(cell.raw) for knows in POOLS)


def destinations(cells: Sequence[Cell | None]) -> list[Array | None]:
    """`destination` of each; None of None."""
    found: list[Array | None] = []
    alone = _alone_on_device(cuda.module()) if any(type(cell) is DeviceCell for cell in cells) else None
    for cell in cells:
        if type(cell) is DeviceCell and getrefcount(cell.raw) == _ALONE:
            flags, pointer = cell.raw.flags, cell.raw.data
            if flags.owndata and flags.c_contiguous and (getrefcount(pointer), getrefcount(pointer.mem)) == alone:
                found.append(cell.raw)
                continue
        found.append(None if cell is None else destination(cell))
    return found


def destination(cell: Cell) -> Array:
    """Where a pointwise update may write the cell's next value.

    Over the present one if nobody else sees it, or if whoever does is to see the next one too: lent memory.
    """
    if is_sole_owner(cell) or (cell.is_lent and is_writeable(cell.value)):
        array: Array = cell.value
        return array
    return device_of(cell.value).empty(cell.value.shape, cell.value.dtype)  # type: ignore[no-any-return]
