"""What stands for a saved value that is gone: changed in place since, freed after a backward, or never kept.

In: shapes, dtypes and places of arrays. Out: `Poison`, which rules compute with as with a value; `demand`, which raises
AutogradError for a gradient that came out poisoned; `Absent`, the same for backwards of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler_core import cuda
from compiler_core.device import Device, device_of, is_array
from compiler_core.errors import AutogradError
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Attrs, Op, Value, meta_of
from compiler_core.ops.spent import is_spent
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell


class Poison:
    """Stands for a saved value that is gone: it has a shape and a dtype; what is computed from it is poisoned too.

    Only a gradient that somebody waits for must not be one (`demand`).
    """

    __slots__ = ("absent", "changed", "dtype", "place", "shape")
    __bind_priority__ = 3

    def __init__(self, meta: TensorMeta, changed: str, place: Device | None = None) -> None:
        self.shape, self.dtype = meta.shape, meta.dtype
        self.changed = changed  # how it was changed in place; empty: it was freed
        self.place = place  # where the array was
        self.absent: Absent | None = None  # the same for backwards of arrays, once one asked

    @staticmethod
    def __bind__(op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        changed = next(v.changed for v in values if isinstance(v, Poison))
        return Poison(op.infer(*map(meta_of, values), **attrs), changed)


class Absent(NamedTuple):
    """What a backward of arrays is given for an operand that it does not read, and that was not kept."""

    shape: tuple[int, ...]
    dtype: Any  # NumPy's
    place: Device | None

    @property
    def ndim(self) -> int:
        return len(self.shape)


def absent(saved: Any) -> Any:
    """What a backward of arrays is given in the place of what is not there; all else as it is."""
    if type(saved) is not Poison:
        return saved
    if saved.absent is None:
        saved.absent = Absent(saved.shape, saved.dtype.numpy, saved.place)
    return saved.absent


def demand(grad: Value) -> Value:
    """`grad`, unless it was computed from a value that is gone. Raises AutogradError."""
    if not isinstance(grad, Poison):
        return grad
    if not grad.changed:
        raise freed_error()
    raise AutogradError(
        f"a value needed for the gradient was changed in place: {grad.changed}",
        remedy="clone() the tensor before writing to it, or use an operation that is not in place",
    )


def freed_error() -> AutogradError:
    """The error of a second backward through freed nodes."""
    return AutogradError(
        "backward through this part of the graph a second time: its saved values were freed after the first",
        remedy="pass retain_graph=True to the first backward()",
    )


_freed_values: dict[tuple[Any, ...], Poison] = {}  # by shape, dtype and class; of one of several devices by that, too


def freed(value: Value) -> Poison:
    """What stands for a value of this shape and dtype, on its device, that was freed."""
    kind = type(value)
    key: tuple[Any, ...] = (value.shape, value.dtype, kind)
    if kind is not np.ndarray and kind is not cuda.lone.array:
        key = (*key, cuda.number_of(value))
    poison = _freed_values.get(key)
    if poison is None:
        if len(_freed_values) > 4096:
            _freed_values.clear()
        place = device_of(value) if is_array(value) else None
        poison = _freed_values[key] = Poison(meta_of(value), "", place)
    return poison


def freed_pair(operand: Cell, out: Cell) -> tuple[Any, Any]:
    """`freed_values` of an operand and a result: ([operand's], the result's)."""
    raw, made = operand.raw, out.raw
    kind = type(raw)
    first = _freed_values.get((raw.shape, raw.dtype, kind)) or freed(raw)
    return [first], _freed_values.get((made.shape, made.dtype, kind)) or freed(made)


def freed_values(saved: Sequence[Any]) -> list[Any]:
    """What stands for the cells among these, and the arrays that are spent; all else as it is."""
    gone = []
    for one in saved:
        kind = type(one)
        if kind is DeviceCell or kind is ViewCell or isinstance(one, Cell):
            raw = one.raw
            one = _freed_values.get((raw.shape, raw.dtype, type(raw))) or freed(raw)
        elif kind is np.ndarray and is_spent(one):
            one = freed(one)
        gone.append(one)
    return gone
