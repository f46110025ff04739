"""Which arrays a program on a CUDA device is given as they are, and what is said of those that it is not.

In: arrays of CuPy's, and the metas that a program was compiled for. Out: addresses; errors: DeviceError, DTypeError,
ShapeError.
"""

from __future__ import annotations

from typing import Any, NoReturn

from compiler_core.errors import DeviceError, DTypeError, ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array

ALIGNED = 16  # bytes on which kernels expect inputs and outputs to start


def address(array: Any) -> int:
    """Where it begins, on the device."""
    return array.data.ptr  # type: ignore[no-any-return]


def is_plain(array: Array) -> bool:
    """Whether kernels can be given its address."""
    return array.flags.c_contiguous and address(array) % ALIGNED == 0


def elsewhere(array: Array, device: int, what: str) -> DeviceError:
    """What is raised for an array of another device than number `device`."""
    return DeviceError(
        f"{what} is on another device than the graph",
        expected=f"cuda:{device}",
        got=f"cuda:{array.device.id}",  # type: ignore[attr-defined]
        remedy="move it there with .to(...)",
    )


def refuse(array: Array, meta: TensorMeta, what: str) -> NoReturn:
    """Raise DTypeError or ShapeError."""
    if array.dtype != meta.dtype.numpy:
        raise DTypeError(
            f"{what} has another dtype than the graph was compiled for", expected=str(meta), got=str(array.dtype)
        )
    raise ShapeError(
        f"{what} has another shape than the graph was compiled for", expected=str(meta), got=str(array.shape)
    )
