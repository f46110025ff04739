"""Events: what running code tells its caller before it returns, and what it waits for before it reads.

In: an object with `signal` and `wait`. Out: the address of a `dc_events` that generated code calls.

    struct dc_events { void* self; void (*signal)(void* self, int64_t k); int32_t (*wait)(void* self, int64_t k); };

`signal(k)`: the outputs that event k announces are complete, in memory. `wait(k)` returns once the inputs of event k
may be read; nonzero: it failed, and the code returns at once, with `FAILED`.
A Python object is called through two C callbacks made once: they take the GIL, in the thread that runs the code. An
exception raised in them is kept (C cannot pass it on) and raised by `Dispatch.check` after the code has returned.
Somebody who has native functions (a communication engine) offers the address of a `dc_events` of his own instead.
"""

from __future__ import annotations

import ctypes
from itertools import count
from types import TracebackType
from typing import ClassVar, Protocol, cast, runtime_checkable

FAILED = 0x7FFFFFFF  # what a generated entry point returns when a wait failed


class Events(Protocol):
    """Whom events go to. Called by the thread that runs the code, in the order in which the code meets them."""

    def signal(self, event: int) -> None:
        """What `event` announces is complete."""

    def wait(self, event: int) -> None:
        """Return when what waits for `event` may be read."""


@runtime_checkable  # slow to ask: `as_native` asks once a type
class NativeEvents(Protocol):
    """Events served without Python. `native_address`: of a `dc_events` that lives as long as this object."""

    @property
    def native_address(self) -> int: ...

    def raise_failure(self) -> None:
        """After a wait failed: raise why."""


_native_kinds: dict[type, bool] = {}


def as_native(events: Events) -> NativeEvents | None:
    """`events`, if they are served without Python."""
    kind = type(events)
    if kind not in _native_kinds:
        _native_kinds[kind] = isinstance(events, NativeEvents)
    return cast(NativeEvents, events) if _native_kinds[kind] else None


class _Struct(ctypes.Structure):
    _fields_: ClassVar = [("self", ctypes.c_void_p), ("signal", ctypes.c_void_p), ("wait", ctypes.c_void_p)]


_SIGNAL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_WAIT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
_live: dict[int, Dispatch] = {}
_keys = count(1)


def _signal(key: int, event: int) -> None:
    _live[key].signal(event)


def _wait(key: int, event: int) -> int:
    return _live[key].wait(event)


_CALLBACKS = _SIGNAL(_signal), _WAIT(_wait)  # kept for as long as native code may call them
_SIGNAL_ADDRESS, _WAIT_ADDRESS = (ctypes.cast(callback, ctypes.c_void_p).value for callback in _CALLBACKS)


class Dispatch:
    """One native call's events. Within `with`, `address` is that of a `dc_events`; leaving raises what they raised."""

    __slots__ = ("_error", "_key", "_native", "_struct", "address", "events")

    def __init__(self, events: Events) -> None:
        self.events, self._native = events, as_native(events)
        self._error: BaseException | None = None

    def __enter__(self) -> Dispatch:
        if self._native is not None:
            self.address = self._native.native_address
            return self
        self._key = next(_keys)
        self._struct = _Struct(self._key, _SIGNAL_ADDRESS, _WAIT_ADDRESS)
        self.address = ctypes.addressof(self._struct)
        _live[self._key] = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._native is None:
            del _live[self._key]
        if self._error is not None and error is None:
            raise self._error

    def failed(self) -> None:
        """The code returned `FAILED`: raise why, where native events know it; `__exit__` does for the others."""
        if self._native is not None:
            self._native.raise_failure()

    def signal(self, event: int) -> None:
        """From native code. After an exception nothing more is signalled."""
        if self._error is None:
            try:
                self.events.signal(event)
            except BaseException as error:  # noqa: BLE001  kept, and raised once the native code has returned
                self._error = error

    def wait(self, event: int) -> int:
        """From native code. 0: go on; 1: an exception waits to be raised."""
        if self._error is None:
            try:
                self.events.wait(event)
            except BaseException as error:  # noqa: BLE001
                self._error = error
        return int(self._error is not None)
