"""What `CompiledFunction.explain()` tells: frozen facts that print as a report.

In: the entries of a compiled function. Out: `Explanation`; `str()` gives graphs, guards, breaks and step times; rich
and notebooks get a table of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from compiler_core.aot.memory import MemoryPlan
from compiler_core.graph.ir import Graph
from compiler_core.graph.print import print_graph
from compiler_core.ops.routine import Routine
from compiler_core.ops.rules import Expansion
from compiler_core.records import dataclass
from compiler_core.showing.grid import Grid, details
from compiler_core.steps import STEPS, StepTime, compile_times

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True, slots=True)
class EntryReport:
    """One compiled entry: its name, the conditions under which it runs, its graphs by kind, and what the
    program called: operators and functions of tensors, without methods, as torch counts them. made: where the call
    decides sizes (its graph is of kind "sized"), what was compiled for which; the other graphs are of the first.
    memory: what a step with it takes, as planned; None where it is not known."""

    name: str
    guards: tuple[str, ...]
    graphs: tuple[tuple[str, Graph], ...]
    operations: tuple[str, ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    memory: MemoryPlan | None = None

    @property
    def times(self) -> tuple[StepTime, ...]:
        """What each step of its compilation took."""
        return tuple(t for t in compile_times() if t.graph == self.name or t.graph in self.made)

    @property
    def callbacks(self) -> tuple[str, ...]:
        """Which routines native code calls back into NumPy for, where, and why."""
        found: dict[str, None] = {}
        for kind, graph in self.graphs:
            for call in graph.calls if kind not in ("joint", "sized") else ():
                routine = call.op.lower
                if isinstance(routine, Routine) and routine.native_for((*call.args, call)[0].dtype, call.attrs) is None:
                    where = f", {call.location}" if call.location else ""
                    found.setdefault(f"{routine.name} in the {kind} ({routine.why}){where}")
        return tuple(found)

    @property
    def expansions(self) -> tuple[str, ...]:
        """Which calls are written out with other ops although a library could compute them, and where."""
        found: dict[str, None] = {}
        for kind, graph in self.graphs:
            for call in graph.calls if kind not in ("joint", "sized") else ():
                if isinstance(call.op.lower, Expansion):
                    where = f", {call.location}" if call.location else ""
                    found.setdefault(f"{call.op.name} in the {kind} by windows and matrix products{where}")
        return tuple(found)

    def __str__(self) -> str:
        seconds = ", ".join(f"{t.step} {1e3 * t.seconds:.0f} ms" for t in self.times)
        graphs = [f"{kind}:\n{print_graph(graph, locations=True, elide=True)}" for kind, graph in self.graphs]
        guards = [f"  {guard}" for guard in self.guards]
        memory = [] if self.memory is None else [str(self.memory)]
        made = [f"{name}: compiled for {sizes}" for name, sizes in self.made.items()]
        backs = [f"calls back into NumPy: {text}" for text in self.callbacks]
        return "\n".join(
            [f"entry {self.name} ({seconds})", *memory, *made, *backs, *self.expansions, "guards:", *guards, *graphs]
        )


@dataclass(frozen=True, slots=True)
class BreakReport:
    """A graph break: why, and the user's line."""

    reason: str
    where: str

    def __str__(self) -> str:
        return f"{self.reason}, at {self.where}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """entries: compiled. breaks: where graphs end. recompiles: the guard that failed before each further entry.

    skipped: why calls run eager. reached: functions that only uncompiled code calls, compiled by themselves.
    """

    name: str
    entries: tuple[EntryReport, ...]
    breaks: tuple[BreakReport, ...]
    recompiles: tuple[str, ...]
    skipped: tuple[str, ...]
    reached: tuple[Explanation, ...] = ()

    def __str__(self) -> str:
        head = f"{self.name}: {len(self.entries)} compiled, {len(self.breaks)} graph breaks"
        again = [f"recompiled because: {text}" for text in self.recompiles]
        breaks = [f"graph break: {broke}" for broke in self.breaks]
        eager = [f"runs eager: {text}" for text in self.skipped]
        others = [f"reached from uncompiled code: {other}" for other in self.reached]
        return "\n".join([head, *again, *breaks, *eager, *map(str, self.entries), *others])

    def __rich__(self) -> Group:
        from rich.console import Group

        return Group(*(grid.rich() for grid in self._grids()))

    def _repr_html_(self) -> str:
        return "".join(grid.html() for grid in self._grids()) + details("guards and graphs", str(self))

    def _grids(self) -> list[Grid]:
        """What was compiled, and where not: a line each."""
        entries = [
            (
                entry.name,
                str(len(entry.guards)),
                str(sum(len(graph.calls) for _, graph in entry.graphs)),
                _slowest(entry),
            )
            for entry in self.entries
        ]
        others = [
            *(("graph break", broke.reason, broke.where) for broke in self.breaks),
            *(("recompiled", text, "") for text in self.recompiles),
            *(("runs eager", text, "") for text in self.skipped),
            *(("reached from uncompiled code", other.name, "") for other in self.reached),
        ]
        title = f"{self.name}: {len(self.entries)} compiled, {len(self.breaks)} graph breaks"
        grids = [Grid(title, ("entry", "guards", "operations", "its steps took"), tuple(entries))]
        return grids + ([Grid("", ("what", "why", "where"), tuple(others))] if others else [])


def _slowest(entry: EntryReport) -> str:
    """The sum of the steps that are no part of others, and the longest of them."""
    times = [time for time in entry.times if time.step in STEPS]
    longest = max(times, key=lambda time: time.seconds, default=None)
    most = "" if longest is None else f", most of it {longest.step}"
    return f"{1e3 * sum(time.seconds for time in times):.0f} ms{most}"
