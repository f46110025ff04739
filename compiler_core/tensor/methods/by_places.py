"""`x[index]` and `x[index] = value` by index tensors, at once: NumPy's own indexing, where nothing is recorded.

In: an eager Tensor of the CPU whose dims lie in order; an index of one mask, or of tensors of places that stand side by
side, among slices that go forward; to write, ints and slices, too. Out: what the general way
(`ops/indexing/composite.py`) gives: a new Tensor, or the new value put in place; or None, or False, and nothing has
happened: for a trace, while somebody looks at ops, where a gradient is asked for, for other indices, and for those that
are wrong: the general way says so. NumPy reads such indices as torch does; beside an int it would not, and it keeps the
order of what it read in memory, where torch's is row-major. It checks all places before it writes to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.ops.registry import Array, Telling
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.autograd.inference import made
from compiler_core.tensor.memory.cell import Cell, alone
from compiler_core.tensor.memory.ownership import is_sole_owner
from compiler_core.tensor.straight import array_of

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

INTS_AND_SLICES = frozenset((int, slice))
FEW_NBYTES = 1 << 16  # of a tensor that is copied, where others may see it
FINITE = 1e30  # below which numbers are finite in f32 and f64
_REFUSED = (IndexError, TypeError, ValueError)


def read(self: Tensor, index: Any) -> Tensor | None:
    """`self[index]`, or None."""
    value = _array(self)
    if value is None or (thread_mode.enabled and self._edge() is not None):
        return None
    places = _places(index, value)
    if places is None:
        return None
    try:
        found = value[places]
    except _REFUSED:
        return None
    result = self._of_array(np.ascontiguousarray(found))  # not `_wrap`, which torchvision's subclasses define
    if Inference.entered and not thread_mode.enabled:
        made(result._cell)
    return result


def write(self: Tensor, index: Any, value: Any) -> bool:
    """Whether `self[index] = value` has been done."""
    target = _array(self)
    cell: Any = self._cell
    if target is None or type(cell) is not Cell or self._view is not None or Inference.in_use:
        return False
    if self._node is not None or self._requires_grad:
        return False
    is_basic = INTS_AND_SLICES.issuperset(map(type, index if type(index) is tuple else (index,)))
    places = _places(index, target) if not is_basic else index if _go_forward(index) else None
    given = None if places is None else _given(value, target)
    if given is None:
        return False
    nbytes = target.nbytes
    del target  # else it has two users
    with alone(cell):
        is_alone = is_sole_owner(cell)
        if is_basic and not is_alone and nbytes > FEW_NBYTES:  # the general way may write to a part
            return False
        array = cell.raw if is_alone else cell.raw.copy()
        try:
            if np.ndim(given) > (array[places].ndim if is_basic else _ndim(places, array)):
                return False
            array[places] = given
        except _REFUSED:
            return False
        cell.write(array)
    return True


def _array(tensor: Any) -> Array | None:
    """Its array, of the host and row-major; None of others, and for who learns what a call comes to."""
    value = array_of(tensor)
    is_usual = type(value) is np.ndarray and value.dtype.kind in "fiubc" and tensor._cell.is_ordered
    return value if is_usual and not Telling.count else None


def _given(value: Any, target: Array) -> Any:
    """What is to be written: a number that the dtype holds, or an array of the dtype without a history."""
    kind, dtype = type(value), target.dtype
    if kind is float or kind is int:
        if dtype.kind == "f":
            return value if dtype.itemsize > 2 and abs(value) < FINITE else None
        is_held = kind is int and dtype.kind in "iu" and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
        return value if is_held else None
    array = array_of(value) if hasattr(value, "_cell") else None
    if type(array) is not np.ndarray or array.dtype != dtype or np.may_share_memory(array, target):
        return None
    return None if thread_mode.enabled and value._edge() is not None else array


def _places(index: Any, value: Array) -> Any:
    """The index with arrays for tensors; None where it is none of these."""
    if type(index) is not tuple:
        found = _place(index)
        if found is None or not value.ndim:
            return None
        return found if found.dtype.kind != "b" or found.shape == value.shape[: found.ndim] else None
    parts = [part if type(part) is slice else _place(part) for part in index]
    are_slices = [type(part) is slice for part in parts]
    groups = sum(not here and (k == 0 or are_slices[k - 1]) for k, here in enumerate(are_slices))
    if groups != 1 or len(parts) > value.ndim or any(part is None for part in parts):
        return None
    if any(type(part) is np.ndarray and part.dtype.kind == "b" for part in parts) or not _go_forward(index):
        return None
    return tuple(parts)


def _place(part: Any) -> Array | None:
    """The array of an index tensor: a mask, or places; not of a mask of old (uint8)."""
    array = array_of(part) if hasattr(part, "_cell") else None
    if type(array) is not np.ndarray or not array.ndim or not array.size:
        return None
    if array.ndim > 1 and not array.flags.c_contiguous:  # what is read lies as the index does
        return None
    return array if array.dtype == np.int64 or array.dtype.kind == "b" else None


def _go_forward(index: Any) -> bool:
    """Whether slices among the parts are of ints, and go forward."""
    slices = [part for part in (index if type(index) is tuple else (index,)) if type(part) is slice]
    return all(
        _ENDS.issuperset((type(part.start), type(part.stop), type(part.step))) and (part.step is None or part.step > 0)
        for part in slices
    )


_ENDS = frozenset((int, type(None)))


def _ndim(places: Any, value: Array) -> int:
    """The number of dims of `value[places]`."""
    if type(places) is not tuple:
        own: int = 1 - places.ndim if places.dtype.kind == "b" else places.ndim - 1
        return value.ndim + own
    arrays = [part for part in places if type(part) is np.ndarray]
    return value.ndim - len(arrays) + max(array.ndim for array in arrays)
