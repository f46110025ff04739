"""Devices: one small object each. It says which array module computes, how to get there, and what an event is.

In: names ("cpu", "cuda:1"). Out: `Device` objects; `cpu`, `meta` (shapes without data, see ops/meta_value.py) and those
of CUDA (cuda.py) that tensors are on are interned. `check_device` gives the one that a name means, or says why it
cannot be used; `device_of` and `array_module` tell where a value is and whose array it is. `with device:` makes it the
default of new tensors in this thread, `set_default_device` until told otherwise. A CPU call returns when its work is
done, so a CPU event is complete from the start; a GPU's is not, and code that waits speaks of events for that reason.
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
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


KINDS = ("cpu", "cuda", "meta", "mps", "xpu")


class Device:
    """`Device("cpu")`, as torch.device. type: its name; index: None on the CPU; xp: the array module.

    "cuda:1" (or "cuda", 1) can be named, compared and printed where there is none, as in torch; so can kinds that
    nothing can be put on ("mps"): `check_device` refuses them. "cuda" means the current device when it is used.
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    def __new__(cls, type: str | Device | int = "cpu", index: int | None = None) -> Device:
        if isinstance(type, Device):
            return type
        if isinstance(type, int):
            type = f"cuda:{type}"
        kind, _, number = str(type).partition(":")
        if kind not in KINDS or (number and (index is not None or not number.isdecimal())):
            raise DeviceError(f"there is no device {type!r}", expected=f"one of {', '.join(KINDS)}, and a number")
        place = int(number) if number else index
        if kind == "cpu" and place in (None, 0):
            return _CPU
        if kind == "meta" and place is None:
            return _META
        self = object.__new__(cls)
        self.type, self.index = kind, place
        return self

    @property
    def xp(self) -> ModuleType:
        """The module whose arrays are here. Raises DeviceError where there is no such device."""
        return cuda.module() if self.type == "cuda" else np

    def record_event(self) -> Event:
        """An event after all work issued so far."""
        return StreamEvent(cuda.check_number(self.index)) if self.type == "cuda" else HostEvent()

    def put(self, array: Array) -> Array:
        """`array`, of any device, here: itself if it is here already."""
        if self.type == "cuda":
            return cuda.put(array, cuda.check_number(self.index))
        return cuda.fetch(array) if cuda.is_array(array) else array

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new C-contiguous array here. Its values are undefined."""
        if self.type != "cuda":
            return np.empty(shape, dtype)
        number = cuda.check_number(self.index)
        with cuda.on(number), cuda.allocating(number):
            return cuda.module().empty(shape, dtype)

    def scale(self, array: Array, factor: float, out: Array) -> None:
        """out = array * factor, in its dtype. array, out: of this device, of one shape and dtype; may be the same."""
        with nullcontext() if self.type != "cuda" else cuda.on(cuda.check_number(self.index)):
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


def _make(kind: str, index: int | None) -> Device:
    made: Device = object.__new__(Device)
    made.type, made.index = kind, index
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


_default = _Default()


def default_device() -> Device:
    """Where this thread makes tensors."""
    return _default.inner[-1] if _default.inner else _default.set


def set_default_device(device: str | Device | None) -> None:
    """Make tensors there from now on, in this thread; None: on the CPU. Raises DeviceError for what is no device."""
    _default.set = _CPU if device is None else Device(device)


def check_device(name: str | Device | int | None) -> Device:
    """The device called `name`; None is the CPU, "cuda" the current CUDA device.

    Raises DeviceError for one that is not there, which says what is missing.
    """
    if name is None or name is _CPU:
        return _CPU
    found = Device(name)
    if found.type == "meta":
        return _META
    if found.type == "cuda":
        return cuda_device(cuda.check_number(found.index))
    if found is not _CPU:
        raise DeviceError(f"there is no device {str(name)!r} here", expected="cpu, cuda, or meta")
    return found
