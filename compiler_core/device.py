"""Devices: one small object each. It says which array module computes, and what an event is.

In: names ("cpu"). Out: `Device` objects; `cpu` and `meta` (shapes without data, see ops/meta_value.py) are interned and
the only ones so far. `with device:` makes it the default of new tensors in this thread, `set_default_device` until told
otherwise. A CPU call returns when its work is done, so a CPU event is complete from the start; a GPU's will not be, and
code that waits speaks of events for that reason.
"""

from __future__ import annotations

import threading
import time
from types import ModuleType
from typing import Any, Protocol

import numpy as np

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


KINDS = ("cpu", "cuda", "meta", "mps", "xpu")


class Device:
    """`Device("cpu")`, as torch.device. type: its name; index: None on the CPU; xp: the array module.

    Other kinds ("cuda:1", or "cuda", 1) can be named, compared and printed, as in torch; nothing can be put there:
    `check_device` refuses them.
    """

    __slots__ = ("index", "type", "xp")
    type: str
    index: int | None
    xp: ModuleType

    def __new__(cls, type: str | Device = "cpu", index: int | None = None) -> Device:
        if isinstance(type, Device):
            return type
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

    def record_event(self) -> Event:
        """An event after all work issued so far."""
        return HostEvent()

    def scale(self, array: Array, factor: float, out: Array) -> None:
        """out = array * factor, in its dtype. array, out: of this device, of one shape and dtype; may be the same."""
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


_CPU: Device = object.__new__(Device)
_CPU.type, _CPU.index, _CPU.xp = "cpu", None, np
_META: Device = object.__new__(Device)
_META.type, _META.index, _META.xp = "meta", None, np
cpu, meta = _CPU, _META
device = Device


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


def check_device(name: str | Device | None) -> Device:
    """The device called `name`; None is the CPU. Raises DeviceError for one that is not there."""
    if name is None or name is _CPU:
        return _CPU
    found = Device(name)
    if found.type == "meta":
        return _META
    if found is not _CPU:
        raise DeviceError(
            f"there is no device {str(name)!r} here",
            expected="cpu, or meta",
            remedy="use device='cpu'; GPUs are not supported yet",
        )
    return found
