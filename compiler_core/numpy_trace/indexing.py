"""Reading and writing traced arrays by index, as NumPy reads an index.

In: a traced array, an index: ints, slices, None, Ellipsis, arrays and lists of ints or bools, traced or not. Out: a
view (ints and slices), or a copy (arrays); what is written. What a mask selects has no known shape: reading by a traced
mask is a GraphBreak; writing what needs not be counted is a `where`.
Slices that run backwards become forward ones of a flipped copy.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import TracedArray, View, not_traced
from compiler_core.numpy_trace.known import constant, known_value
from compiler_core.numpy_trace.operands import cast, filled, holds_traced, is_number, shape_of, tensor_of
from compiler_core.ops import functional as F
from compiler_core.ops.registry import current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.methods.indexing import get_item as tensor_get_item
from compiler_core.tensor.methods.indexing import index_put
from compiler_core.tensor.methods.indexing import set_item as tensor_set_item
from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Index:
    """An index as Tensors take it. flipped: the axes of the array to reverse first.

    is_view: whether NumPy gives a view. is_copy_here: whether that is a copy here. mask: the one traced mask that it
    is.
    """

    entries: tuple[Any, ...]
    flipped: tuple[int, ...]
    is_view: bool
    is_copy_here: bool
    has_ellipsis: bool
    mask: Tensor | None


def parse(array: TracedArray, index: Any) -> Index:
    """Read `index`. Raises IndexError as NumPy, GraphBreak for field names."""
    entries = [_entry(e) for e in (index if type(index) is tuple else (index,))]
    advanced = any(_is_array(e) and e.shape != () for e in entries)
    traced_place = any(isinstance(e, Tensor) and not e._cell.raw.shape for e in entries)
    if advanced:  # then ints are arrays, and broadcast with the others
        entries = [_one(e) for e in entries]
    flipped: list[int] = []
    axis = 0
    used = sum(_axes(e) for e in entries)
    for place, entry in enumerate(entries):
        if isinstance(entry, slice):
            size = array.shape[axis] if axis < array.ndim else 0
            entry = slice(*(None if e is None else operator.index(e) for e in (entry.start, entry.stop, entry.step)))
            if entry.step is not None and entry.step < 0:
                flipped.append(axis)
                entry = _forward(entry, size)
            entries[place] = entry
        axis += array.ndim - used if entry is Ellipsis else _axes(entry)
    masks = [e for e in entries if isinstance(e, Tensor) and e.dtype.kind == "b"]
    return Index(
        tuple(entries),
        tuple(flipped),
        not advanced,
        bool(flipped) or (traced_place and not advanced),
        any(e is Ellipsis for e in entries),
        masks[0] if masks and len(entries) == 1 else None,
    )


def _entry(entry: Any) -> Any:
    """One entry: an int, a slice, None, Ellipsis, a bool, an array, or a Tensor if it is traced."""
    if entry is None or entry is Ellipsis or isinstance(entry, (slice, bool)) or type(entry) is int:
        return entry
    if isinstance(entry, str):
        raise not_traced("an array with fields")
    if type(entry) is TracedArray or isinstance(entry, Tensor) or holds_traced(entry):
        return _traced_entry(tensor_of(entry))
    array = np.asarray(entry)
    if array.size == 0 and isinstance(entry, (list, tuple)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean "
                         "arrays are valid indices")  # fmt: skip
    if array.shape == ():
        return bool(array) if array.dtype.kind == "b" else int(array)
    return array if array.dtype.kind == "b" else array.astype(np.int64)


def _traced_entry(tensor: Tensor) -> Any:
    if tensor.dtype.kind not in "biu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    array = known_value(tensor) if current_trace() is not None else None
    if array is not None:
        return _entry(array)
    if tensor.dtype.kind == "b" and not tensor._cell.raw.shape:
        raise not_traced("a traced bool as an index")
    return tensor if tensor.dtype.kind == "b" else cast(tensor, np.int64)


def _is_array(entry: Any) -> bool:
    return isinstance(entry, (np.ndarray, Tensor))


def _one(entry: Any) -> Any:
    """A number, as an array of one: a Tensor would take the number, or an array of no dims, as torch does, first."""
    if type(entry) is int:
        return np.asarray([entry])
    return F.reshape(entry, 1) if isinstance(entry, Tensor) and shape_of(entry) == () else entry


def _axes(entry: Any) -> int:
    """How many axes of the array an entry takes up."""
    if entry is None or entry is Ellipsis or isinstance(entry, bool):
        return 0
    if _is_array(entry) and entry.dtype.kind == "b":
        return len(shape_of(entry)) if isinstance(entry, Tensor) else entry.ndim
    return 1


def _forward(backward: slice, size: int) -> slice:
    """The slice of the flipped axis that names the same elements in the same order."""
    start, stop, step = backward.indices(size)
    return slice(size - 1 - start, max(size - 1 - stop, 0), -step) if start >= 0 else slice(0, 0, -step)


def get_item(array: TracedArray, index: Any) -> Any:
    """array[index]."""
    if array.is_scalar and index not in ((), Ellipsis):
        raise IndexError("invalid index to scalar variable.")
    parsed = parse(array, index)
    source = array.tensor
    known = known_value(source) if current_trace() is not None else None
    if known is not None and not any(isinstance(entry, Tensor) for entry in parsed.entries):
        taken = np.flip(known, parsed.flipped)[parsed.entries]
        if not isinstance(taken, np.ndarray):
            return taken
        if not parsed.is_view:
            return TracedArray(constant(taken))
    tensor = tensor_get_item(F.flip(source, parsed.flipped) if parsed.flipped else source, parsed.entries)
    if not shape_of(tensor) and not parsed.has_ellipsis:
        return TracedArray(tensor.clone(), is_scalar=True)
    if not parsed.is_view:
        return TracedArray(tensor)
    before = array.stands_for
    if not parsed.is_copy_here and before is None:
        return TracedArray(tensor)
    root = source._cell.root if before is None else before.root
    return TracedArray(tensor, stands_for=View(root, root.stamp, operator.getitem, (array, index), {}))


def set_item(array: TracedArray, index: Any, value: Any) -> None:
    """array[index] = value."""
    target = array.writable()
    parsed = parse(array, index)
    value = apart(target, _value(value, array.dtype))
    if parsed.flipped:
        turned = F.flip(target, parsed.flipped)
        _write(turned, parsed, value)
        target.copy_(F.flip(turned, parsed.flipped))
    else:
        _write(target, parsed, value)


def apart(target: Tensor, value: Tensor) -> Tensor:
    """The value, in memory of its own: NumPy reads all of it before it writes."""
    return value.clone() if value._cell.root is target._cell.root else value


def _write(target: Tensor, index: Index, value: Tensor) -> None:
    mask = index.mask
    if mask is not None and current_trace() is not None:
        _write_where(target, mask, value)
        return
    tensor_set_item(target, index.entries, value)


def _write_where(target: Tensor, mask: Tensor, value: Tensor) -> None:
    """Write one value, or one row, to all places where a mask of the leading axes holds."""
    rest = target.ndim - mask.ndim
    surplus = max(value.ndim - rest, 0)
    if any(n != 1 for n in shape_of(value)[:surplus]):
        raise not_traced("writing as many values as a traced mask selects", remedy="use np.where")
    full = F.reshape(mask, (*mask.shape, *(1,) * rest))
    target.copy_(F.where(full, F.reshape(value, shape_of(value)[surplus:]), target))


def _value(value: Any, dtype: np.dtype[Any]) -> Tensor:
    """What is written, in the array's dtype: NumPy casts without asking."""
    if is_number(value) and dtype.kind in "biuf":
        if type(value) is complex:
            raise TypeError("float() argument must be a string or a real number, not 'complex'")
        return filled((), value, dtype)
    return cast(tensor_of(value), dtype)


def add_at(array: TracedArray, index: Any, value: Any) -> None:
    """np.add.at: index_put that accumulates."""
    target = array.writable()
    parsed = parse(array, index)
    if parsed.flipped or parsed.mask is not None:
        raise not_traced("np.add.at with a mask or a slice that runs backwards")
    value = _value(value, array.dtype)
    target.copy_(index_put(target, parsed.entries, value, accumulate=True))
