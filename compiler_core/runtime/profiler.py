"""Time per kernel and library call of compiled graphs, measured inside the native code, on demand.

In: the executables alive in this process. Out: `Profile`: rows of calls, seconds, GB/s, GFLOP/s, and on a GPU the share
of the speed at which its memory copies (the roofline of what computes little); on a CPU, where caches are
faster than that, the machine's own limits below (limits.py); `table()` for people.

    with profiling() as profile:
        step()
    print(profile.table())

CPU: entering builds each artefact's kept source again with DC_PROFILE defined (cached like any artefact) and swaps the
executables' functions; leaving swaps them back. Wall time, of whichever thread calls.
GPU: an event is recorded in the stream after each step (runtime/cuda/marks.py); CUDA graphs are not replayed meanwhile.
Outside of the block nothing is measured and nothing costs time. Executables made inside of it are not measured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from compiler_core.records import dataclass
from compiler_core.runtime import limits
from compiler_core.runtime.cache import Entry, Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import Toolchain
from compiler_core.showing.grid import Grid

if TYPE_CHECKING:
    from rich.table import Table

LIBRARY = "kernels.so"


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of a program: what it is called, the first line of its note, the bytes it moves, its operations."""

    label: str
    note: str
    nbytes: int
    flops: int

    def to_json(self) -> list[Any]:
        return [self.label, self.note, self.nbytes, self.flops]


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """What it takes to build an instrumented twin of a library."""

    key: str
    units: tuple[Path, ...]
    toolchain: Toolchain


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """All calls of one kernel (or shape of GEMM) in one graph. copy_rate: bytes a second of a copy; 0: not known."""

    graph: str
    label: str
    note: str
    calls: int
    seconds: float
    nbytes: int
    flops: int
    copy_rate: float = 0.0

    @property
    def copy_share(self) -> float:
        """The bytes that it moves a second over those that a copy moves; 0 where that is not known."""
        return self.gbytes_per_s * 1e9 / self.copy_rate if self.copy_rate else 0.0

    @property
    def gbytes_per_s(self) -> float:
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0


@dataclass
class Profile:
    """The rows of one measurement, longest first; filled when the `profiling` block ends. limits: of rows of the CPU,
    bytes a second of a copy of large arrays, operations a second of a product; None: there are no such rows."""

    rows: list[ProfileRow] = field(default_factory=list)
    limits: tuple[float, float] | None = None

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    def __str__(self) -> str:
        return self.table()

    def __rich__(self) -> Table:
        return _grid(self).rich()

    def _repr_html_(self) -> str:
        return _grid(self).html()

    def table(self, limit: int = 40) -> str:
        """The `limit` longest rows as aligned text, and the sum of all."""
        has_share = any(row.copy_rate for row in self.rows)
        share = f" {'copy %':>6}" if has_share else ""
        lines = [f"{'ms':>9} {'%':>5} {'calls':>6} {'GB/s':>6}{share} {'GFLOP/s':>8}  graph: step"]
        total = self.seconds or 1.0
        for row in self.rows[:limit]:
            numbers = f"{row.seconds * 1e3:9.3f} {100 * row.seconds / total:5.1f} {row.calls:6d}"
            share = f" {100 * row.copy_share:6.1f}" if has_share else ""
            flops = f"{row.gflops:8.1f}" if row.flops else f"{'':8}"
            what = f"{row.graph}: {row.label}  {row.note}".rstrip()
            lines.append(f"{numbers} {row.gbytes_per_s:6.1f}{share} {flops}  {what}")
        lines.append(self.total())
        return "\n".join([*lines, ""])

    def total(self) -> str:
        """The sum of all rows, and what they are to be compared with."""
        total = f"{self.seconds * 1e3:9.3f} ms in {sum(row.calls for row in self.rows)} steps"
        if self.limits is None:
            return total
        copied, computed = (rate / 1e9 for rate in self.limits)
        return f"{total}; here a large copy moves {copied:.1f} GB/s, a large product makes {computed:.1f} GFLOP/s"


def _grid(profile: Profile, limit: int = 40) -> Grid:
    """The longest rows, for a notebook and for rich."""
    total = profile.seconds or 1.0
    rows = [
        (
            f"{row.seconds * 1e3:.3f}",
            f"{100 * row.seconds / total:.1f}",
            str(row.calls),
            f"{row.gbytes_per_s:.1f}",
            f"{row.gflops:.1f}" if row.flops else "",
            row.graph,
            f"{row.label}  {row.note}".rstrip(),
        )
        for row in profile.rows[:limit]
    ]
    titles = ("ms", "%", "calls", "GB/s", "GFLOP/s", "graph", "step")
    return Grid("Time by step", titles, tuple(rows), profile.total().strip())


class Measurable(Protocol):
    """An executable whose steps can be measured. calls: since measuring started."""

    calls: int
    symbol: str
    costs: tuple[StepCost, ...]

    def start_measuring(self) -> None: ...
    def stop_measuring(self) -> Sequence[float]:
        """The seconds of each step, of all calls together."""

    def copy_rate(self) -> float:
        """Bytes a second, read and written, of a copy of large arrays in its memory; 0: not known."""


_live: WeakSet[Any] = WeakSet()


_counting: list[dict[Measurable, int]] = []


def announce(executable: Measurable) -> None:
    """Let `profiling` find this executable for as long as it lives, and who counts calls, until the end of that."""
    _live.add(executable)
    for before in _counting:
        before[executable] = 0


@contextmanager
def counting_calls() -> Iterator[Callable[[], list[tuple[Measurable, int]]]]:
    """What it gives tells, of each compiled graph, how often it was called since the block began."""
    before: dict[Measurable, int] = {executable: executable.calls for executable in list(_live)}
    _counting.append(before)
    try:
        yield lambda: [(e, e.calls - then) for e, then in before.items() if e.calls > then]
    finally:
        _counting[:] = [other for other in _counting if other is not before]


@contextmanager
def profiling() -> Iterator[Profile]:
    """Measure every step of every compiled graph called inside the block."""
    chosen: list[Measurable] = list(_live)
    profile, started = Profile(), []
    try:
        for executable in chosen:
            executable.start_measuring()
            started.append(executable)
        yield profile
    finally:
        for executable in started:
            profile.rows += _rows(executable)
        profile.rows.sort(key=lambda row: -row.seconds)
        if any(not row.copy_rate for row in profile.rows):
            profile.limits = limits.copy_rate(), limits.product_rate()


def instrumented(source: ProfileSource) -> ctypes.CDLL:
    """The library of `source`, built so that it measures its steps."""
    from compiler_core.runtime.executor import load_library

    entry = load_or_build(make_key({"instrumented": source.key}), lambda folder: _build(folder, source))
    return load_library(entry.file(LIBRARY))


def _build(folder: Path, source: ProfileSource) -> Manifest:
    from compiler_core.runtime.build import build_library

    units = {path.stem: Entry(path.parent, {}).read(path.name).decode() for path in source.units}
    build_library(units, folder / LIBRARY, source.toolchain, defines=["DC_PROFILE"])
    return {}


def step_seconds(library: ctypes.CDLL, symbol: str, steps: int) -> ctypes.Array[ctypes.c_double]:
    """Where an instrumented library adds up the seconds of each step of a program."""
    return (ctypes.c_double * max(steps, 1)).in_dll(library, f"{symbol}_seconds")


def _rows(executable: Measurable) -> list[ProfileRow]:
    measured = list(zip(executable.costs, executable.stop_measuring(), strict=False))
    if not executable.calls:
        return []
    grouped: dict[str, list[tuple[StepCost, float]]] = {}
    for cost, seconds in measured:
        grouped.setdefault(cost.label, []).append((cost, seconds))
    rate = executable.copy_rate()
    return [_row(executable.symbol, executable.calls, group, rate) for group in grouped.values()]


def _row(graph: str, calls: int, group: Sequence[tuple[StepCost, float]], copy_rate: float) -> ProfileRow:
    first = group[0][0]
    return ProfileRow(
        graph,
        first.label,
        first.note,
        calls * len(group),
        sum(seconds for _, seconds in group),
        calls * sum(cost.nbytes for cost, _ in group),
        calls * sum(cost.flops for cost, _ in group),
        copy_rate,
    )
