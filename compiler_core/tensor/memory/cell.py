"""Cells: where a Tensor's value lives, and how a write through one handle is seen through all others.

In: array values (or graph nodes, while tracing). Out: `Cell` (a storage; `DeviceCell` on a CUDA device) and `ViewCell`
(a window on another cell).
Invariants: a value is never changed, only replaced (but where nobody could tell: `through.py`), and every replacement
raises the root's `stamp`; a ViewCell caches what it derived together with the stamp it saw, so a stale view derives
itself again; a write to a ViewCell goes to its root through `view_scatter`. `version` is what torch counts, for whoever
saved a value for backward: it belongs to a cell's `counter`, the root or, of what `.data` gave, a DataCell, so that
writes there go unnoticed. A value that is still on its way is guarded by a fence (`fence.py`). Cells know nothing of
gradients: those belong to the handles (`tensor.py`).
Under a trace, cells made before it are read and written by asking the trace (`CellTrace`); cells made during it hold
nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import ref

import numpy as np

from compiler_core import cuda
from compiler_core.device import copy_of
from compiler_core.errors import GraphBreak, GraphError
from compiler_core.location import user_location
from compiler_core.ops.batching.value import Batched, held
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import OPS, Array, Attrs, Op, Value, bind, current_trace, use_trace
from compiler_core.tensor.memory import views
from compiler_core.tensor.memory.journal import note_change, note_outside
from compiler_core.tensor.memory.through import write_through

if TYPE_CHECKING:
    from compiler_core.ops.random.composite import Draw
    from compiler_core.tensor.memory.fence import Fence
    from compiler_core.tensor.tensor import Tensor


_writing = RLock()
os.register_at_fork(before=_writing.acquire, after_in_parent=_writing.release, after_in_child=_writing.release)


@runtime_checkable
class CellTrace(Protocol):
    """What a trace must offer, beside `bind`, for Tensors to live in it."""

    def read_cell(self, cell: Cell, handle: Tensor | None) -> Value:
        """The node for a cell made before the trace (lifted to a placeholder, or what was last written to it).

        handle: the Tensor through which it is read, or None when a view made in the trace asks for its base.
        """

    def write_cell(self, cell: Cell, node: Value) -> None:
        """From now on `cell`, made before the trace, holds `node`; an epilogue writes it back after every call."""

    def note_copy(self, node: Value) -> None:
        """The program copied `node`: what the copy is used for does not change when the original is written."""

    def constant(self, array: Array) -> Value:
        """The node of an array that the traced code made from Python data."""

    def next_rng(self) -> tuple[Value, int]:
        """The key placeholder and the stream of the next draw from the default generator."""

    def draws_outside(self) -> bool:
        """Whether the CPU's default generator draws before every call, instead of the graph, from a key."""

    def outside_draw(self, draw: Draw) -> Value:
        """The node of what it draws then."""


class Cell:
    """A storage: one value and how often it was replaced."""

    __slots__ = ("__weakref__", "fence", "raw", "stamp", "version")
    is_dense: bool = True  # contiguous for certain, without looking at strides
    is_ordered: bool = True  # row-major for certain, but for gaps and repeats (`layout.py`)
    is_lent: bool = False  # others see the memory, which is written in place (`lent.py`)
    raw: Value
    fence: Fence  # set while the cell waits for one
    value: Value  # the slot `raw` under the name that everybody uses: see below
    stamp: int  # how often the value was replaced
    version: int  # how often through handles that share this counter

    def __init__(self, value: Value) -> None:
        self.raw = value
        self.stamp = 0
        self.version = 0

    @property
    def root(self) -> Cell:
        """The storage itself: two cells alias if and only if their roots are one."""
        return self

    @property
    def counter(self) -> Cell:
        """Whose version counts the writes to this cell."""
        return self

    def current(self) -> Value:
        """The value as it is now; of lent memory that very memory."""
        return self.value

    def taken(self) -> Value:
        """The value as it is now, to keep."""
        return self.value

    def write(self, value: Value) -> None:
        """Replace the value."""
        kind = type(self)
        if (kind is DeviceCell or kind is Cell) and current_trace() is None:
            self.value = value
            self.stamp += 1
            self.version += 1
            return
        self.put(value)
        self.touch()

    def put(self, value: Value) -> None:
        """`write`, less the `touch` that must follow."""
        trace = current_trace()
        if trace is not None:
            _outdate(trace, self)
            note_change(self, "raw", "stamp", "version")
            if self.is_external:
                cell_trace(trace).write_cell(self, value)
                return
        self.value = value

    def put_view(self, view: ViewCell, value: Value) -> None:
        """`put` for a view of this storage: one at a time, or what a thread writes beside another's part is lost."""
        with alone(self):
            is_plain = type(self) is DeviceCell or type(self) is Cell
            if is_plain and current_trace() is None and write_through(self, view, value):
                view.seen = self.stamp + 1
                return
            view.base.put(views.scatter(view.op, read(view.base), value, view.attrs))
            view.value, view.seen = value, self.stamp + 1  # as of the touch that follows

    def shows(self, value: Value) -> bool:
        """Whether what a view derived stays true until the stamp rises."""
        return True

    def strides(self) -> views.Strides:
        """The strides torch would report, in elements; a base is contiguous."""
        return views.contiguous_strides(self.value.shape)

    def offset(self) -> int:
        """Where the first element lies in the storage, in elements."""
        return 0

    def touch(self) -> None:
        """Say that the value changed: also for whoever writes into the array itself (a reducer's bucket)."""
        self.stamp += 1
        self.version += 1

    @property
    def is_external(self) -> bool:
        """Whether the cell was made outside of any trace: it holds an array (or stands for one), not a node."""
        return is_outside(self.value)


Cell.value = vars(Cell)["raw"]  # GuardedCell (fence.py) makes `value` a property that waits, and leaves `raw` as it is


class DeviceCell(Cell):
    """A storage on a CUDA device: of a class of its own, so that whoever checks a Cell's class has checked the device.

    Made for arrays alone: what a trace makes are nodes, in plain Cells.
    """

    __slots__ = ()


def write_all(cells: Sequence[Cell], values: Sequence[Value]) -> None:
    """Replace the value of each."""
    is_traced = current_trace() is not None
    for cell, value in zip(cells, values, strict=True):
        kind = type(cell)
        if is_traced or not (kind is DeviceCell or kind is Cell):
            cell.write(value)
        else:  # `write`, without a call
            cell.value = value
            cell.stamp += 1
            cell.version += 1


def is_outside(value: Value) -> bool:
    """Whether a cell's value is an array (or stands for one), not a node of a trace."""
    value = held(value) if type(value) is Batched else value
    return isinstance(value, (np.ndarray, MetaValue)) or cuda.is_array(value)


def cell_of(value: Value) -> Cell:
    """A storage for `value`, of the class of its device."""
    kind = type(value)
    is_there = kind is not np.ndarray and (kind is cuda.lone.array or cuda.is_array(value))
    cell = _new_cell(DeviceCell if is_there else Cell)
    cell.raw = value
    cell.stamp = cell.version = 0
    return cell


_new_cell: Callable[[type[Cell]], Cell] = object.__new__  # a class that is called calls its `__init__` the long way


def cell_with(value: Value) -> Cell:
    """`Cell(value)` in half the time."""
    cell = _new_cell(Cell)
    cell.raw = value
    cell.stamp = cell.version = 0
    return cell


class PickedCell(Cell):
    """What `x[i]` with a number in a Tensor gives while a trace records: a copy there, where eager code has a view. So
    nothing may be written to it: the trace is told (`wrote_picked`), and the graph ends."""

    __slots__ = ()

    def put(self, value: Value) -> None:
        trace = current_trace()
        if trace is None or self.is_external:
            super().put(value)
            return
        trace.wrote_picked = True  # type: ignore[attr-defined]
        raise GraphBreak("what a number in a tensor selects is written in place", where=user_location())

    @staticmethod
    def keep(cell: Cell, source: Cell) -> None:
        """From now on `cell` is one, of what the storage `source` held."""
        cell.__class__ = PickedCell
        trace: Any = current_trace()
        trace.picked.setdefault(source, []).append(ref(cell))

    def free(self) -> None:
        """The program stores it back where it took it: it may be written."""
        self.__class__ = Cell  # type: ignore[assignment]


class OutdatedCell(PickedCell):
    """One whose storage was written since: eager code's view shows that, so it must not be read."""

    __slots__ = ()

    def current(self) -> Value:
        trace: Any = current_trace()
        if trace is not None:
            trace.wrote_picked = True
        raise GraphBreak("what a number in a tensor selects is read after a write to the whole", where=user_location())

    taken = current


def _outdate(trace: Any, root: Cell) -> None:
    """`root` is written: parts of it that were picked before must not be read from now on."""
    for one in getattr(trace, "picked", {}).pop(root, ()):
        cell = one()
        if type(cell) is PickedCell:
            cell.__class__ = OutdatedCell


class ViewCell(Cell):
    """A window on `base`, taken by the view op `op` with `attrs`. `value` is a cache, derived at the stamp `seen`."""

    __slots__ = ("_counter", "_known", "_root", "attrs", "base", "is_dense", "is_ordered", "op", "seen")
    _known: tuple[Any, views.Strides] | None  # the strides, by the shape of the root, where that lies as it is told
    _counter: Cell
    _root: Cell
    attrs: Attrs
    base: Cell
    op: Op
    seen: int

    def __init__(self, base: Cell, op: Op, attrs: Attrs, value: Value) -> None:
        view_in(self, base, op, attrs, value)

    @property
    def version(self) -> int:  # type: ignore[override]
        return self._counter.version

    @property
    def root(self) -> Cell:
        return self._root

    @property
    def counter(self) -> Cell:
        return self._counter

    def current(self) -> Value:
        stamp = self._root.stamp
        if self.seen != stamp:
            note_change(self, "raw", "seen")
            if self.is_external:
                note_outside(self, "raw", "seen")
                with use_trace(None):  # a trace that asks for it must not have its nodes put into an outside cell
                    self.value = bind(self.op, self.base.current(), **self.attrs)
            else:
                self.value = bind(self.op, read(self.base), **self.attrs)
            self.seen = stamp
            if self._root.is_lent and not self._root.shows(self.value):
                self.seen = -1
        return self.value

    def taken(self) -> Value:
        value = self.current()
        return copy_of(value) if self._root.is_lent else value

    def put(self, value: Value) -> None:
        trace = current_trace()
        if trace is not None:
            _outdate(trace, self._root)
            note_change(self._root, "stamp")
            note_change(self._counter, "version")
            if self.is_external:
                cell_trace(trace).write_cell(self, value)
                return
            note_change(self, "raw", "seen")
        self._root.put_view(self, value)

    def strides(self) -> views.Strides:
        root = self._root
        is_plain = type(root) is DeviceCell or type(root) is Cell
        if is_plain and self._known is not None and self._known[0] == root.raw.shape:
            return self._known[1]
        base = self.base
        found = views.view_strides(self.op, self.attrs, base.value.shape, base.strides(), self.value.shape)
        if is_plain:
            self._known = (root.raw.shape, found)
        return found

    def offset(self) -> int:
        return views.view_offset(self.op, self.attrs, self.base.offset(), self.base.strides())

    def touch(self) -> None:
        self._counter.touch()


def view_in(self: ViewCell, base: Cell, op: Op, attrs: Attrs, value: Value) -> ViewCell:
    """`self`, which was only allocated, as that view: a class that is called takes twice the time."""
    self.raw = value
    self.base, self.op, self.attrs, self._known = base, op, attrs, None
    alias: Any = op.alias
    if type(base) is Cell or type(base) is DeviceCell:  # the usual case: what a class says takes long to ask
        self._root = self._counter = base
        self.is_dense, self.is_ordered, self.seen = alias.keeps_order, not alias.reorders, base.stamp
        return self
    self._root, self._counter = root, _ = (base._root, base._counter) if isinstance(base, ViewCell) else (base, base)
    self.is_dense = base.is_dense and alias.keeps_order
    self.is_ordered = base.is_ordered and not alias.reorders
    self.seen = -1 if root.is_lent and not root.shows(value) else root.stamp
    return self


class DataCell(ViewCell):
    """The memory of `base` for a handle that `.data` gave: what is written through it counts for itself alone."""

    __slots__ = ("count",)

    def __init__(self, base: Cell, value: Value) -> None:
        super().__init__(base, OPS["detach"], {}, value)
        self._counter, self.count = self, 0

    def current(self) -> Value:
        return self.base.current() if self.is_external else super().current()

    @property
    def version(self) -> int:
        return self.count

    @version.setter
    def version(self, count: int) -> None:
        self.count = count

    def touch(self) -> None:
        self._root.stamp += 1
        self.count += 1


def alone(cell: Cell) -> AbstractContextManager[object]:
    """While it is entered no other thread writes to a part of an eager storage: for who computes the whole of it anew,
    to write to a part. One that waits must not have others wait for it."""
    return _writing if type(cell.root) is Cell and current_trace() is None else nullcontext()


def memory_of(cell: Cell) -> Cell:
    """The cell that a DataCell shows; any other itself."""
    while isinstance(cell, DataCell):
        cell = cell.base
    return cell


def note_copy(trace: object, node: Value) -> None:
    """Tell `trace`, if it reads Tensors at all, that `node` was copied."""
    if isinstance(trace, CellTrace):
        trace.note_copy(node)


def cell_trace(trace: object) -> CellTrace:
    """`trace`, known to implement CellTrace. Raises GraphError for a bare graph builder."""
    if not isinstance(trace, CellTrace):
        raise GraphError(
            f"a Tensor was used while {type(trace).__name__} records, which cannot read Tensors",
            remedy="record graph nodes directly, or capture with compiler_core.capture",
        )
    return trace


def read(cell: Cell, handle: Tensor | None = None) -> Value:
    """The cell's value as the current trace sees it, or the array if nothing is traced: of lent memory a copy."""
    trace = current_trace()
    if trace is not None:
        return cell_trace(trace).read_cell(cell, handle) if cell.is_external else cell.current()
    return _not_traced(cell.taken())


def shown(cell: Cell) -> Value:
    """The array that the cell shows now, while nothing is traced: not to be kept, if it is lent memory."""
    return _not_traced(cell.current())


def _not_traced(value: Value) -> Value:
    if type(value) is not np.ndarray and not is_outside(value):
        raise GraphError(
            f"a tensor made while tracing ({value!r}) was used after the trace ended",
            remedy="return it from the compiled function instead of keeping it in a global or an attribute",
        )
    return value
