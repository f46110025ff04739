"""torch.Stream and torch.Event: queues of a device's work and points in them, of any kind of device.

In: a device. Out: on a CUDA device what fills `ON_CUDA` (distcompile/cuda/streams.py); on the CPU, whose calls
return when their work is done, a stream that is always empty and events that are complete at once. The classes are
bases of those of CUDA, so that `isinstance(x, torch.Stream)` holds of every stream.
"""

from __future__ import annotations

import time
from typing import Any

from compiler_core import cuda
from compiler_core.device import Device, check_device, cpu
from compiler_core.late import Late
from distcompile.errors import ArgumentError, NoGPUError

ON_CUDA: Late[tuple[type[Stream], type[Event]]] = Late("streams: of CUDA devices")


def _place(device: Any, name: str) -> Device:
    """The device meant, the accelerator if None. Raises NoGPUError where there is none."""
    if device is None and not cuda.device_count():
        raise NoGPUError(
            "Cannot access accelerator device when none is available.", remedy=f"torch.{name}(device='cpu')"
        )
    return check_device("cuda" if device is None else device)


class _OfKind(type):
    """Of the classes below: a call makes one of the device's kind."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__ != __name__:
            return super().__call__(*args, **kwargs)
        device = args[0] if args else kwargs.pop("device", None)
        place = _place(device, cls.__name__)
        if not place.is_gpu:
            return super().__call__(place, *args[1:], **kwargs)
        stream, event = ON_CUDA.get()
        return stream(place, *args[1:], **kwargs) if cls is Stream else event(*args[1:], **kwargs)


class Stream(metaclass=_OfKind):
    """A queue of a device's work. device: the accelerator if not given. priority: lower numbers first."""

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self._device: Device = device

    @property
    def device(self) -> Device:
        """Whose work it is."""
        return self._device

    @property
    def stream_id(self) -> int:
        """A number of its own on its device."""
        return 0

    def query(self) -> bool:
        """Whether all of its work is done."""
        return True

    def synchronize(self) -> None:
        """Wait until all of its work is done."""

    def wait_event(self, event: Any) -> None:
        """Work put here from now on waits for the event."""
        event.synchronize()

    def wait_stream(self, stream: Any) -> None:
        """Work put here from now on waits for what is in `stream` now."""
        stream.synchronize()

    def record_event(self, event: Any = None) -> Any:
        """An event behind all of its work so far."""
        made = Event(self.device) if event is None else event
        made.record(self)
        return made

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class Event(metaclass=_OfKind):
    """A point in a stream's work. enable_timing: `elapsed_time` may be asked."""

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._timed, self._time_s = enable_timing, 0.0

    @property
    def device(self) -> Device | None:
        """Whose work it stands behind; None where that is not known yet."""
        return cpu

    def record(self, stream: Any = None) -> None:
        """Stand behind all work so far."""
        self._time_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Work from now on waits for it."""

    def query(self) -> bool:
        """Whether all work before it is done."""
        return True

    def synchronize(self) -> None:
        """Wait until all work before it is done."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds between two events that were recorded with enable_timing."""
        if not (self._timed and end_event._timed):
            raise ArgumentError(
                "Both events must be created with argument 'enable_timing=True'.", remedy="Event(enable_timing=True)"
            )
        if not (self._time_s and end_event._time_s):
            raise ArgumentError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time_s - self._time_s) * 1e3  # type: ignore[no-any-return]
