"""What was measured, of what: times, their median and spread, and how many of their digits mean something.

In: seconds of runs, each of `number_per_run` statements. Out: `Measurement`. Names, texts and rounding are torch's.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from distcompile.surface.threads import get_num_threads, set_num_threads

SUSPECT, GROSS = 0.1, 0.25  # of the median: an interquartile range above it is worth a word
_MOST_FIGURES = 4
_LEAST_INTERVAL_S = 25e-9
_Z = 1.645  # of a one-sided 95 %
_UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3), "s": ("second", 1.0)}


@dataclass(frozen=True, repr=False)
class TaskSpec:
    """What a Timer runs, and how it is called in tables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        below = f": {self.sub_label}" if self.sub_label else ""
        if self.label is not None:
            return self.label + below
        if "\n" not in self.stmt:
            return self.stmt + below
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup, for a summary."""
        if self.setup in ("", "pass"):
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup."""
        parts = [part for part in (self.title, self.description or "", self.setup_str()) if part]
        return "\n".join(f"{part}\n" if "\n" in part else part for part in parts)


_OF_TASK = tuple(field.name for field in fields(TaskSpec))


@dataclass(repr=False)
class Measurement:
    """Seconds of runs, each of `number_per_run` executions of the statement. metadata: the user's."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _OF_TASK:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds an execution."""
        return [t / self.number_per_run for t in self.raw_times]

    @cached_property
    def _sorted(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.sort(np.asarray(self.times, np.float64))

    def _quantile(self, share: float) -> float:
        return float(np.quantile(self._sorted, share)) if self.raw_times else -1.0

    @property
    def median(self) -> float:
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        return float(self._sorted.mean()) if self.raw_times else -1.0

    @property
    def iqr(self) -> float:
        """What lies between the quartiles."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the inner half of the times supports, 1 to 4."""
        n = len(self._sorted)
        inner = self._sorted[n // 4 : math.ceil(3 * n / 4)]
        interval = max(_Z * float(inner.std()) / math.sqrt(len(inner)), _LEAST_INTERVAL_S)
        return min(max(math.floor(math.log10(self.median / interval)), 1), _MOST_FIGURES)

    @property
    def has_warnings(self) -> bool:
        return bool(self._warnings)

    @property
    def _warnings(self) -> tuple[str, ...]:
        if not self.raw_times or self.meets_confidence():
            return ()
        gross = "This suggests significant environmental influence."
        why = "This could indicate system fluctuation." if self.meets_confidence(GROSS) else gross
        share = 100 * self.iqr / self.median
        return (f"  WARNING: Interquartile range is {share:.1f}% of the median measurement.\n           {why}",)

    def meets_confidence(self, threshold: float = SUSPECT) -> bool:
        """Whether the spread is below that share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        n, threads = len(self.raw_times), self.task_spec.num_threads
        unit, scale = select_unit(self.median)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if n > 1 else ''}{self.median / scale:.2f} {unit}")
        if n >= 4:
            low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        runs = f"{self.number_per_run} runs {'per measurement,' if n > 1 else ','}"
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {runs} {threads} thread{'s' if threads > 1 else ''}")
        return "\n".join([*lines, *self._warnings])

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One of all times of each task, as of runs of one execution; without metadata."""
        grouped: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            grouped.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, times, task) for task, times in grouped.items()]


def select_unit(t: float) -> tuple[str, float]:
    """(unit, its seconds) in which `t` seconds is a number that reads well."""
    names = {-3: "ns", -2: "us", -1: "ms"}
    name = names.get(int(math.log10(t) // 3), "s") if t > 0 else "s"
    return name, _UNITS[name][1]


def unit_to_english(u: str) -> str:
    """The word for a unit."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """`x` to `n` significant figures."""
    assert n == int(n), "Number of significant figures must be an integer"
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n) if x else 1.0
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Each once, where it came first."""
    return list(dict.fromkeys(elements))


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """`n` threads within the block."""
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)
