"""What generated code calls back on a CUDA device: the eager rule of an op that has no call of CUDA's.

In: a routine, layouts and addresses. Out: a function that writes its result on the device; arrays of memory there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.ops.on_device import run_on_device
from compiler_core.ops.registry import OPS, Array
from compiler_core.ops.routine import Routine, Strided
from compiler_core.runtime.cuda import context


def device_array_at(layout: Strided, address: int | None) -> Array:
    """The array of the current device's memory at `address`."""
    xp, dtype = context.cupy(), layout.dtype.numpy
    if not layout.numel:
        return xp.empty(layout.shape, dtype)  # type: ignore[no-any-return]
    memory = xp.cuda.UnownedMemory(address or 0, layout.span * dtype.itemsize, None)
    strides = [s * dtype.itemsize for s in layout.strides]
    return xp.ndarray(layout.shape, dtype, xp.cuda.MemoryPointer(memory, 0), strides)  # type: ignore[no-any-return]


def definition_on_device(routine: Routine) -> Callable[..., None]:
    """What runs in place of a routine that has no call of CUDA's: its op's eager rule on the device."""
    op = OPS.get(routine.name)
    if op is None or op.lower is not routine:
        return routine.define

    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        out[...] = run_on_device(op, operands, attrs)

    return define
