"""The library of row kernels (kernels.h): built once for a machine, loaded once a process, called with arrays.

In: arrays. Out: `Kernels`, or None where there is no compiler, or NumPy's arrays do not lie as kernels.h has it: eager
composites are then computed op by op, slower. Built at the first call that wants a kernel, never at import, which takes
a few seconds on a machine where it was never done; then it comes from the artefact cache.
Arrays are handed over as one tuple, whose objects the kernels read: an address asked of NumPy costs more than a small
kernel takes. Small calls keep the GIL; large ones let other threads run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from compiler_core import log
from compiler_core.errors import BackendError, DistCompileError
from compiler_core.ops.registry import Array
from compiler_core.runtime.cache import Manifest, load_or_build, make_key

_LARGE = 1 << 15  # elements of the first array, from which on a call releases the GIL
_NAME = "eager.so"
_POINTER, _DOUBLE, _INT = ctypes.py_object, ctypes.c_double, ctypes.c_int64
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "norm": (_DOUBLE,),
    "norm_backward": (),
    "batch_norm": (_DOUBLE, _INT),
    "batch_norm_backward": (_INT,),
    "columns": (),
    "columns_back": (),
    "dropout": (_DOUBLE, _INT, _INT),
    "dropout_backward": (_DOUBLE,),
    "softmax": (_DOUBLE, _INT, _INT),
    "softmax_backward": (_DOUBLE,),
    "log_softmax": (),
    "log_softmax_backward": (),
    "cross_entropy": (_INT,),
    "cross_entropy_backward": (_INT,),
    "add_rows": (),
    **{f"{name}{end}": () for name in ("gelu", "gelu_tanh", "silu", "relu", "erfinv") for end in ("", "_backward")},
}
Kernel: TypeAlias = Callable[..., int]  # (arrays, *numbers) -> 0, or 1 for an index out of range


class Kernels:
    """The kernels by name, as functions of a tuple of arrays (None where there is none) and numbers."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._quick, self._calls = ctypes.PyDLL(self._path), ctypes.CDLL(self._path)

    def is_as_told(self) -> bool:
        """Whether arrays lie in memory as the kernels read them."""
        function = self._quick.dc_is_as_told
        function.restype, function.argtypes = _INT, (_POINTER, _INT, _INT, _INT, _INT)
        told = []
        for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
            whole = np.zeros((3, 5), dtype)
            array = whole[:, 1:]
            told.append(function((array, None, whole), array.ctypes.data, 4, 5 * dtype.itemsize, dtype.num))
        return all(told)

    def named(self, name: str) -> Kernel:
        """Kernel `name`."""
        quick, calls = self._function(self._quick, name), self._function(self._calls, name)

        def kernel(arrays: tuple[Array | None, ...], *numbers: float) -> int:
            first: Any = arrays[0]
            status = (calls if first.size > _LARGE else quick)(arrays, *numbers)
            if status < 0:
                raise BackendError(f"eager kernel {name} was given an array that is not dense")
            return status

        return kernel

    def _function(self, library: ctypes.CDLL, name: str) -> Kernel:
        function = getattr(library, f"dc_{name}")
        function.restype, function.argtypes = _INT, (_POINTER, *_SIGNATURES[name])
        return function  # type: ignore[no-any-return]


def source() -> str:
    """The kernels as one translation unit."""
    from compiler_core.codegen.cpp.helpers import TYPES, helper_text, libm_declarations

    declared = libm_declarations(["exp", "tanh", "erf", "erff", "erfc", "log"])
    return f"{TYPES}{helper_text(['exp', 'philox', 'reduce_max', 'tanh'])}{declared}{_text()}"


def _text() -> str:
    return (Path(__file__).parent / "kernels.h").read_text()


@cache
def kernels() -> Kernels | None:
    """The library, built if need be; None where it cannot be had, which is said once."""
    try:
        library = Kernels(_built())
    except (DistCompileError, OSError) as error:
        log.emit("code", f"no kernels for eager composites: {error}")
        return None
    return library if library.is_as_told() else None


def _built() -> Path:
    from compiler_core.runtime.build import build_library
    from compiler_core.runtime.toolchain import find_toolchain

    toolchain, text = find_toolchain(), source()

    def build(folder: Path) -> Manifest:
        build_library({"eager": text}, folder / _NAME, toolchain)
        return {}

    return load_or_build(make_key({"kind": "eager kernels", "toolchain": toolchain.key(), "source": text}), build).file(
        _NAME
    )
