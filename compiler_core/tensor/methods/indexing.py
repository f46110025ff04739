"""Reading and writing by index: `x[index]`, `x[index] = value`, for every index NumPy and torch share.

In: a Tensor, an index, a value that broadcasts to what the index selects. Out: a view (basic index) or a new Tensor;
for writing, the new value assigned in place. A basic index (integers, slices, None, Ellipsis) is a view, and the
write goes through it. In eager code a tensor of one whole number counts as that number; a trace, which does not know
it, copies. Other index tensors are handed on as arrays, so that eager code checks them by their data; while tracing
they stay nodes, and a mask is a graph break, except where one value is written: that is a `where`. Where an index names
a place twice, the last value stays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.cuda import is_array, lone
from compiler_core.dtype import DType
from compiler_core.errors import DeviceError, DTypeError, GraphBreak, ShapeError
from compiler_core.location import user_location
from compiler_core.ops import functional as F
from compiler_core.ops.indexing.composite import BASIC, as_tuple, check_masks
from compiler_core.ops.indexing.known import rows_at
from compiler_core.ops.indexing.op import KNOWN_THERE
from compiler_core.ops.lying import as_told
from compiler_core.ops.refusals import need_mask
from compiler_core.ops.registry import Telling, Value, current_trace, meta_of
from compiler_core.tensor.autograd.grad_mode import Inference
from compiler_core.tensor.memory.cell import Cell, DeviceCell, PickedCell, alone
from compiler_core.tensor.memory.layout import is_rows
from compiler_core.tensor.memory.own_views import own_view
from compiler_core.tensor.memory.ownership import is_sole_owner
from compiler_core.tensor.memory.through import LEAST
from compiler_core.tensor.methods import by_places
from compiler_core.tensor.straight import array_of, indexed
from compiler_core.tensor.torch_names import check_out, write_out

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


_get = own_view(F.getitem)


def get_item(self: Tensor, index: Any) -> Tensor:
    """`self[index]`."""
    made = indexed(self, index)
    if made is not None:
        return made
    made = _rows_at(self, index)
    if made is None:
        made = by_places.read(self, index)
    if made is not None:
        return made
    parts = index if type(index) is tuple else (index,)
    if _are_places(self, parts):
        return F.getitem(self, index)  # type: ignore[no-any-return]
    _check_steps(parts)
    if not BASIC.issuperset(map(type, parts)):
        read = _with_numbers(_as_torch_reads(index))
        if read is not index and (made := indexed(self, read)) is not None:
            return made
        if current_trace() is not None and _picks(read):
            return _picked(self, read)
        index = _prepared(read, self)
    return _get(self, index)  # type: ignore[no-any-return]


def _rows_at(self: Tensor, index: Any) -> Tensor | None:
    """`self[index]`, of a tensor of the lone device and one of places there that are known to be in range."""
    cell = getattr(index, "_cell", None)
    if type(cell) is not DeviceCell or not self._cell.is_ordered or Telling.count:  # who learns does not learn this
        return None
    x: Any = array_of(self)
    places: Any = cell.raw
    kind: Any = lone.array
    if type(x) is not kind or type(places) is not kind or not x.ndim or x.dtype.kind not in "fV":
        return None
    if places.dtype != _INT64 or not places.ndim or not places.size or not KNOWN_THERE.get()(cell, len(x)):
        return None
    return rows_at(self, index)  # type: ignore[no-any-return]


_INT64 = np.dtype(np.int64)


def _are_places(indexed: Tensor, parts: tuple[Any, ...]) -> bool:
    """Whether an eager index consists of Tensors of places alone, all of the CPU: calls that are remembered."""
    if current_trace() is not None or not parts:
        return False
    for part in (indexed, *parts):
        cell = getattr(part, "_cell", None)
        if cell is None or type(cell.raw) is not np.ndarray or not cell.is_ordered:
            return False
        if part is not indexed and (cell.raw.dtype.kind != "i" or not cell.raw.ndim):
            return False
    return True


def _picks(index: Any) -> bool:
    """Whether a Tensor without dims, of whole numbers, is all that keeps it from being basic: eager code has a view."""
    parts = index if isinstance(index, tuple) else (index,)
    others = tuple(p for p in parts if not (hasattr(p, "_cell") and not p.ndim and _is_number(p.dtype)))
    return len(others) < len(parts) and _is_basic(others)


def _is_number(dtype: DType) -> bool:
    return dtype.kind in "iu" and dtype is not dt.uint8


def _picked(self: Tensor, index: Any) -> Tensor:
    """`self[index]` in a graph: a copy. Where a capture has learnt that such a one is written, or read after `self`
    was, the graph ends here."""
    trace: Any = current_trace()
    if getattr(trace, "wrote_picked", None) is None:
        return _get(self, _prepared(index, self))  # type: ignore[no-any-return]
    if not trace.takes_picked:
        raise GraphBreak(
            "a number in a tensor selects a view, which is written in place, or read after the whole was",
            where=user_location(),
            remedy="write x[i] = ... or x[i] += ..., clone() what is to stay as it was, or index by int(i)",
        )
    made: Tensor = _get(self, _prepared(index, self))
    root = made._cell.root
    if type(root) is Cell and root is not self._cell.root and not root.is_external:
        PickedCell.keep(root, self._cell.root)
    return made


def _check_steps(parts: tuple[Any, ...]) -> None:
    """Raise ShapeError, a ValueError, for a slice that does not go forward: torch has no negative strides."""
    for part in parts:
        if type(part) is slice and type(part.step) is int and part.step <= 0:
            raise ShapeError("step must be greater than zero", got=str(part.step), remedy="use flip()")


def set_item(self: Tensor, index: Any, value: Any) -> None:
    """`self[index] = value`."""
    if _set_number(self, index, value) or by_places.write(self, index, value):
        return
    if isinstance(value, complex) and not self.dtype.is_complex:
        raise DTypeError("a complex number cannot be written into a real tensor", got=str(value))
    _check_steps(index if type(index) is tuple else (index,))
    index = _with_numbers(_as_torch_reads(index))
    if _is_basic(index):
        selected = get_item(self, index)
        if dt.number_type(value) is not None:  # of the dtype that is written to, not of its own
            selected.fill_(_number(value, self))
            return
        selected.copy_(_without_leading_ones(value, selected.ndim))
        return
    check_masks(as_tuple(index), tuple(self.shape))
    operand = _operand(_number(value, self), self)
    beside = _mask_beside(index)
    if beside >= 0 and current_trace() is not None and _is_one(operand):
        _set_by_mask_beside(self, index, beside, operand)
        return
    self._check_in_place()
    with alone(self._cell):
        if _is_mask(index) and _is_one(operand):
            self._assign(_masked(self._snapshot(), index, operand))
        else:
            self._assign(F.setitem(self._snapshot(), _prepared(index, self), operand))


def _set_number(self: Tensor, index: Any, value: Any) -> bool:
    """Whether a number was put into a part of a small tensor of the lone device, of which nothing is recorded."""
    parts = index if type(index) is tuple else (index,)
    if type(self._cell) is not DeviceCell or type(value) not in (int, float):
        return False
    if not by_places.INTS_AND_SLICES.issuperset(map(type, parts)):
        return False
    array: Any = array_of(self)
    kind: Any = lone.array
    if type(array) is not kind or self._view is not None or self._node is not None or self._requires_grad:
        return False
    is_usual, nbytes = array.dtype.kind == "f" and array.itemsize > 2 and abs(value) < by_places.FINITE, array.nbytes
    del array  # else it has two users
    is_alone = nbytes >= LEAST and is_sole_owner(self._cell)
    is_usual = is_usual and (is_alone or nbytes <= by_places.FEW_NBYTES)
    if not is_usual or Inference.in_use or any(type(part) is slice and part.step is not None for part in parts):
        return False
    made: Any = self._cell.raw if is_alone else self._cell.raw.copy()
    try:
        made[index] = value
    except (IndexError, TypeError, ValueError):  # the general way says why
        return False
    self._cell.write(made)
    return True


def index_put(self: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy with `values` put (or added) at `self[indices]`."""
    made = F.setitem(self, _prepared(tuple(indices), self), _operand(values, self), accumulate=accumulate)
    return as_told("first", made, (self,))  # type: ignore[no-any-return]


def masked_select(self: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where mask holds, flat. Cannot be traced."""
    need_mask("masked_select", mask)
    shape = np.broadcast_shapes(meta_of(self).shape, meta_of(mask).shape) or (1,)
    found = get_item(F.expand(self, shape), F.expand(mask, shape))
    if out is None:
        return found
    check_out("masked_select", out, (self, mask))
    return write_out(out, found, "gather")  # type: ignore[no-any-return]


def _as_torch_reads(index: Any) -> Any:
    """The index with torch's reading of lists: one of lists, Tensors, slices ... is a tuple; an empty one is int64."""
    if isinstance(index, tuple):
        return tuple((list(e) or np.zeros(0, np.int64)) if isinstance(e, (list, tuple)) else e for e in index)
    if not isinstance(index, list) or len(index) >= _LONGEST_TUPLE_LIST:
        return index
    if any(e is None or e is Ellipsis or isinstance(e, _TUPLE_MAKERS) or hasattr(e, "shape") for e in index):
        return _as_torch_reads(tuple(index))
    return index or np.zeros(0, np.int64)


_LONGEST_TUPLE_LIST = 32  # from here on torch takes a list of lists for one array
_TUPLE_MAKERS = (list, tuple, slice, range)


def _without_leading_ones(value: Any, ndim: int) -> Any:
    """The value less leading dims of size 1 that what is written to does not have."""
    while getattr(value, "ndim", 0) > ndim and value.shape[0] == 1:
        value = value[0]
    return value


def _number(value: Any, like: Tensor) -> Any:
    """A number to write, infinite where a 16-bit float is so small that it is not refused; anything else as it is."""
    if dt.number_type(value) is not float or like.dtype.compute is like.dtype or dt.fits(like.dtype, value):
        return value
    return math.copysign(math.inf, value)


def _with_numbers(index: Any) -> Any:
    """The index with whole numbers in place of Tensors and arrays of no dims that hold one: they select a view. A trace
    does not know them, nor does a batch have one: there the result is a copy."""
    if isinstance(index, tuple):
        return tuple([_with_numbers(part) for part in index])
    if getattr(index, "ndim", 1) or current_trace() is not None:
        return index
    array = index._read() if hasattr(index, "_cell") else index
    kind = getattr(getattr(array, "dtype", None), "kind", "b")
    known = isinstance(array, np.ndarray) or is_array(array)
    return int(array) if known and kind in "iu" and array.dtype != np.uint8 else index


def _is_basic(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return all(p is None or p is Ellipsis or isinstance(p, (slice, int, np.integer)) for p in parts) and not any(
        isinstance(p, bool) for p in parts
    )


def _is_one(value: Any) -> bool:
    """Whether a value to write is one number."""
    return not hasattr(value, "shape") or meta_of(value).numel == 1


def _mask_beside(index: Any) -> int:
    """The place of the only mask in an index whose other parts are integers, slices and Ellipsis; -1 if it is none."""
    if not isinstance(index, tuple):
        return -1
    places = [k for k, part in enumerate(index) if _is_mask(part) and part.ndim]
    if len(places) != 1 or any(part is None for part in index):
        return -1
    return places[0] if _is_basic(index[: places[0]] + index[places[0] + 1 :]) else -1


def _set_by_mask_beside(self: Tensor, index: tuple[Any, ...], place: int, value: Any) -> None:
    """`self[0, :, mask] = value` of one number: where the mask, over the dims it stands at, holds in that view."""
    mask = index[place]
    window = get_item(self, (*index[:place], *(slice(None),) * mask.ndim, *index[place + 1 :]))
    if any(part is Ellipsis for part in index[:place]):
        behind = sum(isinstance(part, slice) for part in index[place + 1 :])
    else:
        behind = window.ndim - mask.ndim - sum(isinstance(part, slice) for part in index[:place])
    full = F.reshape(mask, (*mask.shape, *(1,) * behind))
    window._check_in_place()
    window._assign(_masked(window._snapshot(), F.expand(full, tuple(window.shape)), value))


def _is_mask(index: Any) -> bool:
    return hasattr(index, "_cell") and index.dtype in (dt.bool_, dt.uint8)  # uint8: torch's masks of old


def _masked(x: Tensor, mask: Tensor, value: Any) -> Value:
    """x with one value where mask, over x's leading dims, holds."""
    if mask.device != x.device and not mask.is_cuda:  # as other indices of the CPU
        mask = mask.to(x.device)
    full = F.reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    full = full if mask.ndim else full.to(dt.bool_)  # torch takes one number of uint8 alone
    return F.masked_fill(x, full, F.reshape(value, ()) if hasattr(value, "shape") else value)


def _operand(value: Any, like: Tensor) -> Any:
    """A value to write: a Tensor or number as it is, NumPy data and lists as a Tensor."""
    from compiler_core.tensor.making.creation import as_tensor

    if hasattr(value, "_cell") or isinstance(value, (bool, int, float)):
        return value
    return as_tensor(value, dtype=like.dtype, device=like.device)


def _prepared(index: Any, indexed: Tensor) -> Any:
    """The index with its Tensors as arrays, unless they are traced. Those of the CPU go where `indexed` is."""
    if isinstance(index, tuple):
        return tuple([_prepared(entry, indexed) for entry in index])
    if isinstance(index, list) and any(hasattr(entry, "_cell") for entry in index):
        return [_prepared(entry, indexed) for entry in index]
    if not hasattr(index, "_cell"):
        return index
    if current_trace() is None:
        if index.is_cuda and index.device is not indexed.device:
            raise DeviceError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({indexed.device})",
                got=str(index.device),
            )
        array = index._read()
        return array.copy() if array.ndim > 1 and index._cell.is_ordered and not is_rows(array) else array
    if _is_mask(index):
        raise GraphBreak(
            "indexing by a mask needs the data of a traced tensor",
            where=user_location(),
            remedy="use where, masked_fill, or multiply by the mask",
        )
    return index
