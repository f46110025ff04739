"""Tensors from outside whose sizes the call decides: while they are captured, their cells show expressions for these.

In: a cell that was there before a trace, and what stands for its array there (`SizedValue`). Out: whoever asks the cell
under that trace sees the stand-in, whose sizes are Syms; all others, other threads among them, the array.
Method: the cell's class becomes a subclass whose `raw` and `value` ask who traces (as those of cells that wait,
`fence.py`), for as long as any trace shows it. A trace has the stand-ins in its table `stand_ins`.
Invariants: a stand-in has no data, and is never put into a cell. What waits keeps its sizes (`can_show`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import RLock
from typing import Any

from compiler_core.device import Device
from compiler_core.meta import Shape
from compiler_core.ops.registry import Value, current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.memory import views
from compiler_core.tensor.memory.cell import Cell, DataCell, DeviceCell, ViewCell, cell_trace
from compiler_core.tensor.memory.journal import note_change
from compiler_core.tensor.memory.lent import LentCell, LentDeviceCell, check_writeable

_RAW = vars(Cell)["raw"]
_lock = RLock()
_shown: dict[Cell, int] = {}  # by how many traces


@dataclass(frozen=True, slots=True, eq=False)
class SizedValue:
    """Stands for an array. shape, strides: with Syms. dtype: NumPy's. place: where the array is."""

    shape: Shape
    strides: views.Strides
    dtype: Any
    place: Device

    @property
    def ndim(self) -> int:
        return len(self.shape)


class SizedCell(Cell):
    """A cell that some trace shows with other sizes."""

    __slots__ = ()

    @property
    def raw(self) -> Value:
        found = stand_in(self)
        return _RAW.__get__(self) if found is None else found

    @raw.setter
    def raw(self, value: Value) -> None:
        _RAW.__set__(self, value)

    value = raw

    def current(self) -> Value:
        found = stand_in(self)
        return super().current() if found is None else found

    def put(self, value: Value) -> None:
        if stand_in(self) is None:
            super().put(value)
        else:
            note_change(self.root, "stamp")
            note_change(self.counter, "version")
            cell_trace(current_trace()).write_cell(self, value)

    def strides(self) -> views.Strides:
        found = stand_in(self)
        return super().strides() if found is None else found.strides

    @property
    def is_external(self) -> bool:
        return True  # only arrays have stand-ins


class SizedViewCell(SizedCell, ViewCell):
    """A view."""

    __slots__ = ()


class SizedDataCell(SizedCell, DataCell):
    """What `.data` gave."""

    __slots__ = ()


class SizedDeviceCell(SizedCell, DeviceCell):
    """One of a device."""

    __slots__ = ()


class SizedLentCell(SizedCell, LentCell):
    """One whose memory others see, too."""

    __slots__ = ()

    def put(self, value: Value) -> None:
        if stand_in(self) is not None:
            check_writeable(_RAW.__get__(self))
        super().put(value)


class SizedLentDeviceCell(SizedLentCell, LentDeviceCell):
    """One of a device."""

    __slots__ = ()


_SIZED: dict[type[Cell], type[Cell]] = {
    Cell: SizedCell,
    ViewCell: SizedViewCell,
    DataCell: SizedDataCell,
    DeviceCell: SizedDeviceCell,
    LentCell: SizedLentCell,
    LentDeviceCell: SizedLentDeviceCell,
}
_PLAIN = {sized: plain for plain, sized in _SIZED.items()}


def stand_in(cell: Cell) -> SizedValue | None:
    """What the current trace shows in the place of the cell's array."""
    table: Mapping[Cell, SizedValue] | None = getattr(current_trace(), "stand_ins", None)
    return None if table is None else table.get(cell)


def can_show(cell: Cell) -> bool:
    """Whether the sizes of `cell` may be others for a trace."""
    return type(cell) in _SIZED or type(cell) in _PLAIN


def show(cell: Cell) -> None:
    """From now on traces that have a stand-in for `cell` show that."""
    with _lock:
        _shown[cell] = _shown.get(cell, 0) + 1
        cell.__class__ = _SIZED.get(type(cell), type(cell))


def hide(cells: Collection[Cell]) -> list[Cell]:
    """One trace is done with these. Returns those that another thread has made cells of another kind meanwhile."""
    with _lock:
        changed = [cell for cell in cells if type(cell) not in _PLAIN]
        for cell in cells:
            _shown[cell] -= 1
            if not _shown[cell]:
                del _shown[cell]
                cell.__class__ = _PLAIN.get(type(cell), type(cell))
    return changed
