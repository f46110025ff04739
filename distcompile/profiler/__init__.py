"""torch.profiler: where a program's time goes, by the calls that it makes of this package.

In: blocks of a program. Out: `profile(...)`, whose `key_averages().table(...)` is for people and whose
`export_chrome_trace` is for viewers. Rows are calls as the program writes them (functions, operators, layers,
optimizer steps, `record_function` blocks), not a dispatcher's ops; a compiled function is one row, of whose kernels
`distcompile.debug.profiling()` tells. Watching slows down the calls that it measures: what counts is how they
compare. Device times are those between two events in the stream (records.py).
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

from compiler_core import cuda as _cuda
from compiler_core.ops.registry import current_trace as _current_trace
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.profiler.records import Averages, Events, FunctionEvent
from distcompile.profiler.watching import CallWatch, current

__all__ = [
    "Averages", "Events", "FunctionEvent", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile",
    "record_function",
    "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(enum.Enum):
    """What is measured."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """What can be measured here."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if _cuda.device_count() else [])}


def kineto_available() -> bool:
    """Whether `profile` records, whatever is asked of it: it does."""
    return True


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Steps that a profile leaves out, warms up in, and records, `repeat` times (0: until it ends)."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ArgumentError("Invalid profiler schedule arguments",
                            got=f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}")  # fmt: skip
    cycle = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        at = step - skip_first + (wait if skip_first_wait else 0)
        if step < skip_first or (repeat and at >= repeat * cycle):
            return ProfilerAction.NONE
        place = at % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def _always(step: int) -> ProfilerAction:
    return ProfilerAction.RECORD


class record_function(contextlib.ContextDecorator):
    """A block as a row of the profile, if one is running in this thread. Within a compiled graph it is nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._watches: list[CallWatch | None] = []

    def _recreate_cm(self) -> Self:
        return type(self)(self.name)

    def __enter__(self) -> Self:
        watch = None if _current_trace() is not None else current.watch
        self._watches.append(watch)
        if watch is not None:
            watch.begin(self.name)
        return self

    def __exit__(self, *error: object) -> None:
        watch = self._watches.pop()
        if watch is not None and watch is current.watch:
            watch.end()


_UNMEASURED = ("profile_memory", "with_stack", "with_flops")


class profile:
    """A block whose calls are measured.

    activities: CPU and CUDA, by default what is here. schedule: which steps (`step()` ends one). on_trace_ready: called
    with this after each cycle, or at the end. record_shapes: of the calls' tensors. profile_memory, with_stack and
    with_flops are not measured, which is said.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: object = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: object = None,
    ) -> None:
        wanted = set(activities) if activities is not None else supported_activities()
        if use_cuda is not None:
            wanted = wanted | {ProfilerActivity.CUDA} if use_cuda else wanted - {ProfilerActivity.CUDA}
        if not wanted:
            raise ArgumentError("No valid profiler activities found")
        for name, asked in zip(_UNMEASURED, (profile_memory, with_stack, with_flops)):
            if asked:
                warnings.warn(f"torch.profiler: {name} is not measured here", stacklevel=2)
        self._device = ProfilerActivity.CUDA in wanted and _cuda.device_count() > 0
        self._schedule, self._ready, self._shapes = schedule or _always, on_trace_ready, record_shapes
        self._has_schedule, self._keeps = schedule is not None, acc_events
        self._watch: CallWatch | None = None
        self._records: list[FunctionEvent] = []
        self._metadata: dict[str, Any] = {}
        self._in_step = False
        self.step_num, self.current_action = 0, ProfilerAction.NONE

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        if current.watch is not None:
            raise ArgumentError("a profile is running in this thread already: profiles do not nest")
        self._take_up(self._schedule(self.step_num))

    def stop(self) -> None:
        """The end; on_trace_ready is called if something was recorded that it was not told of."""
        ready = self._watch is not None and self.current_action in (
            ProfilerAction.RECORD,
            ProfilerAction.RECORD_AND_SAVE,
        )
        self._put_down()
        self.current_action = ProfilerAction.NONE
        if ready and self._ready is not None:
            self._ready(self)

    def step(self) -> None:
        """A step ends, the next begins."""
        before = self.current_action
        if self._watch is not None and self._in_step:
            self._watch.end()
            self._in_step = False
        self.step_num += 1
        action = self._schedule(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE:
            self._put_down()
            if self._ready is not None:
                self._ready(self)
        self._take_up(action)

    def _take_up(self, action: ProfilerAction) -> None:
        self.current_action = action
        if action in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            self._put_down()
            return
        if self._watch is None:
            self._records = self._records if self._keeps else []
            self._watch = CallWatch(self._device, self._shapes)
            self._watch.start()
        if self._has_schedule:
            self._watch.begin(f"ProfilerStep#{self.step_num}")
            self._in_step = True

    def _put_down(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._records = self._records + self._watch.records
            self._watch, self._in_step = None, False

    # ---- what was found

    def events(self) -> Events:
        """One record a call. Raises ArgumentError while the profile is running."""
        if self._watch is not None:
            raise ArgumentError("the profile is running", expected="to be asked after the block, or on_trace_ready")
        return Events(self._records, self._device)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Events:
        """Sums by name, and by input shapes if asked."""
        return self.events().key_averages(group_by_input_shape)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """A file for chrome://tracing and Perfetto."""
        self.events().export_chrome_trace(path, self._metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Raises NotSupportedError: stacks are not recorded."""
        raise NotSupportedError("profile.export_stacks: stacks are not recorded", remedy="export_chrome_trace(path)")

    def add_metadata(self, key: str, value: str) -> None:
        """A text in the trace's file."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A JSON text in the trace's file."""
        self._metadata[key] = json.loads(value)


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An on_trace_ready that writes a trace a cycle into a folder."""

    def handler(done: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        path = os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json")
        done.export_chrome_trace(path)
        if use_gzip:
            import gzip

            with open(path, "rb") as file, gzip.open(f"{path}.gz", "wb") as packed:
                packed.write(file.read())
            os.unlink(path)

    return handler
