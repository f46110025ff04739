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


class Device:
    """`Device("cpu")`, as torch.device. type: its name; index: None on the CPU; xp: the array module."""

    __slots__ = ("index", "type", "xp")
    type: str
    index: int | None
    xp: ModuleType

    def __new__(cls, name: str | Device = "cpu") -> Device:
        if isinstance(name, Device):
            return name
        kind, _, index = str(name).partition(":")
        if kind != "cpu" or index not in ("", "0"):
            raise DeviceError(
                f"there is no device {name!r} here",
                expected="cpu",
                remedy="use device='cpu'; GPUs are not supported yet",
            )
        return _CPU

    def record_event(self) -> Event:
        """An event after all work issued so far."""
        return HostEvent()

    def scale(self, array: Array, factor: float, out: Array) -> None:
        """out = array * factor, in its dtype. array, out: of this device, of one shape and dtype; may be the same."""
        self.xp.multiply(array, array.dtype.type(factor), out=out)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Device, (self.type,)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.type)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type

    def __repr__(self) -> str:
        return f"device(type={self.type!r})"


_CPU: Device = object.__new__(Device)
_CPU.type, _CPU.index, _CPU.xp = "cpu", None, np
cpu = _CPU
device = Device


def check_device(name: str | Device | None) -> Device:
    """The device called `name`; None is the CPU. Raises DeviceError for one that is not there."""
    return _CPU if name is None else Device(name)
