"""Streams and events of CUDA devices, with torch's names, on CuPy's.

In: devices, streams, events. Out: `Stream`, `Event`, `stream(...)` as a block. Work goes to the current stream of the
current device of a thread; memory that one stream frees is used again by that stream alone (CuPy's pool), so what a
stream reads of another's must live until it has waited. What an optimizer has put off (overlap="step") is put into the
current stream before anybody can refer to that: changing it, an event behind it, a wait for it.
"""

from __future__ import annotations

from typing import Any, NoReturn

from compiler_core import cuda as core
from compiler_core.device import Device, cuda_device
from compiler_core.tensor.memory.fence import anything_waits, settle_all
from distcompile.cuda.devices import no_gpu, number
from distcompile.errors import ArgumentError, NoGPUError
from distcompile.surface import streams


class Stream(streams.Stream):
    """A queue of a device's work. priority: lower numbers first. stream: one of CuPy's, to be wrapped."""

    def __init__(self, device: Any = None, priority: int = 0, *, stream: Any = None, **kwargs: Any) -> None:
        if kwargs:
            raise ArgumentError("cuda.Stream is made of a device and a priority", got=", ".join(kwargs))
        self._number = number(device, "Stream")
        if stream is None:
            with core.on(self._number):
                stream = core.module().cuda.Stream(non_blocking=True, priority=priority)
        self._stream, self._entered = stream, []  # type: ignore[var-annotated]

    @property
    def device(self) -> Device:
        """Whose work it is."""
        return cuda_device(self._number)

    @property
    def cuda_stream(self) -> int:
        """CUDA's handle."""
        return int(self._stream.ptr)

    @property
    def stream_id(self) -> int:
        """A number of its own on its device: CUDA's handle."""
        return self.cuda_stream

    @property
    def priority(self) -> int:
        """Lower numbers first."""
        return int(self._stream.priority)

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        """(least, greatest) priority: (0, -5) on today's devices."""
        return 0, -5

    def query(self) -> bool:
        """Whether all of its work is done."""
        return bool(self._stream.done)

    def synchronize(self) -> None:
        """Wait until all of its work is done."""
        enqueue_all()
        self._stream.synchronize()
        core.waited()

    def wait_event(self, event: Event) -> None:
        """Work put here from now on waits for the event; the host does not."""
        self._stream.wait_event(event._made(self))

    def wait_stream(self, stream: Stream) -> None:
        """Work put here from now on waits for what is in `stream` now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind all of its work so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        block = StreamContext(self)
        self._entered.append(block)
        block.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self._number, self.cuda_stream) == (other._number, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self._number, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that other code made. stream_ptr: CUDA's handle."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        place = number(device, "ExternalStream")
        super().__init__(place, stream=core.module().cuda.ExternalStream(stream_ptr, place))


class Event(streams.Event):
    """A point in a stream's work. enable_timing: `elapsed_time` may be asked. Made when it is first recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess and enable_timing:
            raise ArgumentError("an event of other processes cannot be timed", expected="enable_timing=False")
        if core.why_not():
            raise no_gpu("Event")
        self._facts = {"disable_timing": not enable_timing, "block": blocking, "interprocess": interprocess}
        self._event: Any = None
        self._timed = enable_timing
        self._device: Device | None = None

    @property
    def device(self) -> Device | None:
        """Whose work it stands behind; None until it is recorded."""
        return self._device

    @property
    def cuda_event(self) -> int:
        """CUDA's handle; 0 until it is recorded."""
        return 0 if self._event is None else int(self._event.ptr)

    event_id = cuda_event

    def ipc_handle(self) -> NoReturn:
        """Raises NoGPUError: events are not shared between processes."""
        raise NoGPUError("Event.ipc_handle is not offered: events are not shared between processes",
                         remedy="torch.distributed's barrier()")  # fmt: skip

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: Any) -> NoReturn:
        """Raises NoGPUError: events are not shared between processes."""
        raise NoGPUError("Event.from_ipc_handle is not offered: events are not shared between processes",
                         remedy="torch.distributed's barrier()")  # fmt: skip

    def _made(self, stream: Stream) -> Any:
        if self._event is None:
            with core.on(stream._number):
                self._event = core.module().cuda.Event(**self._facts)
            self._device = cuda_device(stream._number)
        return self._event

    def record(self, stream: Stream | None = None) -> None:
        """Stand behind all work that is in `stream`, the current one if None."""
        enqueue_all()
        place = current_stream() if stream is None else stream
        with core.on(place._number):
            self._made(place).record(place._stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Work put into `stream` from now on waits for it."""
        (current_stream() if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether all work before it is done: of one that was not recorded, yes."""
        return self._event is None or bool(self._event.done)

    def synchronize(self) -> None:
        """Wait until all work before it is done."""
        if self._event is not None:
            self._event.synchronize()
            core.waited()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two events that were recorded with enable_timing."""
        if not (self._timed and end_event._timed):
            raise ArgumentError(
                "Both events must be created with argument 'enable_timing=True'.", remedy="Event(enable_timing=True)"
            )
        if self._event is None or end_event._event is None:
            raise ArgumentError("Both events must be recorded before calculating elapsed time.")
        return float(core.module().cuda.get_elapsed_time(self._event, end_event._event))


def enqueue_all() -> None:
    """Put what waits to be computed (tensor/memory/fence.py) into the current stream. The host waits for nothing
    there."""
    if anything_waits():
        settle_all()


def current_stream(device: Any = None) -> Stream:
    """Where this thread's work on the device goes."""
    place = number(device, "current_stream")
    return Stream(place, stream=core.stream_of(place))


def default_stream(device: Any = None) -> Stream:
    """CUDA's default stream of the device."""
    place = number(device, "default_stream")
    return Stream(place, stream=core.module().cuda.Stream.null)


def set_stream(stream: Stream) -> None:
    """Work goes there from now on, in this thread."""
    enqueue_all()
    core.module().cuda.Device(stream._number).use()
    stream._stream.use()


def get_stream_from_external(data_ptr: int, device: Any = None) -> ExternalStream:
    """A stream that other code made. data_ptr: CUDA's handle."""
    return ExternalStream(data_ptr, device)


class StreamContext:
    """A block whose work goes to a stream; of None, as before."""

    def __init__(self, stream: Stream | None) -> None:
        if stream is not None and core.why_not():
            raise no_gpu("StreamContext")
        self.stream = stream
        self._before: tuple[int, Any] | None = None

    def __enter__(self) -> None:
        if self.stream is None:
            return
        place = self.stream._number
        self._before = core.current(), core.stream_of(place)
        set_stream(self.stream)

    def __exit__(self, *error: object) -> None:
        if self.stream is None or self._before is None:
            return
        enqueue_all()
        number_before, stream_before = self._before
        stream_before.use()
        core.module().cuda.Device(number_before).use()


def stream(stream: Stream | None) -> StreamContext:
    """A block whose work goes to `stream`. Raises NoGPUError for one of a GPU, where there is none."""
    return StreamContext(stream)


streams.ON_CUDA.fill((Stream, Event))
