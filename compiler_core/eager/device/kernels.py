"""Eager kernels on CUDA devices: compiled by CuPy when first wanted, a module for each text and dtype.

In: arrays of the current device, and numbers. Out: `DeviceKernels`, whose methods launch; `kernels(dtype, file)`, those
of a file here (*.cu), and `compiled`, those of another text; None where they do not compile, which is said once.
CuPy compiles with NVRTC, in about a second, and keeps what it compiled in its folder on disk. A launch costs the host a
few microseconds and waits for nothing.
CuPy hands arrays over by their address, and numbers in the type that NumPy gives them: so numbers are NumPy's here, in
the parameters' types (`I64` ...), and arrays must be dense.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core import cuda, log
from compiler_core.ops.on_device import COPY
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda.replay import launch

I64, I32, U32, U64, F32, F64 = np.int64, np.int32, np.uint32, np.uint64, np.float32, np.float64
MOST = 256  # threads of a block
MOST_ROWS = 1 << 31  # blocks of a launch, fewer than which there are: CuPy would launch as many as 32 bits hold
LEAST_LANES = 4  # threads of a row
BLOCKS = 1 << 13  # of kernels whose threads stride over all elements, at most
_TYPES: dict[Any, tuple[int, str, str]] = {  # dtype -> kind, what is stored, what is computed in
    np.dtype(np.float32): (0, "float", "float"),
    np.dtype(np.float64): (1, "double", "double"),
    np.dtype(np.float16): (2, "unsigned short", "float"),
    np.dtype(ml_dtypes.bfloat16): (3, "unsigned short", "float"),
}
_FILES = {  # and a kernel, for which CuPy compiles the file
    "kernels.cu": "dropout",
    "narrow.cu": "join",
    "sums.cu": "sum_down",
    "groups.cu": "group_norm",
    "pools.cu": "maxima",
    "channels.cu": "channel_norm",
    "turns.cu": "turn",
    "moves.cu": "move_1",
}
_modules: dict[tuple[int, Any, str], DeviceKernels | None] = {}
_compiling = threading.RLock()


class DeviceKernels:
    """The kernels of one dtype. wide: the dtype that they compute in."""

    def __init__(self, module: Any, dtype: Any) -> None:
        self.dtype, self.wide = dtype, np.dtype(np.float64 if dtype == np.float64 else np.float32)
        self._module = module
        self._named: dict[str, Any] = {}

    def _function(self, name: str) -> Any:
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = self._module.get_function(name)
        return found

    def rows(self, name: str, rows: int, n: int, *args: Any, columns: int = 1) -> None:
        """Kernel `name`, a block for each of `rows` rows of n elements."""
        launch(self._function(name), (rows, columns), (threads(n),), args)

    def lines(self, name: str, rows: int, n: int, *args: Any) -> None:
        """Kernel `name` of codegen/device_rows.py, for each of `rows` rows of n elements, several in a block."""
        lanes = lanes_of(n)
        launch(self._function(name), (-(-rows * lanes // MOST),), (MOST,), (I64(rows), I32(lanes), *args))

    def all(self, name: str, n: int, *args: Any, blocks: int = BLOCKS) -> None:
        """Kernel `name`, over all of n elements, in at most so many blocks."""
        launch(self._function(name), (min(-(-n // MOST), blocks),), (MOST,), args)

    def block(self, name: str, *args: Any, grid: tuple[int, ...] = (1,)) -> None:
        """Kernel `name` in blocks of MOST threads."""
        launch(self._function(name), grid, (MOST,), args)


def threads(n: int) -> int:
    """Threads of a block that strides along n elements: a power of two, a few elements each."""
    return min(MOST, max(32, 1 << (max(n // 4, 1) - 1).bit_length()))


def lanes_of(n: int) -> int:
    """Threads of a row of n elements where a block has several rows: a power of two, at most 12 elements each."""
    return min(MOST, max(LEAST_LANES, 1 << (-(-n // 12) - 1).bit_length()))


def is_known(dtype: Any) -> bool:
    """Whether there are kernels of this dtype."""
    return dtype in _TYPES


def is_wide(dtype: Any) -> bool:
    """Whether they compute in f64."""
    return _TYPES[dtype][2] == "double"


def kernels(dtype: Any, file: str = "kernels.cu") -> DeviceKernels | None:
    """Those of `file` and `dtype`; None where CuPy cannot compile them."""
    found = _modules.get((id(cuda.module()), dtype, file))
    return found or compiled(dtype, file, lambda: source(dtype, file), probe=_FILES[file])


def compiled(dtype: Any, name: str, text: Callable[[], str], *, probe: str) -> DeviceKernels | None:
    """The kernels `name` of this text and dtype, among them `probe`; None where CuPy cannot compile them."""
    key = (id(cuda.module()), dtype, name)
    with _compiling:  # threads that want the same at once wait for it
        if key not in _modules:
            _modules[key] = _compiled(dtype, name, text(), probe)
    return _modules[key]


def _compiled(dtype: Any, name: str, text: str, probe: str) -> DeviceKernels | None:
    try:
        made = DeviceKernels(cuda.module().RawModule(code=text), dtype)
        made._function(probe)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        log.warn_once(
            f"eager {name}", f"CUDA devices compute op by op: the kernels of {name} for {dtype} do not compile: {error}"
        )
        return None
    return made


def source(dtype: Any, file: str = "kernels.cu") -> str:
    """A file of CUDA C, behind what an element of `dtype` is."""
    kind, stored, computed = _TYPES[dtype]
    files = ("numbers.cu", "rows.cu", file)
    text = "".join((Path(__file__).parent / name).read_text() for name in files)
    return f"#define KIND {kind}\n#define T {stored}\n#define C {computed}\n{text}"


def dense(x: Array) -> Array:
    """x in row-major order without gaps."""
    return x if x.flags.c_contiguous else COPY.get()(x)
