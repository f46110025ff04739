"""Calls from native code back into NumPy definitions of routines.

In: the `Callback`s of an entry point: a routine, its attributes, and how its arrays lie. Out: `Callbacks`: addresses of
C functions `int32_t f(const void* const* arrays)`, operands first, then the result.
The function takes the GIL in the thread that runs the code, makes arrays of the addresses without a copy, and runs the
routine's definition. An exception is kept for that thread (C cannot pass it on); the code leaves with `RAISED`, and its
caller raises what `take_error` gives. The arrays are valid during the call only. What a definition runs (a branch is a
program) has an arena of its own: the code that calls it is in the middle of another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from threading import local
from typing import Any, TypeAlias

import numpy as np

from compiler_core.dtype import by_name
from compiler_core.graph.parse import parse_attrs
from compiler_core.ops.registry import Array
from compiler_core.ops.routine import ROUTINES, Routine, Strided
from compiler_core.records import dataclass
from compiler_core.runtime.lasting_memory import nested_arena

LIBRARY_FAILED = 0x7FFFFFFD  # what a generated entry point returns when a library it called says that it failed
RAISED = 0x7FFFFFFE  # what a generated entry point returns when a routine that it called back has raised
ArrayAt: TypeAlias = Callable[[Strided, int | None], Array]
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class Callback:
    """One call: the routine's name, its attributes as text, and its operands' and its result's layouts."""

    routine: str
    attrs: str
    arrays: tuple[Strided, ...]

    def to_json(self) -> list[Any]:
        return [self.routine, self.attrs, [[a.dtype.short, [*a.shape], [*a.strides]] for a in self.arrays]]

    @staticmethod
    def from_json(row: list[Any]) -> Callback:
        routine, attrs, arrays = row
        return Callback(routine, attrs, tuple(Strided(by_name(d), tuple(n), tuple(s)) for d, n, s in arrays))


class Callbacks:
    """The C functions of some callbacks, alive as long as this object. addresses: one each, in order.

    array_at(layout, address): the array there; of the host's memory unless told otherwise. definition(routine): what is
    run; its own NumPy definition unless told otherwise.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        array_at: ArrayAt | None = None,
        definition: Callable[[Routine], Callable[..., None]] = attrgetter("define"),
    ) -> None:
        self._errors = local()
        at = array_at or host_array_at
        calls = [_prepare(callback, at, definition(ROUTINES[callback.routine])) for callback in callbacks]
        self._functions = [_FUNCTION(partial(self._run, call)) for call in calls]
        self.addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._functions]

    def _run(self, call: Callable[[Sequence[int | None]], None], arrays: Sequence[int | None]) -> int:
        try:
            with nested_arena():  # what runs here may run programs
                call(arrays)
        except BaseException as error:  # noqa: BLE001  kept, and raised once the native code has returned
            self._errors.raised = error
            return RAISED
        return 0

    def take_error(self) -> BaseException:
        """What the routine raised in this thread; forgotten then."""
        error: BaseException = self._errors.raised
        del self._errors.raised
        self._errors.given = id(error)
        return error

    def take_any_error(self) -> BaseException | None:
        """The same; None where none did."""
        return self.take_error() if hasattr(self._errors, "raised") else None

    def gave(self, error: BaseException) -> bool:
        """Whether `error`, which is under way in this thread, is a routine's."""
        return getattr(self._errors, "given", None) == id(error)


def _prepare(
    callback: Callback, array_at: ArrayAt, definition: Callable[..., None]
) -> Callable[[Sequence[int | None]], None]:
    """The function of addresses that runs `callback`."""
    define = partial(definition, **parse_attrs(callback.attrs))
    *makers, last = (partial(array_at, layout) for layout in callback.arrays)

    def call(addresses: Sequence[int | None]) -> None:
        define(last(addresses[len(makers)]), *(make(addresses[k]) for k, make in enumerate(makers)))

    return call


def host_array_at(layout: Strided, address: int | None) -> Array:
    """The array of the host's memory at `address`."""
    dtype = layout.dtype.numpy
    if not layout.numel:
        return np.empty(layout.shape, dtype)
    memory = (ctypes.c_char * (layout.span * dtype.itemsize)).from_address(address or 0)
    return np.ndarray(layout.shape, dtype, memoryview(memory), strides=[s * dtype.itemsize for s in layout.strides])
