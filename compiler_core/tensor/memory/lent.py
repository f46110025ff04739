"""Memory lent to or from others (NumPy, DLPack, a file, whoever asked for an address): written in place.

In: arrays of others (`borrow`); storages whose memory others get to see (`lend`). Out: cells on that memory; arrays on
a cell's memory (`memory`).
A value is immutable, so that whoever holds one may keep it. Memory that others see is the exception. Its storage is a
`LentCell`: a write to it, or to a view of it, changes that very memory, and raises stamp and version as any write does;
what others write is seen by all handles, and no version tells, as in torch. A storage that was lent stays so: nobody
knows who still has its address.
Invariants:
- The array of a LentCell is row-major, nobody else's value, and the same one for ever. `lend` copies the value if
  somebody holds it (another cell, the saved values of a compiled call); those go on with the value as it was.
- No value is that memory, or shows it: `read` copies it, an op's result that would show it is copied (`apart`).
  Cells are what may be kept, and the tape keeps cells: their version tells of writes through Tensors, with torch's
  error; writes by others it does not notice, and backward reads what is there then, as in torch.
- Arrays with the same address, shape and dtype have one storage, though each tensor made of them counts its own writes,
  as in torch. Others that overlap have two: capture refuses to write to one beside the other
  (`capture/guards/overlaps.py`).
- Whatever has strides of its own is a view of a row-major storage, which of a borrowed array begins at its first
  element.
Limits: NumPy's memory that may only be read is refused when it is written to (torch writes, or crashes). What a
compiled call saved is its inputs' memory, and otherwise values: a write by NumPy to a result is not seen by its
backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from compiler_core import cuda
from compiler_core.device import array_module, copy_of, device_of
from compiler_core.dtype import of
from compiler_core.errors import DomainError, ShapeError
from compiler_core.log import warn_once
from compiler_core.ops.aliasing import contiguous_strides
from compiler_core.ops.batching.value import Batched, held
from compiler_core.ops.meta_value import MetaValue, no_data
from compiler_core.ops.primitives.strided import overlaps
from compiler_core.ops.registry import OPS, Array, Attrs, Op, Value, bind, current_trace, use_trace
from compiler_core.tensor.memory.cell import Cell, DataCell, DeviceCell, ViewCell, is_outside
from compiler_core.tensor.memory.ownership import is_pools_alone, is_sole_owner, is_writeable


class Lending:
    """in_use: whether any memory was ever lent in this process; who would have to look otherwise need not. is_there:
    whether any of a CUDA device was."""

    in_use = is_there = False


class LentCell(Cell):
    """A storage whose memory others see, too."""

    __slots__ = ()
    is_lent = True

    def put(self, value: Value) -> None:
        if current_trace() is not None:
            check_writeable(self.raw)
            super().put(value)
        elif value is not self.raw:
            _fill(self.raw, value)

    def put_view(self, view: ViewCell, value: Value) -> None:
        if current_trace() is not None or not _overlap(shown := view.current(), self.raw) or type(shown) is Batched:
            super().put_view(view, value)
        elif overlaps(shown.shape, view.strides()):
            super().put_view(view, value)  # says so
        else:
            _fill(_written(shown, self.raw), value)

    def taken(self) -> Value:
        return copy_of(self.raw)

    def shows(self, value: Value) -> bool:
        return not is_outside(value) or _overlap(value, self.raw)


class LentDeviceCell(LentCell, DeviceCell):
    """One on a CUDA device."""

    __slots__ = ()


def _fill(memory: Array, value: Array) -> None:
    """Write `value` into lent memory."""
    check_writeable(memory)
    with device_of(memory).working():
        array_module(memory).copyto(memory, value)


def check_writeable(memory: Array) -> None:
    """Raises DomainError for memory that may only be read."""
    if not is_writeable(memory):
        raise DomainError(
            "assignment destination is read-only: a tensor on memory of NumPy's that may only be read is written to",
            remedy="clone() it first, or make it of an array that may be written to: a copy(), a memmap of mode='r+'",
        )


def _overlap(a: Any, b: Array) -> bool:
    """Whether an array, if it is one, shows memory of another."""
    a = held(a)
    if type(a) is not type(b):
        return False
    return bool(np.may_share_memory(a, b) if type(b) is np.ndarray else cuda.module().may_share_memory(a, b))


def is_lent(cell: Cell) -> bool:
    """Whether others see the memory of `cell`."""
    return cell.root.is_lent


def overlap(a: Cell, b: Cell) -> bool:
    """Whether two storages, both lent, have memory in common."""
    a, b = a.root, b.root
    return a.is_lent and b.is_lent and a is not b and _overlap(a.raw, b.raw)


def any_overlap(fixed: Iterable[Cell], *cells: Cell) -> bool:
    """Whether a storage of `cells`, which was lent, overlaps another of these, or one of `fixed`."""
    lent = list({root: None for cell in cells if (root := cell.root).is_lent})
    others = list({root: None for cell in fixed if (root := cell.root).is_lent}) if lent else []
    return any(overlap(a, b) for i, a in enumerate(lent) for b in (*lent[:i], *others))


def is_computed(cell: Cell) -> bool:
    """Whether a cell shows what is computed of its storage's memory, a conjugate, and not the memory itself."""
    shown: Any = cell.current()
    return cell.root.raw.size > 0 and shown.size > 0 and not _overlap(shown, cell.root.raw)


def apart(value: Array, cell: Cell) -> Array:
    """A result of an op on `cell`, or a copy if it shows the memory of `cell`, which is lent."""
    return copy_of(value) if _overlap(value, cell.root.raw) else value


def all_apart(made: Any, operands: Iterable[Any]) -> Any:
    """Arrays, in tuples, computed from operands: those that show lent memory of one of them as copies."""
    lent = [root.raw for v in operands if hasattr(v, "_cell") and (root := v._cell.root).is_lent]
    return _apart_from(lent, made) if lent else made


def _apart_from(lent: Sequence[Array], made: Any) -> Any:
    if isinstance(made, tuple):
        return tuple([_apart_from(lent, part) for part in made])
    owner = _owner(made)
    if owner is not None:
        lent = [raw for raw in lent if (own := _owner(raw)) is None or own is owner]
    return copy_of(made) if any(_overlap(made, raw) for raw in lent) else made


def _owner(array: Any) -> Array | None:
    """The array of NumPy's that the memory of an array belongs to; None if it is somebody else's."""
    base = array if isinstance(array, np.ndarray) else None
    while base is not None and base.base is not None:
        base = base.base if isinstance(base.base, np.ndarray) else None
    return base


# ---- lending

_one_at_a_time = Lock()  # two threads that both copy the value would be shown two memories


def lend(cell: Cell) -> Cell:
    """Have the storage of `cell` be written in place from now on, as others will see its memory. Returns the storage.

    Raises NoDataError for one of device meta.
    """
    root = cell.root
    if isinstance(root.current(), MetaValue):  # a value on its way is waited for
        raise no_data("the memory of a tensor")
    with _one_at_a_time:
        if root.is_lent:
            return root
        if not (is_sole_owner(root) or is_pools_alone(root)):
            root.raw = copy_of(root.raw)
        Lending.in_use = True
        Lending.is_there = Lending.is_there or isinstance(root, DeviceCell)
        root.__class__ = LentDeviceCell if isinstance(root, DeviceCell) else LentCell
        root.stamp += 1  # views that were taken show what may be another memory
    return root


def memory(cell: Cell) -> Array:
    """The memory of `cell`, lent: an array of its own for each who asks, writeable if the memory is.

    Raises DomainError for what is computed of the memory: a conjugate.
    """
    root = lend(cell)
    with use_trace(None):
        shown = cell.current()
        computed = is_computed(cell)
    if computed:
        raise DomainError("a tensor that is computed from its memory (a conjugate) cannot share it", remedy="clone()")
    return shown.view() if is_writeable(shown) or not shown.size else _written(shown, root.raw)


def _written(shown: Array, raw: Array) -> Array:
    """`shown`, an array on the memory of `raw`, as writeable as that is: NumPy's views of some kinds are not."""
    if type(shown) is not np.ndarray or shown.flags.writeable or not raw.flags.writeable:
        return shown
    memory: Any = raw.reshape(-1).view(np.uint8)
    return np.ndarray(shown.shape, shown.dtype, memory, address(shown) - address(raw), shown.strides)


def address(array: Any) -> int:
    """Where the first element of an array is."""
    return int(array.data.ptr if cuda.is_array(array) else array.__array_interface__["data"][0])


# ---- borrowing

_borrowed: WeakValueDictionary[tuple[Any, ...], LentCell] = WeakValueDictionary()  # by address, shape and dtype


def borrow(array: Any) -> Cell:
    """A cell on the memory of an array of NumPy's, or of a device.

    Raises DTypeError for a dtype that there is not, ShapeError for strides that torch refuses, DomainError for other
    machines' bytes.
    """
    if isinstance(array, np.memmap) and array.flags.writeable:
        array = np.asarray(array)
    if type(array) is np.ndarray and array.ndim == 1 and array.flags.carray and array.dtype.isnative and array.size:
        of(array.dtype)
        key = _key(array)  # the usual case: nothing else can be wrong with it
        known = _known(array, key)
        return _storage_on(array, key) if known is None else DataCell(known, known.raw)
    array = array if cuda.is_array(array) else _plain(array)
    of(array.dtype)
    if any(step < 0 for step in array.strides):
        raise ShapeError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. (You can probably work around this by making a copy of your array  with "
            "array.copy().)",
            got=str(array.strides),
        )
    if any(step % array.itemsize for step in array.strides):
        raise ShapeError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate "
            "the memory.", expected=f"multiples of {array.itemsize}", got=str(array.strides),
        )  # fmt: skip
    if not array.size:
        return DeviceCell(array) if cuda.is_array(array) else Cell(array)
    storage, window = _laid_out(array)
    key = _key(storage)
    known = _known(storage, key)
    root = _storage_on(storage, key) if known is None else known
    cell: Cell = root
    if window is not None:
        with use_trace(None):
            cell = ViewCell(root, *window, bind(window[0], root.raw, **window[1]))
    return cell if known is None else DataCell(cell, cell.raw)


def _plain(array: np.ndarray[Any, Any]) -> Array:
    """The array as one of class ndarray. Raises DomainError for other machines' bytes."""
    if not array.dtype.isnative:
        raise DomainError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is "
            "currently not supported.", got=str(array.dtype),
        )  # fmt: skip
    if not array.flags.writeable:
        warn_once(
            "borrow.read_only",
            "The given NumPy array is not writable: the tensor may be read, and a write to it is refused. Copy the "
            "array, or make it writable, to write to the tensor. (This is said once.)",
            stacklevel=3,
        )
    return array if type(array) is np.ndarray else np.asarray(array)


def storage_on(array: Array) -> LentCell:
    """The cell of a row-major array."""
    key = _key(array)
    return _known(array, key) or _storage_on(array, key)


def _key(array: Array) -> tuple[Any, ...]:
    return address(array), array.shape, array.dtype


def _storage_on(array: Array, key: tuple[Any, ...]) -> LentCell:
    Lending.in_use, Lending.is_there = True, Lending.is_there or cuda.is_array(array)
    found = _borrowed[key] = (LentDeviceCell if cuda.is_array(array) else LentCell)(array)
    return found


def _known(array: Array, key: tuple[Any, ...]) -> LentCell | None:
    """The cell that a row-major array has already, if it may be written to as the array may."""
    found = _borrowed.get(key)
    return found if found is not None and is_writeable(found.raw) is is_writeable(array) else None


def _laid_out(array: Array) -> tuple[Array, tuple[Op, Attrs] | None]:
    """(row-major array, op and attributes of the view of it that is `array`; None for itself)."""
    steps = tuple(step // array.itemsize for step in array.strides)
    if steps == contiguous_strides(array.shape):
        return array, None
    order = sorted(range(array.ndim), key=lambda d: (-steps[d], d))
    turned = array.transpose(order)
    if tuple(steps[d] for d in order) == contiguous_strides(turned.shape):
        return turned, (OPS["permute"], {"dims": tuple(order.index(d) for d in range(array.ndim))})
    count = 1 + sum((n - 1) * step for n, step in zip(array.shape, steps))
    flat = array_module(array).lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))
    return flat, (OPS["strided"], {"size": array.shape, "stride": steps, "offset": 0})
