"""Works as events of compiled code: `signal(k)` releases what event k stands for, `wait(k)` waits for it.

In: for each event, the Works that it stands for. Out: an object with `signal` and `wait` and, on a native engine, the
address of the C form, which compiled code calls without Python (and without the GIL):

    struct dc_events { void* self; void (*signal)(void* self, int64_t k); int32_t (*wait)(void* self, int64_t k); };

Invariant: the memory lives as long as this object, and the Works with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from collectives.work import Work

if TYPE_CHECKING:
    from collectives.native_work import NativeWork


class WorkEvents:
    """Events served by Python."""

    def __init__(self, groups: Sequence[Sequence[Work]]) -> None:
        self.groups = [tuple(group) for group in groups]

    def signal(self, event: int) -> None:
        """Release the works of `event`."""
        for work in self.groups[event]:
            work.release()

    def wait(self, event: int) -> None:
        """Wait for the works of `event`. Raises what their waits raise."""
        for work in self.groups[event]:
            work.wait()


class NativeWorkEvents(WorkEvents):
    """Events that a native engine serves. All works are of one engine."""

    def __init__(self, groups: Sequence[Sequence[NativeWork]]) -> None:
        super().__init__(groups)
        works = [work for group in groups for work in group]
        first = [0, *accumulate(len(group) for group in groups)]
        quick = works[0].engine.library.quick
        functions = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (quick.dc_signal, quick.dc_await))
        pointers = [work.pointer for work in works]
        words = (0, *functions, works[0].engine.pointer, len(groups), *first, *pointers)
        self.words = (ctypes.c_int64 * len(words))(*words)
        self.native_address = ctypes.addressof(self.words)
        self.words[0] = self.native_address + 3 * ctypes.sizeof(ctypes.c_int64)

    def raise_failure(self) -> None:
        """A native wait failed: raise why."""
        for group in self.groups:
            for work in group:
                if work.is_done():
                    work.wait()
        for group in self.groups:
            for work in group:
                raise work.timeout_error(work.timeout_s)
