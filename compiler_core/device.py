"""Devices: one small object each. It says which array module computes, how to get there, and what an event is.

In: names ("cpu", "cuda:1"). Out: `Device` objects; `cpu`, `meta` (shapes without data, see ops/meta_value.py) and those
of CUDA (cuda.py) that tensors are on are interned. `check_device` gives the one that a name means, or says why it
cannot be used; `device_of` and `array_module` tell where a value is and whose array it is. `with device:` makes it the
default of new tensors in this thread, `set_default_device` until told otherwise. A CPU call returns when its work is
done, so a CPU event is complete from the start; a GPU's is not, and code that waits speaks of events for that reason.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from compiler_core import cuda
from compiler_core.errors import DeviceError

Array = Any  # of the device's array module


class Event(Protocol):
    """A point in a device's work."""

    time_s: float  # host time at which it was recorded, seconds of time.perf_counter

    def query(self) -> bool:
        """Whether all work before it is done."""

    def synchronize(self) -> None:
        """Wait until all work before it is done."""


class HostEvent:
    """An event of a device whose calls return when they are done."""

    __slots__ = ("time_s",)

    def __init__(self) -> None:
        self.time_s = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class StreamEvent:
    """An event of a CUDA device, recorded in its current stream."""

    __slots__ = ("_event", "time_s")

    def __init__(self, number: int) -> None:
        with cuda.on(number):
            self._event = cuda.module().cuda.Event(disable_timing=True)
            self._event.record()
        self.time_s = time.perf_counter()

    def query(self) -> bool:
        return bool(self._event.done)

    def synchronize(self) -> None:
        self._event.synchronize()


KINDS = ("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy",
         "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone")  # fmt: skip  # those that torch can name
_INDEX = re.compile(r"0|[1-9][0-9]*")


class Device:
    """`Device("cpu")`, as torch.device. type: its name; index: None on the CPU; xp: the array module;
    is_gpu: it has a number, streams, and memory of its own; is_host: its arrays are NumPy's.

    "cuda:1" (or "cuda", 1) can be named, compared and printed where there is none, as in torch; so can kinds that
    nothing can be put on ("mps"): `check_device` refuses them. "cuda" means the current device when it is used.
    """

    __slots__ = ("index", "is_gpu", "is_host", "type")
    type: str
    index: int | None
    is_gpu: bool
    is_host: bool

    def __new__(cls, type: str | Device | int = "cpu", index: int | None = None) -> Device:
        if isinstance(type, Device):
            return type
        kind, place = _parsed("cuda", type) if isinstance(type, int) else _parsed(str(type), index)
        if kind == "cpu" and place is None:
            return _CPU
        if kind == "meta" and place is None:
            return _META
        return _make(kind, place)

    @property
    def xp(self) -> ModuleType:
        """The module whose arrays are here. Raises DeviceError where there is no such device."""
        return cuda.module() if self.is_gpu else np

    def record_event(self) -> Event:
        """An event after all work issued so far."""
        return StreamEvent(cuda.check_number(self.index)) if self.is_gpu else HostEvent()

    def put(self, array: Array, *, non_blocking: bool = False) -> Array:
        """`array`, of any device, here: itself if it is here already. non_blocking: as `cuda.put`.

        A host array that repeats (strides 0) is spread out on a device: programs would copy it at every call.
        """
        if self.is_gpu:
            return cuda.put(array, cuda.check_number(self.index), non_blocking=non_blocking, dense=True)
        return cuda.fetch(array) if cuda.is_array(array) else array

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new C-contiguous array here. Its values are undefined."""
        return self._made("empty", shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new C-contiguous array of zeros here."""
        return self._made("zeros", shape, dtype)

    def _made(self, how: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if not self.is_gpu:
            return getattr(np, how)(shape, dtype)
        number = cuda.check_number(self.index)
        with cuda.on(number), cuda.allocating(number):
            return getattr(cuda.module(), how)(shape, dtype)

    def working(self) -> AbstractContextManager[object]:
        """A block in which array operations are this device's: they go to its current stream."""
        return nullcontext() if not self.is_gpu else cuda.on(cuda.check_number(self.index))

    def scale(self, array: Array, factor: float, out: Array) -> None:
        """out = array * factor, in its dtype. array, out: of this device, of one shape and dtype; may be the same."""
        with self.working():
            self.xp.multiply(array, array.dtype.type(factor), out=out)

    def __enter__(self) -> Device:
        _default.inner.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _default.inner.pop()

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Device, (str(self),)

    def __eq__(self, other: object) -> bool:
        return str(self) == other if isinstance(other, str) else isinstance(other, Device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"


def _parsed(text: str, index: int | None) -> tuple[str, int | None]:
    """("cuda", 1) of "cuda:1". Raises DeviceError, in torch's words."""
    kind, colon, number = text.partition(":")
    if not text:
        raise DeviceError("Device string must not be empty")
    if kind not in KINDS:
        known = f"Expected one of {', '.join(KINDS)} device type at start of device string: {kind}"
        raise DeviceError(f"{known}; there is no device {text!r}")
    if colon and not _INDEX.fullmatch(number):
        raise DeviceError(f"Invalid device string: {text!r}", expected=f"{kind}, or {kind}:0, {kind}:1, ...")
    if colon and index is not None:
        what = "type (string) must not include an index because index was passed explicitly"
        raise DeviceError(f"{what}: {text}")
    if index is not None and index < 0:
        raise DeviceError("Device index must not be negative", got=str(index))
    return kind, int(number) if colon else index


def _make(kind: str, index: int | None) -> Device:
    made: Device = object.__new__(Device)
    made.type, made.index, made.is_gpu, made.is_host = kind, index, kind == "cuda", kind == "cpu"
    return made


_CPU, _META = _make("cpu", None), _make("meta", None)
_CUDA: dict[int, Device] = {}  # by number
cpu, meta = _CPU, _META
device = Device
use_array_module = cuda.use


def cuda_device(number: int) -> Device:
    """The one object for "cuda:number"."""
    found = _CUDA.get(number)
    if found is None:
        found = _CUDA.setdefault(number, _make("cuda", number))
    return found


def device_of(array: Array) -> Device:
    """Where an array is. Values of device meta and nodes are no arrays."""
    return cuda_device(array.data.device_id) if cuda.is_array(array) else _CPU


def array_module(array: Array) -> Any:
    """NumPy or CuPy: whose array this is."""
    return cuda.module() if cuda.is_array(array) else np


def copy_of(array: Array) -> Array:
    """A C-contiguous copy where the array is. CuPy's own would be on the current device."""
    if not cuda.is_array(array):
        return array.copy()
    with cuda.on(array.data.device_id), cuda.allocating(array.data.device_id):
        return array.copy()


def is_array(value: object) -> bool:
    """Whether this is an array of some device."""
    return isinstance(value, np.ndarray) or cuda.is_array(value)


class _Default(threading.local):
    """The default device of a thread: what `set_default_device` said, and the blocks it is in, innermost last."""

    def __init__(self) -> None:
        self.inner: list[Device] = []
        self.set: Device = _CPU
        self.asked = 0  # how often it was asked for: captured code is guarded by it only if it asks


_default = _Default()


def default_device() -> Device:
    """Where this thread makes tensors."""
    _default.asked += 1
    return _default.inner[-1] if _default.inner else _default.set


def set_default_device(device: str | Device | None) -> None:
    """Make tensors there from now on, in this thread; None: on the CPU. Raises DeviceError for what is no device."""
    _default.set = _CPU if device is None else Device(device)


def get_default_device() -> Device:
    """Where this thread makes tensors; of "cuda" the current device. Raises DeviceError where that is not here."""
    found = default_device()
    return check_device(found) if found.is_gpu else found


def default_devices() -> tuple[Device, ...]:
    """What this thread was told: by `set_default_device`, and by the blocks that it is in."""
    return (_default.set, *_default.inner)


def set_default_devices(devices: tuple[Device, ...]) -> None:
    """Tell this thread again what `default_devices` gave."""
    _default.set, _default.inner[:] = devices[0], devices[1:]


def times_asked() -> int:
    """How often this thread's default device has been asked for."""
    return _default.asked


def check_device(name: str | Device | int | None) -> Device:
    """The device called `name`; None is the CPU, "cuda" the current CUDA device.

    Raises DeviceError for one that is not there, which says what is missing.
    """
    if name is None or name is _CPU:
        return _CPU
    found = Device(name)
    if found.type == "meta":
        return _META
    if found.is_gpu:
        return cuda_device(cuda.check_number(found.index))
    if found.type == "cpu" and not found.index:
        return _CPU
    raise DeviceError(f"there is no device {str(name)!r} here", expected="cpu, cuda, or meta")
