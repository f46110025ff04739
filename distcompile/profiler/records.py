"""What a profile holds: one record a call, sums by name, a table for people, a trace for Chrome's viewer.

In: calls with their times. Out: `Events`, a list of `FunctionEvent`s or of `Averages`. Times are in microseconds, as in
torch. A call's own time is its time less that of the calls inside it. Device time is what passes on the device's stream
between the call's beginning and its end: where the device waits for the host, that wait is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from distcompile.errors import ArgumentError


@dataclass
class FunctionEvent:
    """One call. start_us: on the host's clock; device_start_us: on the same clock, if there is a device."""

    name: str
    start_us: float
    cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    device_start_us: float | None = None
    thread: int = 0
    input_shapes: list[Any] = field(default_factory=list)
    inner_cpu: float = 0.0
    inner_device: float = 0.0
    is_top: bool = True

    count = 1

    @property
    def key(self) -> str:
        return self.name

    @property
    def self_cpu_time_total(self) -> float:
        return max(self.cpu_time_total - self.inner_cpu, 0.0)

    @property
    def self_device_time_total(self) -> float:
        return max(self.device_time_total - self.inner_device, 0.0)

    cpu_time = property(lambda self: self.cpu_time_total)
    device_time = cuda_time = property(lambda self: self.device_time_total)
    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.self_device_time_total)


@dataclass
class Averages:
    """All calls of one name (and, where asked for, of one list of input shapes)."""

    key: str
    input_shapes: list[Any] = field(default_factory=list)
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    device_time_total: float = 0.0
    self_device_time_total: float = 0.0
    is_top: bool = True

    def add(self, event: Any) -> None:
        """One call more, or another's calls."""
        self.count += event.count
        self.is_top = event.is_top
        for name in ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total"):
            setattr(self, name, getattr(self, name) + getattr(event, name))

    cpu_time = property(lambda self: self.cpu_time_total / self.count if self.count else 0.0)
    device_time = property(lambda self: self.device_time_total / self.count if self.count else 0.0)
    cuda_time = device_time
    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.self_device_time_total)


_SORTS = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total",
          "self_device_time_total", "cuda_time", "cuda_time_total", "self_cuda_time_total", "count")  # fmt: skip


class Events(list[Any]):
    """Records of calls, or their sums."""

    def __init__(self, events: Iterable[Any] = (), has_device: bool = False) -> None:
        super().__init__(events)
        self.has_device = has_device

    @property
    def self_cpu_time_total(self) -> float:
        """Of all calls."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(self, group_by_input_shape: bool = False) -> Events:
        """Sums by name."""
        found: dict[Any, Averages] = {}
        for event in self:
            key = (event.key, str(event.input_shapes) if group_by_input_shape else "")
            shapes = event.input_shapes if group_by_input_shape else []
            found.setdefault(key, Averages(event.key, shapes)).add(event)
        return Events(found.values(), self.has_device)

    def total_average(self) -> Averages:
        """The sum of all."""
        total = Averages("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """Aligned text, the largest first by one of torch's names of times; row_limit -1: all."""
        rows = [event for event in self if event.is_top or not top_level_events_only]
        if sort_by is not None:
            if sort_by not in _SORTS:
                raise ArgumentError(f"no such time: {sort_by!r}", expected=", ".join(_SORTS))
            rows.sort(key=lambda event: -getattr(event, sort_by))
        rows = rows if row_limit < 0 else rows[:row_limit]
        cpu = self.self_cpu_time_total or 1.0
        device = sum(event.self_device_time_total for event in self)
        titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        titles += ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"] if self.has_device else []
        titles += ["# of Calls"]
        shaped = any(event.input_shapes for event in rows)
        titles += ["Input Shapes"] if shaped else []
        lines = [titles]
        for event in rows:
            line = [_cut(event.key, max_name_column_width), *_shares(event, cpu)]
            if self.has_device:
                line += _device(event, device or 1.0)
            line += [str(event.count)]
            line += [_cut(str(event.input_shapes), max_shapes_column_width)] if shaped else []
            lines.append(line)
        widths = [max(len(line[k]) for line in lines) for k in range(len(titles))]
        ruler = "  ".join("-" * width for width in widths)
        body = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines]
        ends = [f"Self CPU time total: {_time(self.self_cpu_time_total)}"]
        ends += [f"Self CUDA time total: {_time(device)}"] if self.has_device else []
        top = [] if header is None else [header]
        return "\n".join([*top, ruler, body[0], ruler, *body[1:], ruler, *ends, ""])

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str | os.PathLike[str], metadata: dict[str, Any] | None = None) -> None:
        """A file for chrome://tracing and Perfetto; of calls, not of sums."""
        if any(isinstance(event, Averages) for event in self):
            raise ArgumentError("sums have no place in time", expected="profile.export_chrome_trace(path)")
        pid, made = os.getpid(), []
        for event in self:
            facts = {"ph": "X", "name": event.name, "ts": event.start_us, "dur": event.cpu_time_total}
            shapes = {"Input Dims": event.input_shapes} if event.input_shapes else {}
            made.append({**facts, "cat": "cpu_op", "pid": pid, "tid": event.thread, "args": shapes})
            if event.device_start_us is not None:
                there = {"ts": event.device_start_us, "dur": event.device_time_total}
                made.append({**facts, **there, "cat": "kernel", "pid": "GPU", "tid": "stream", "args": {}})
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schemaVersion": 1, "traceEvents": made, **(metadata or {})}, file)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width or width < 4 else text[: width - 3] + "..."


def _time(us: float) -> str:
    return f"{us / 1e6:.3f}s" if us >= 1e6 else f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _shares(event: Any, whole: float) -> list[str]:
    own, total = event.self_cpu_time_total, event.cpu_time_total
    return [f"{100 * own / whole:.2f}%", _time(own), f"{100 * total / whole:.2f}%", _time(total), _time(event.cpu_time)]


def _device(event: Any, whole: float) -> list[str]:
    own, total = event.self_device_time_total, event.device_time_total
    return [_time(own), f"{100 * own / whole:.2f}%", _time(total), _time(event.device_time)]
