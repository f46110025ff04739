"""The stand-in's `cupy.cuda`: devices, streams, events, memory pools, the runtime's calls that we use.

In: the State of a stand-in. Out: `install(state)`, whose parts are made by a function each. Work is done when a call
returns, so every event is done at once; what a test can see is the order in which streams were told things
(`Stream.log`).
"""

from __future__ import annotations

import time
import types
from typing import Any

import numpy as np

from tests.fake_cupy.array import Block, State

_KIND = {"major": 9, "minor": 0, "multiProcessorCount": 132, "totalGlobalMem": 150 << 30, "warpSize": 32,
         "sharedMemPerBlock": 49152, "sharedMemPerBlockOptin": 232448, "regsPerMultiprocessor": 65536,
         "regsPerBlock": 65536, "l2CacheSize": 60 << 20, "maxThreadsPerMultiProcessor": 2048,
         "maxThreadsPerBlock": 1024,
         "sharedMemPerMultiprocessor": 233472, "clockRate": 1980000, "memoryClockRate": 3201000,
         "memoryBusWidth": 6144, "integrated": 0, "isMultiGpuBoard": 0, "pciBusID": 1, "pciDeviceID": 0,
         "pciDomainID": 0}  # fmt: skip


def _checked(state: State, number: int) -> int:
    """`number`, if there is such a device."""
    from tests.fake_cupy.module import CUDARuntimeError

    if not 0 <= number < state.devices:
        what = "cudaErrorNoDevice: no CUDA-capable device is detected" if not state.devices else (
            "cudaErrorInvalidDevice: invalid device ordinal"
        )  # fmt: skip
        raise CUDARuntimeError(what)
    return number


def _device_class(state: State) -> type:
    class Device:
        """A device; a block in which it is the current one."""

        def __init__(self, device: int | None = None) -> None:
            self.id = state.current if device is None else _checked(state, int(device))
            self._before: list[int] = []

        def __enter__(self) -> Device:
            self._before.append(state.current)
            state.current = self.id
            return self

        def __exit__(self, *error: object) -> None:
            state.current = self._before.pop()

        def __int__(self) -> int:
            return self.id

        def __eq__(self, other: object) -> bool:
            return getattr(other, "id", None) == self.id

        def __hash__(self) -> int:
            return hash(self.id)

        def use(self) -> None:
            state.current = self.id

        def synchronize(self) -> None:
            return None

        compute_capability = property(lambda self: "90")
        mem_info = property(lambda self: (state.limit - state.used[self.id], state.limit))
        attributes = property(lambda self: {"MultiProcessorCount": 132, "WarpSize": 32})

    return Device


def _streams(state: State) -> dict[str, Any]:
    """Streams, events, and what asks for them."""
    from tests.fake_cupy.module import CUDARuntimeError

    streams: dict[int, Any] = {}

    class Stream:
        """A queue of work. null: the default one. log: what it was told."""

        null: Any = None

        def __init__(
            self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
        ) -> None:
            self.device_id = -1 if null else state.current
            self.ptr, self.priority = 0 if null else id(self), priority or 0
            self.log: list[Any] = []
            self._before: list[Any] = []

        def __enter__(self) -> Stream:
            self._before.append(get_current_stream())
            self.use()
            return self

        def __exit__(self, *error: object) -> None:
            streams[state.current] = self._before.pop()

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and self.ptr == other.ptr

        def __hash__(self) -> int:
            return hash(self.ptr)

        def use(self) -> Stream:
            streams[state.current] = self
            return self

        done = property(lambda self: True)
        is_capturing = lambda self: False  # noqa: E731

        def synchronize(self) -> None:
            self.log.append("synchronize")

        def record(self, event: Any = None) -> Any:
            made = Event() if event is None else event
            made.record(self)
            return made

        def wait_event(self, event: Any) -> None:
            self.log.append(("wait", event))

    class ExternalStream(Stream):
        """A stream that other code made."""

        def __init__(self, ptr: int, device_id: int = -1) -> None:
            super().__init__(null=True)
            self.ptr, self.device_id = ptr, device_id

    class Event:
        """A point in a stream."""

        def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
            self.disable_timing, self.time_s, self.ptr = disable_timing, 0.0, id(self)

        def record(self, stream: Any = None) -> None:
            self.time_s = time.perf_counter()
            (get_current_stream() if stream is None else stream).log.append(("record", self))

        def synchronize(self) -> None:
            return None

        done = property(lambda self: True)

    Stream.null = Stream(null=True)

    def get_current_stream(device_id: int = -1) -> Any:
        return streams.get(state.current if device_id < 0 else device_id, Stream.null)

    def get_elapsed_time(start_event: Any, end_event: Any) -> float:
        if start_event.disable_timing or end_event.disable_timing:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        return (end_event.time_s - start_event.time_s) * 1e3  # type: ignore[no-any-return]

    return {
        "Stream": Stream, "ExternalStream": ExternalStream, "Event": Event,
        "get_current_stream": get_current_stream, "get_elapsed_time": get_elapsed_time,
    }  # fmt: skip


def _memory_classes(state: State) -> dict[str, Any]:
    """Pools and places."""

    class MemoryPool:
        """The default pool: of the current device, as CuPy's is. Another counts as part of it."""

        def __init__(self, of: State | None = None) -> None:
            self._state = of

        def used_bytes(self) -> int:
            return 0 if self._state is None else self._state.used[self._state.current]

        def total_bytes(self) -> int:
            return 0 if self._state is None else self._state.held[self._state.current]

        def malloc(self, size: int) -> Any:
            return state.malloc(size)

        def free_bytes(self) -> int:
            return self.total_bytes() - self.used_bytes()

        def n_free_blocks(self) -> int:
            return 0

        def free_all_blocks(self, stream: Any = None) -> None:
            if self._state is not None:
                self._state.held[self._state.current] = self._state.used[self._state.current]

        def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
            assert self._state is not None
            self._state.limit = size or 1 << 40

        def get_limit(self) -> int:
            return 0 if self._state is None else self._state.limit

    class UnownedMemory:
        """Memory that somebody else holds."""

        def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
            self.ptr, self.size, self.owner = ptr, size, owner

    class MemoryPointer:
        """A place in memory."""

        def __init__(self, mem: UnownedMemory | Block, offset: int) -> None:
            self.mem, self.ptr, self.state = mem, mem.ptr + offset, state

        def __add__(self, offset: int) -> MemoryPointer:
            return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def alloc(size: int) -> MemoryPointer:
        block = state.allocate(size)
        block.fill_with(np.empty(size, np.uint8))
        return MemoryPointer(block, 0)

    made = {"MemoryPool": MemoryPool, "UnownedMemory": UnownedMemory, "MemoryPointer": MemoryPointer}
    return {**made, "alloc": alloc}


def _runtime(state: State) -> types.ModuleType:
    """`cupy.cuda.runtime`."""
    from tests.fake_cupy.module import CUDARuntimeError

    def get_device_count() -> int:
        if not state.devices:
            raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
        return state.devices

    runtime: Any = types.ModuleType("cupy.cuda.runtime")
    runtime.getDeviceCount = get_device_count
    runtime.CUDARuntimeError = CUDARuntimeError
    runtime.getDeviceProperties = lambda number: {**_KIND, "name": b"Stand-in GPU", "n": _checked(state, number)}
    runtime.getDevice = lambda: state.current
    runtime.setDevice = lambda number: setattr(state, "current", _checked(state, int(number)))
    runtime.deviceSynchronize = lambda: None
    runtime.memGetInfo = lambda: (state.limit - state.used[state.current], state.limit)
    runtime.driverGetVersion = runtime.runtimeGetVersion = lambda: 13000
    runtime.deviceCanAccessPeer = lambda a, b: int(a != b)
    return runtime  # type: ignore[no-any-return]


def install(state: State) -> types.ModuleType:
    """The module `cupy.cuda`."""
    from tests.fake_cupy.module import OutOfMemoryError

    cuda: Any = types.ModuleType("cupy.cuda")
    memory: Any = types.ModuleType("cupy.cuda.memory")
    memory.OutOfMemoryError = OutOfMemoryError
    vars(cuda).update(_streams(state), **_memory_classes(state), Device=_device_class(state), runtime=_runtime(state))
    cuda.memory, cuda.is_available = memory, lambda: state.devices > 0
    cuda.pool, cuda.pinned_pool = cuda.MemoryPool(state), cuda.MemoryPool(None)
    cuda.set_allocator = lambda allocator=None: setattr(state, "allocate", allocator or state.malloc)
    cuda.get_allocator = lambda: cuda.alloc  # which gives pointers, as the pool's does there
    cuda.PinnedMemoryPointer = type("PinnedMemoryPointer", (bytearray,), {})
    cuda.alloc_pinned_memory = cuda.PinnedMemoryPointer
    return cuda  # type: ignore[no-any-return]
