"""What compiled programs share on a CUDA device: loaded kernels, cuBLAS's handles, and blocks of memory.

In: a device (the current one of CuPy's, in this thread), files of cubins, sizes. Out: addresses and handles.

    arena     one block for each thread, stream and level of nesting, as large as the largest program needs: work on a
              stream runs in order, so nothing in it outlives the program that wrote it. Kept until `release_unused`
    handle    cuBLAS's, one for each thread, device and level, never shared: it carries stream and workspace, which a
              program that interrupts another (a bucket's hook, an update that a forward waits for) has of its own;
              cuDNN's, one for each thread and device
    copies    the stream that copies to and from the host travel on, and two events for each of a program: one table
              for each thread, device and level. Of a stream that runs in order, an event that is recorded again later
              stands for all before it
    units     0 and 1 as f32 and f64 on the device, for calls that read alpha and beta there
Memory is CuPy's pool's, so it counts there. Invariant: CuPy has made its context before anything here calls the driver.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.runtime.cuda import driver
from compiler_core.runtime.cuda.entry import WORKSPACE_NBYTES, CudaFunction

_NO_REDUCED_REDUCTION = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: sums of 16-bit floats stay in f32


cupy = cuda.module


def on(number: int | None) -> AbstractContextManager[Any]:
    """A block in which that device is the current one; None: in which the current one stays."""
    return nullcontext() if number is None else cuda.on(number)


class _Threads(threading.local):
    """This thread's blocks, by device, stream and level; its level; its handles of cuBLAS, by device and level, and for
    eager code by device, with the stream that each is told; of cuDNN, by device; its streams and events for copies, by
    device and level.
    """

    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int, int], Any] = {}
        self.level = 0
        self.handles: dict[tuple[int, int], int] = {}
        self.eager_handles: dict[int, tuple[int, int | None]] = {}
        self.dnn_handles: dict[int, int] = {}
        self.copies: dict[tuple[int, int], list[Any]] = {}


_threads = _Threads()


def arena(nbytes: int, device: int, stream: int) -> Any:
    """At least `nbytes` bytes of this thread's memory for work on `stream`, as an array; contents arbitrary."""
    key = (device, stream, _threads.level)
    block = _threads.blocks.get(key)
    if block is None or block.nbytes < nbytes:
        block = _threads.blocks[key] = cupy().empty(nbytes, np.uint8)
    return block


@contextmanager
def nested_arena() -> Iterator[None]:
    """Within the block, a program whose arena is in use may be interrupted by others, which get another."""
    _threads.level += 1
    try:
        yield
    finally:
        _threads.level -= 1


def release_unused() -> None:
    """Give this thread's blocks back to CuPy's pool, unless a program is under way."""
    if _threads.level == 0:
        _threads.blocks.clear()


def blas_handle(device: int) -> int:
    """This thread's handle of cuBLAS at this level, on the current device, whose number is `device`."""
    key = (device, _threads.level)
    handle = _threads.handles.get(key)
    if handle is None:
        handle = _threads.handles[key] = _new_blas_handle()
    return handle


def eager_blas_handle() -> int:
    """This thread's handle of cuBLAS for eager code, on the current device and stream, with a workspace of its own."""
    xp = cupy()
    device, stream = xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr
    handle, told = _threads.eager_handles.get(device, (0, None))
    if not handle:
        handle = _new_blas_handle()
    if told != stream:
        driver.call("cublasSetStream_v2", ctypes.c_void_p(handle), ctypes.c_void_p(stream))
        _threads.eager_handles[device] = handle, stream
    return handle


def eager_workspace() -> int:
    """The address of this thread's block of WORKSPACE_NBYTES bytes for eager products on the current device and stream;
    a program that calls an op back has an arena of its own."""
    xp = cupy()
    device, stream = xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr
    block = _threads.blocks.get((device, stream, _threads.level + 1))
    if block is None or block.nbytes < WORKSPACE_NBYTES:
        with nested_arena():
            block = arena(WORKSPACE_NBYTES, device, stream)
    return int(block.data.ptr)


def _new_blas_handle() -> int:
    made = ctypes.c_void_p()
    driver.call("cublasCreate_v2", ctypes.byref(made))
    driver.call("cublasSetMathMode", made, _NO_REDUCED_REDUCTION)
    return made.value or 0


def dnn_handle(device: int) -> int:
    """This thread's handle of cuDNN on the current device, whose number is `device`."""
    handle = _threads.dnn_handles.get(device)
    if handle is None:
        made = ctypes.c_void_p()
        driver.call("cudnnCreate", ctypes.byref(made))
        handle = _threads.dnn_handles[device] = made.value or 0
    return handle


def copies(device: int, count: int) -> ctypes.Array[ctypes.c_void_p]:
    """The table of a program with so many copies on the current device, whose number is `device`."""
    found = _threads.copies.setdefault((device, _threads.level), [])
    if not found:
        found.append(cupy().cuda.Stream(non_blocking=True))
    while len(found) < 1 + 2 * count:
        found.append(cupy().cuda.Event(disable_timing=True))
    return (ctypes.c_void_p * len(found))(*(one.ptr for one in found))


_units: dict[int, Any] = {}


def units(device: int) -> int:
    """Address of f32 0, 1, 8 bytes of nothing, f64 0, 1 on the current device, whose number is `device`."""
    if device not in _units:
        words = np.array([0, 1, 0, 0], np.float32).tobytes() + np.array([0, 1], np.float64).tobytes()
        _units[device] = cupy().asarray(np.frombuffer(words, np.uint8))
    return int(_units[device].data.ptr)


def load_function(function: CudaFunction, cubin: bytes, where: str) -> int:
    """The address of a kernel's handle (CUfunction), loaded into the current context; it is never unloaded."""
    return _handle(_load_module(cubin, where), function, where)


@contextmanager
def loaded_function(function: CudaFunction, cubin: bytes, where: str) -> Iterator[int]:
    """The same in a block, after which it is unloaded; what it was told to do must be done by then."""
    module = _load_module(cubin, where)
    try:
        yield _handle(module, function, where)
    finally:
        driver.call("cuModuleUnload", module, where=where)


def _load_module(cubin: bytes, where: str) -> ctypes.c_void_p:
    module = ctypes.c_void_p()
    driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin), where=where)
    return module


def _handle(module: ctypes.c_void_p, function: CudaFunction, where: str) -> int:
    handle = ctypes.c_void_p()
    driver.call("cuModuleGetFunction", ctypes.byref(handle), module, function.name.encode(), where=where)
    if function.shared > driver.STATIC_LIMIT:
        driver.call("cuFuncSetAttribute", handle, driver.MAX_DYNAMIC_SHARED, function.shared, where=where)
    return handle.value or 0


def permit_tf32(permitted: bool) -> None:
    """Let products of f32 be computed with operands rounded to tf32 (10 bits of mantissa), by this process."""
    cuda.precision.tf32 = permitted


def tf32_is_permitted() -> bool:
    return cuda.precision.tf32
