"""An int64 array and a number added up in eager code on a CUDA device, by one kernel.

In: an array that is row-major, a number. Out: a new array, around which the sum wraps as NumPy's does; None, and CuPy
adds: of other arrays, and where the kernel does not give what NumPy gives (proof.py). Counters (a norm's batches, an
optimizer's steps) are such arrays: calls that come again are made by native code, which CuPy's are not.
Kernel: add_number, kernels.cu.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.kernels import I64, DeviceKernels, kernels
from compiler_core.eager.device.proof import is_right_once
from compiler_core.ops.on_device import COUNTED
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda.replay import Known, empty, replayed

INT64 = np.dtype(np.int64)
_MODULE = np.dtype(np.float32)  # the kernel is the same for all of them
_known: Known = {}


def with_number(x: Any, number: Any, sign: int) -> Array | None:
    """x + sign * number, of int64."""
    return added(x, sign * int(number)) if type(number) is np.int64 and x.dtype == INT64 else None


def added(x: Array, number: int) -> Array | None:
    """x + number, of an int64 array on the current device."""
    found: Array | None = replayed(_known, (number,), (x,), partial(_added, number=number))
    return found


def _added(x: Array, number: int) -> Array | None:
    k = kernels(_MODULE)
    if k is None or not x.size or not x.flags.c_contiguous or not is_right_once("counting", k, partial(_difference, k)):
        return None
    return _launched(k, x, number)


def _launched(k: DeviceKernels, x: Array, number: int) -> Array:
    out: Array = empty(x.shape, INT64)
    wrapped = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    k.all("add_number", x.size, x, out, I64(x.size), I64(wrapped))
    return out


def _difference(k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    here = np.array([0, -5, 1 << 40, -(1 << 63)])
    made = _launched(k, cuda.put(here, cuda.current()), -3)
    with np.errstate(over="ignore"):
        return "" if (cuda.fetch(made) == here + np.int64(-3)).all() else "other numbers than the CPU"


COUNTED.fill(added)
