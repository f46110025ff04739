"""Devices: one small object each. It says which array module computes, and what an event is.

In: names ("cpu"). Out: `Device` objects, interned; `cpu` is the only one so far. Nothing else asks which device it is
on. A CPU call returns when its work is done, so a CPU event is complete from the start; a GPU's will not be, and code
that waits speaks of events for that reason.
"""

from __future__ import annotations

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
        self = object.__new__(cls)
        self.type, self.index = kind, place
        return self

    def record_event(self) -> Event:
        """An event after all work issued so far."""
        return HostEvent()

    def scale(self, array: Array, factor: float, out: Array) -> None:
        """out = array * factor, in its dtype. array, out: of this device, of one shape and dtype; may be the same."""
        self.xp.multiply(array, array.dtype.type(factor), out=out)

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
cpu = _CPU
device = Device


def check_device(name: str | Device | None) -> Device:
    """The device called `name`; None is the CPU. Raises DeviceError for one that is not there."""
    found = _CPU if name is None else Device(name)
    if found is not _CPU:
        raise DeviceError(
            f"there is no device {str(name)!r} here",
            expected="cpu",
            remedy="use device='cpu'; GPUs are not supported yet",
        )
    return found
