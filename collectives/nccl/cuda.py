"""What the transport needs of a GPU: streams, events, copies; by CuPy.

In: a device's number. Out: `Cuda`. Streams made here do not wait for the default stream, nor it for them; with torch's
TORCH_NCCL_HIGH_PRIORITY=1 their kernels get multiprocessors before those of streams that compute.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collectives.nccl.peer_memory import PeerMemory

DeviceArray: TypeAlias = Any  # of the device's array module
Stream: TypeAlias = Any
Event: TypeAlias = Any


class Runtime(Protocol):
    """One device, as the transport sees it. Events carry times."""

    index: int

    def use(self) -> None:
        """Make it the thread's current device."""

    def current(self) -> Stream:
        """The thread's current stream: what computes."""

    def new_stream(self) -> Stream: ...
    def pointer(self, stream: Stream) -> int: ...
    def address(self, array: DeviceArray) -> int: ...
    def record(self, stream: Stream) -> Event:
        """An event behind all that was enqueued on `stream`."""

    def wait(self, stream: Stream, event: Event) -> None:
        """What is enqueued on `stream` from now on starts after `event`. The host does not wait."""

    def is_done(self, event: Event) -> bool: ...
    def synchronize(self, event: Event) -> None:
        """The host waits for `event`."""

    def elapsed_s(self, first: Event, last: Event) -> float: ...
    def empty(self, stream: Stream, numel: int, dtype: np.dtype[Any]) -> DeviceArray:
        """Memory that `stream` uses, and no other."""

    def run(self, stream: Stream, function: Callable[[], None]) -> None:
        """Call `function`, whose array operations go to `stream`."""

    def to_host(self, array: DeviceArray) -> np.ndarray[Any, np.dtype[Any]]:
        """A copy in host memory, when the current stream has made the array. The host waits."""

    def fill(self, array: DeviceArray, values: np.ndarray[Any, np.dtype[Any]]) -> None:
        """Copy `values` from host memory into `array`."""

    def identity(self) -> int:
        """A number that no other GPU has, on any host; 63 bits."""

    def peer_memory(self) -> PeerMemory:
        """Memory of this GPU that other processes' GPUs reach. Raises if there is no such thing."""


class Cuda:
    """CuPy's device number `index`."""

    def __init__(self, index: int) -> None:
        self.cupy: Any = import_module("cupy")
        self.index = index

    def use(self) -> None:
        self.cupy.cuda.Device(self.index).use()

    def current(self) -> Stream:
        """The thread's stream on this device, whichever device is current."""
        with self._device():
            return self.cupy.cuda.get_current_stream()

    def new_stream(self) -> Stream:
        with self._device():
            return self.cupy.cuda.Stream(non_blocking=True, priority=-1 if _is_high_priority() else None)

    def _device(self) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = self.cupy.cuda.Device(self.index)
        return device

    def pointer(self, stream: Stream) -> int:
        return int(stream.ptr)

    def address(self, array: DeviceArray) -> int:
        return int(array.data.ptr)

    def record(self, stream: Stream) -> Event:
        with self._device():
            event = self.cupy.cuda.Event()
            event.record(stream)
        return event

    def wait(self, stream: Stream, event: Event) -> None:
        stream.wait_event(event)

    def is_done(self, event: Event) -> bool:
        return bool(event.done)

    def synchronize(self, event: Event) -> None:
        event.synchronize()

    def elapsed_s(self, first: Event, last: Event) -> float:
        return float(self.cupy.cuda.get_elapsed_time(first, last)) * 1e-3

    def empty(self, stream: Stream, numel: int, dtype: np.dtype[Any]) -> DeviceArray:
        with self._device(), stream:
            return self.cupy.empty(numel, dtype)

    def run(self, stream: Stream, function: Callable[[], None]) -> None:
        with self._device(), stream:
            function()

    def to_host(self, array: DeviceArray) -> np.ndarray[Any, np.dtype[Any]]:
        copy: np.ndarray[Any, np.dtype[Any]] = array.get()
        return copy

    def fill(self, array: DeviceArray, values: np.ndarray[Any, np.dtype[Any]]) -> None:
        array.set(values)

    def identity(self) -> int:
        runtime = self.cupy.cuda.runtime
        name = runtime.getDeviceProperties(self.index)["uuid"]
        return int.from_bytes(hashlib.sha256(bytes(name)).digest()[:8], "little") >> 1

    def peer_memory(self) -> PeerMemory:
        from collectives.nccl.peer_memory import CudaPeerMemory

        return CudaPeerMemory(self.index)


def _is_high_priority() -> bool:
    return os.environ.get("TORCH_NCCL_HIGH_PRIORITY", "").lower() in ("1", "y", "yes", "t", "true", "on")
