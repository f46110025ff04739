"""Pinned memory of the host for saved values that wait there: handed out again once nobody refers to it.

In: metas of arrays, on the current device and stream. Out: NumPy arrays, contents arbitrary; copies on the device.
A block serves one stream: copies to and from it are enqueued there, in order, so whoever gets it next writes behind
those who read it. Making pinned memory takes long, so blocks are kept from one step to the next; `release_unused` gives
back those that nobody refers to. Raises: DeviceError where there is no more pinned memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from sys import getrefcount
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.errors import DeviceError
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda import context, driver
from compiler_core.runtime.cuda.arguments import address

_Key = tuple[int, int, int]  # device, stream, bytes
_blocks: defaultdict[_Key, list[Array]] = defaultdict(list)
_lock = threading.Lock()


def take(meta: TensorMeta) -> Array:
    """An array in pinned memory, for work on the current stream."""
    xp = context.cupy()
    key = (xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr, max(meta.nbytes, 1))
    with _lock:
        blocks = _blocks[key]
        k = next((k for k in range(len(blocks)) if _is_unused(blocks, k)), len(blocks))
        if k == len(blocks):
            blocks.append(np.ndarray(key[2], np.uint8, _pinned(key[2])))
        made: Array = blocks[k][: meta.nbytes].view(meta.dtype.numpy).reshape(meta.shape)
    return made


def _pinned(nbytes: int) -> Any:
    try:
        return context.cupy().cuda.alloc_pinned_memory(nbytes)
    except Exception as error:  # CuPy's own
        raise DeviceError(
            f"the host has no {cuda.mib(nbytes)} of pinned memory for saved values",
            got=str(error),
            remedy="send less there (compile(offload=...)), or raise the limit of locked memory (ulimit -l)",
        ) from error


def on_device(array: Array) -> Array:
    """A copy of such an array on the current device, behind what its stream has been told: the host does not look
    whether the array is there yet."""
    xp = context.cupy()
    made: Array = xp.empty(array.shape, array.dtype)
    target, source = ctypes.c_uint64(address(made)), ctypes.c_void_p(array.ctypes.data)
    stream = ctypes.c_void_p(xp.cuda.get_current_stream().ptr)
    driver.call("cuMemcpyHtoDAsync_v2", target, source, ctypes.c_size_t(array.nbytes), stream)
    return made


def held_nbytes() -> int:
    """Bytes that are pinned, whether anybody refers to them or not."""
    with _lock:
        return sum(nbytes * len(blocks) for (_, _, nbytes), blocks in _blocks.items())


def release_unused() -> None:
    """Give back the blocks that nobody refers to, once what their devices have been told is done."""
    with _lock:
        for key, blocks in list(_blocks.items()):
            unused = [k for k in range(len(blocks)) if _is_unused(blocks, k)]
            if unused:
                with cuda.on(key[0]):
                    context.cupy().cuda.Device(key[0]).synchronize()
            for k in reversed(unused):
                del blocks[k]


def _is_unused(blocks: list[Array], k: int) -> bool:
    return getrefcount(blocks[k]) == 2  # the list's, and the argument
