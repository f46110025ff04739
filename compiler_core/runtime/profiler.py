"""Time per kernel and library call of compiled graphs, measured inside the native code, on demand.

In: the executables alive in this process. Out: `Profile`: rows of calls, seconds, GB/s, GFLOP/s; `table()` for people.

    with profiling() as profile:
        step()
    print(profile.table())

Entering builds each artefact's kept source again with DC_PROFILE defined (cached like any artefact) and swaps the
executables' functions; leaving swaps them back. Outside of the block nothing is measured and nothing costs time.
Limits: counts wall time, of whichever thread calls; executables made inside the block are not measured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from compiler_core.runtime.cache import Manifest, load_or_build, make_key
from compiler_core.runtime.toolchain import Toolchain

if TYPE_CHECKING:
    from compiler_core.runtime.executor import NativeExecutable

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
    """All calls of one kernel (or one shape of GEMM) in one graph."""

    graph: str
    label: str
    note: str
    calls: int
    seconds: float
    nbytes: int
    flops: int

    @property
    def gbytes_per_s(self) -> float:
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gflops(self) -> float:
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0


@dataclass
class Profile:
    """The rows of one measurement, longest first; filled when the `profiling` block ends."""

    rows: list[ProfileRow] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    def table(self, limit: int = 40) -> str:
        """The `limit` longest rows as aligned text, and the sum of all."""
        lines = [f"{'ms':>9} {'%':>5} {'calls':>6} {'GB/s':>6} {'GFLOP/s':>8}  graph: step"]
        total = self.seconds or 1.0
        for row in self.rows[:limit]:
            numbers = f"{row.seconds * 1e3:9.3f} {100 * row.seconds / total:5.1f} {row.calls:6d}"
            rates = f"{row.gbytes_per_s:6.1f} {row.gflops:8.1f}" if row.flops else f"{row.gbytes_per_s:6.1f} {'':8}"
            lines.append(f"{numbers} {rates}  {row.graph}: {row.label}  {row.note}".rstrip())
        lines.append(f"{self.seconds * 1e3:9.3f} ms in {sum(row.calls for row in self.rows)} steps")
        return "\n".join([*lines, ""])


_live: WeakSet[NativeExecutable] = WeakSet()


def announce(executable: NativeExecutable) -> None:
    """Let `profiling` find this executable for as long as it lives."""
    _live.add(executable)


@contextmanager
def profiling() -> Iterator[Profile]:
    """Measure every step of every compiled graph called inside the block."""
    chosen = [e for e in _live if e.profile_source is not None]
    profile = Profile()
    for executable in chosen:
        executable.use_library(_instrumented(executable))
        _seconds(executable)[:] = [0.0] * len(_seconds(executable))
        executable.calls = 0
    try:
        yield profile
    finally:
        for executable in chosen:
            profile.rows += _rows(executable)
            executable.use_library(None)
        profile.rows.sort(key=lambda row: -row.seconds)


def _instrumented(executable: NativeExecutable) -> ctypes.CDLL:
    from compiler_core.runtime.executor import load_library

    source = executable.profile_source
    assert source is not None
    entry = load_or_build(make_key({"instrumented": source.key}), lambda folder: _build(folder, source))
    return load_library(entry.file(LIBRARY))


def _build(folder: Path, source: ProfileSource) -> Manifest:
    from compiler_core.runtime.build import build_library

    units = {path.stem: path.read_text() for path in source.units}
    build_library(units, folder / LIBRARY, source.toolchain, defines=["DC_PROFILE"])
    return {}


def _seconds(executable: NativeExecutable) -> ctypes.Array[ctypes.c_double]:
    array = ctypes.c_double * max(len(executable.costs), 1)
    return array.in_dll(executable.library, f"{executable.entry.symbol}_seconds")


def _rows(executable: NativeExecutable) -> list[ProfileRow]:
    if not executable.calls:
        return []
    grouped: dict[str, list[tuple[StepCost, float]]] = {}
    for cost, seconds in zip(executable.costs, _seconds(executable), strict=False):
        grouped.setdefault(cost.label, []).append((cost, seconds))
    return [_row(executable.entry.symbol, executable.calls, group) for group in grouped.values()]


def _row(graph: str, calls: int, group: Sequence[tuple[StepCost, float]]) -> ProfileRow:
    first = group[0][0]
    return ProfileRow(
        graph,
        first.label,
        first.note,
        calls * len(group),
        sum(seconds for _, seconds in group),
        calls * sum(cost.nbytes for cost, _ in group),
        calls * sum(cost.flops for cost, _ in group),
    )
