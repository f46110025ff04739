"""What an all-reduce by copy engines needs of a GPU: memory that other processes map, copies, words as signals, two
kernels; by CUDA's runtime and driver, and CuPy.

In: a device's number. Out: `CudaPeerMemory`. Addresses are integers, of this process. Only `prepare` and `allocate`
wait.
Words are 32 bits and are compared in a circle: 2**32 - 1 comes before 0, so that counters may wrap around.
Source: CUDA driver API, "Stream Memory Operations" and "Unified Addressing" (cudaIpcGetMemHandle). A word is written
after everything before it in the stream, for all GPUs of the host to see in that order (CU_STREAM_WRITE_VALUE_DEFAULT).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from collectives.errors import TransportError
from collectives.nccl.cuda import Stream

HANDLE_NBYTES = 64
DTYPES = ("float32", "float64", "float16", "bfloat16")
Word: TypeAlias = tuple[int, int]  # its address, its value

_THREADS, _GROUP_NBYTES, _GROUPS, _MOST_BLOCKS = 128, 16, 4, 2048  # a thread adds four groups of 16 bytes, or more
_WARP = 32
_ANY_WAY = 4  # cudaMemcpyDefault: where memory lies is known by its address
_PEER_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess
_FIRST = -5  # priority: CUDA takes the highest that there is, if that is lower
_WAIT, _WRITE, _AT_LEAST = 1, 2, 0  # CU_STREAM_MEM_OP_{WAIT,WRITE}_VALUE_32, CU_STREAM_WAIT_VALUE_GEQ
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's part of a sum. own: its address; slots: of the first slot; stride, count: elements."""

    own: int
    slots: int
    stride: int
    count: int
    rank: int
    dtype: str
    divisor: int


class PeerMemory(Protocol):
    """One device, as copy engines see it."""

    def prepare(self, world_size: int) -> None:
        """Make the kernels that add so many ranks' shares. Raises if they cannot be."""

    def urgent_stream(self) -> Stream:
        """A stream that goes before others, and on which little is done."""

    def allocate(self, nbytes: int) -> int:
        """Memory full of zeros, which can be exported. The host waits."""

    def free(self, address: int) -> None: ...
    def export(self, address: int) -> bytes:
        """A name of this allocation, HANDLE_NBYTES long, for other processes of this host."""

    def map(self, handle: bytes) -> int:
        """Another process's allocation, in this one's addresses. Raises if it is out of reach."""

    def unmap(self, address: int) -> None: ...
    def copy(self, stream: Stream, target: int, source: int, nbytes: int) -> None:
        """By a copy engine, between any two of these GPUs."""

    def signal(self, stream: Stream, writes: Sequence[Word], waits: Sequence[Word]) -> None:
        """Write words; what is enqueued afterwards starts when each of `waits` has reached its value."""

    def add_up(self, stream: Stream, share: Share) -> None:
        """Add all ranks' shares in rank order: into its own place, and into this rank's slot."""

    def seal(self, stream: Stream, failed: int, result: int, nbytes: int) -> None:
        """Fill `result` with NaN if the word `failed` is not zero."""


class _Operation(ctypes.Structure):
    """CUstreamBatchMemOpParams: a union of as many bytes, of which waits and writes of words use these."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("alias", ctypes.c_uint64),
        ("rest", ctypes.c_uint64),
    )


@cache
def _batch() -> Any:
    """The driver's function that enqueues several writes and waits."""
    function = ctypes.CDLL("libcuda.so.1").cuStreamBatchMemOp_v2
    function.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function


class SumKernels:
    """The kernels of sums.cu for one number of ranks, launched on the current stream. cupy: its module."""

    def __init__(self, cupy: Any, world_size: int) -> None:
        text = Path(__file__).with_name("sums.cu").read_text()
        module = cupy.RawModule(code=f"#define RANKS {world_size}\n{text}")
        self._sums = {dtype: module.get_function(f"sum_{dtype}") for dtype in DTYPES}
        self._seal = module.get_function("seal")

    def add_up(self, share: Share) -> None:
        groups = -(-share.count * np.dtype(share.dtype).itemsize // _GROUP_NBYTES)
        blocks = min(-(-groups // (_THREADS * _GROUPS)), _MOST_BLOCKS)
        sizes = (np.uint64(share.stride), np.uint64(share.count), np.uint32(share.rank), np.uint32(share.divisor))
        places = np.uint64(share.own), np.uint64(share.slots)
        self._sums[share.dtype]((blocks,), (_THREADS,), (*places, *sizes))

    def seal(self, failed: int, result: int, nbytes: int) -> None:
        """One warp: it has next to nothing to do, and should find room beside any kernel."""
        self._seal((1,), (_WARP,), (np.uint64(failed), np.uint64(result), np.uint64(nbytes)))


class CudaPeerMemory:
    """CuPy's device number `index`."""

    def __init__(self, index: int) -> None:
        self.cupy: Any = import_module("cupy")
        self.runtime = self.cupy.cuda.runtime
        self.index = index
        self._kernels: SumKernels | None = None

    def _device(self) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = self.cupy.cuda.Device(self.index)
        return device

    def prepare(self, world_size: int) -> None:
        _batch()
        with self._device():
            self._kernels = SumKernels(self.cupy, world_size)

    def urgent_stream(self) -> Stream:
        with self._device():
            return self.cupy.cuda.Stream(non_blocking=True, priority=_FIRST)

    def allocate(self, nbytes: int) -> int:
        stream = self.urgent_stream()
        with self._device():  # not of CuPy's pool, whose blocks are parts of larger allocations
            address = int(self.runtime.malloc(nbytes))
            self.runtime.memsetAsync(address, 0, nbytes, stream.ptr)
        stream.synchronize()
        return address

    def free(self, address: int) -> None:
        with self._device():
            self.runtime.free(address)

    def export(self, address: int) -> bytes:
        with self._device():
            return bytes(self.runtime.ipcGetMemHandle(address))

    def map(self, handle: bytes) -> int:
        with self._device():
            return int(self.runtime.ipcOpenMemHandle(handle, _PEER_ACCESS))

    def unmap(self, address: int) -> None:
        with self._device():
            self.runtime.ipcCloseMemHandle(address)

    def copy(self, stream: Stream, target: int, source: int, nbytes: int) -> None:
        with self._device():
            self.runtime.memcpyAsync(target, source, nbytes, _ANY_WAY, stream.ptr)

    def signal(self, stream: Stream, writes: Sequence[Word], waits: Sequence[Word]) -> None:
        said = [(_WRITE, address, value, 0, 0, 0) for address, value in writes]
        said += [(_WAIT, address, value, _AT_LEAST, 0, 0) for address, value in waits]
        operations = (_Operation * len(said))(*(_Operation(*row) for row in said))
        with self._device():
            code = _batch()(stream.ptr, len(said), operations, 0)
            if code == _NO_CONTEXT:  # this thread has called nothing of CUDA's so far
                self.runtime.streamQuery(stream.ptr)
                code = _batch()(stream.ptr, len(said), operations, 0)
        if code:
            raise TransportError("CUDA refused cuStreamBatchMemOp", got=f"error {code}")

    def add_up(self, stream: Stream, share: Share) -> None:
        assert self._kernels is not None
        with self._device(), stream:
            self._kernels.add_up(share)

    def seal(self, stream: Stream, failed: int, result: int, nbytes: int) -> None:
        assert self._kernels is not None
        with self._device(), stream:
            self._kernels.seal(failed, result, nbytes)
