"""Where CPython and NumPy keep what a native call needs, so that it can read arrays without Python's help.

In: nothing. Out: `array_layout()`: byte offsets, checked against a probe array, or None with a warning.

A call with 60 arguments costs 60 times 0.8 us if Python asks each array for its address, and next to nothing if the
native side reads it from the array objects. The fields are those of `PyArrayObject_fields` (numpy/ndarraytypes.h),
part of NumPy's stable binary interface, and of `PyTupleObject`. Both start after the object's head, whose size differs
between builds of CPython; so each offset is computed from `__basicsize__` and proven on a probe before it is trusted.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from compiler_core import log
from compiler_core.records import dataclass

C_CONTIGUOUS_ALIGNED = 0x0001 | 0x0100  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED
WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Byte offsets inside array and tuple objects. `items` is that of a tuple's first element."""

    type: int
    data: int
    ndim: int
    shape: int
    descr: int
    flags: int
    items: int


@cache
def array_layout() -> ArrayLayout | None:
    """The layout of this interpreter and NumPy; None (warned once) if a probe array does not look that way."""
    head, word = object.__basicsize__, ctypes.sizeof(ctypes.c_void_p)
    layout = ArrayLayout(
        type=head - word,
        data=head,
        ndim=head + word,
        shape=head + 2 * word,
        descr=head + 5 * word,
        flags=head + 6 * word,
        items=tuple.__basicsize__,
    )
    if _is_right(layout):
        return layout
    log.warn_once(
        "array layout",
        "NumPy's array objects are not laid out as expected; native calls pass addresses one by one, which is slower",
    )
    return None


def _is_right(layout: ArrayLayout) -> bool:
    if np.ndarray.__basicsize__ < layout.flags + 4:
        return False
    contiguous = np.zeros((3, 5, 7), np.float32)
    strided = contiguous[:, ::2]
    pair = (contiguous, strided)
    return (
        all(_looks_right(layout, array) for array in pair)
        and [_word(id(pair) + layout.items + 8 * k) for k in range(2)] == [id(contiguous), id(strided)]
        and _flags(layout, contiguous) & C_CONTIGUOUS_ALIGNED == C_CONTIGUOUS_ALIGNED
        and _flags(layout, strided) & C_CONTIGUOUS_ALIGNED != C_CONTIGUOUS_ALIGNED
        and _flags(layout, contiguous) & WRITEABLE != 0
    )


def _looks_right(layout: ArrayLayout, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    at = id(array)
    return (
        _word(at + layout.type) == id(np.ndarray)
        and _word(at + layout.data) == array.ctypes.data
        and ctypes.c_int.from_address(at + layout.ndim).value == array.ndim
        and ctypes.c_int64.from_address(_word(at + layout.shape) + 8).value == array.shape[1]
        and _word(at + layout.descr) == id(array.dtype)
    )


def _flags(layout: ArrayLayout, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
    return ctypes.c_int.from_address(id(array) + layout.flags).value


def _word(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value
