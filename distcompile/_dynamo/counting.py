"""torch._dynamo.utils: what compilations did, counted, timed, and told by a profiler.

In: compiled functions. Out: `counters` and `guard_failures` of the process; `compile_times()`; `CompileProfiler`.
Limit: `counters` has torch's groups "graph_break", "frames" and "stats"; what others count does not happen here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, overload

from compiler_core.capture.compiled.control import states
from compiler_core.capture.compiled.counts import counters, guard_failures
from compiler_core.graph.ir import Graph
from compiler_core.steps import compile_times as step_times

__all__ = ["CompileProfiler", "compile_times", "counters", "guard_failures"]


@overload
def compile_times(repr: Literal["str"] = "str", aggregate: bool = False) -> str: ...
@overload
def compile_times(repr: Literal["csv"], aggregate: bool = False) -> tuple[list[str], list[str]]: ...
@overload
def compile_times(repr: str, aggregate: bool = False) -> str | tuple[list[str], list[str]] | None: ...
def compile_times(repr: str = "str", aggregate: bool = False) -> str | tuple[list[str], list[str]] | None:
    """What each step of the compiler took, in seconds: one value a graph, or their sum.

    repr: "str", a table; "csv", the steps' names and their times. `debug.compile_times()` gives the facts.
    """
    found: dict[str, list[float]] = {}
    for time in step_times():
        found.setdefault(time.step, []).append(time.seconds)
    if repr not in ("str", "csv"):
        return None
    digits = 4 if repr == "str" else 6
    lists = {step: [sum(seconds)] if aggregate else seconds for step, seconds in found.items()}
    times = [", ".join(f"{s:.{digits}f}" for s in seconds) for seconds in lists.values()]
    if repr == "csv":
        return list(found), times
    rows = [(step, text) for step, text in zip(found, times, strict=True)]
    return f"Steps of the compiler:\n{_table(('Step', 'Times (s)'), rows)}"


@dataclass(eq=False)
class CompileProfiler:
    """A backend that counts: `compile(f, backend=profiler)`. Graphs run op by op. `report()` tells what was compiled
    by it, where graphs broke, and why functions were compiled again."""

    frame_count: int = 0
    op_count: int = 0
    graphs: list[Graph] = field(default_factory=list)

    def __call__(self, module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += len(module.ir.calls)
        self.graphs.append(module.ir)
        return module.forward  # type: ignore[no-any-return]

    def __enter__(self) -> CompileProfiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def get_metrics(self) -> dict[str, Any]:
        """guard_failures: function -> reasons, one for each further capture."""
        return {"frames": self.frame_count, "ops": self.op_count, "guard_failures": self._recompiles()}

    def _states(self) -> list[Any]:
        return sorted((state for state in states if state.backend is self), key=lambda state: str(state.name))

    def _recompiles(self) -> dict[str, list[str]]:
        found = {state.name: list(state.explain().recompiles) for state in self._states()}
        return {name: why for name, why in found.items() if why}

    def report(self) -> str:
        """What was compiled, graph by graph; breaks with how often; recompiles with how often, and why."""
        graphs = [f"  {graph.name}: {len(graph.calls)} ops" for graph in self.graphs]
        breaks = Counter[tuple[str, str]]()
        for state in self._states():
            breaks.update(state.break_counts)
        again = [
            (name, str(len(why)), "; ".join(_counted(Counter(why).items()))) for name, why in self._recompiles().items()
        ]
        broken = [(f"{reason}, at {where}", str(count)) for (reason, where), count in breaks.items()]
        return "\n".join(
            [
                *_headed("Profiler Report", "="),
                f"Compiled {self.frame_count} graphs with {self.op_count} ops",
                *graphs,
                *_headed("Graph Breaks", "-"),
                "A graph breaks where code cannot be traced. fullgraph=True makes the first break an error.",
                _table(("Graph Break Reason", "Count"), broken) if broken else "No graph breaks detected.",
                *_headed("Recompilation", "-"),
                "A function is compiled again where what was assumed of its inputs no longer holds.",
                _table(("Function", "Recompiles", "Recompile Reasons"), again)
                if again
                else "No recompilation detected.",
            ]
        )


def _counted(reasons: Iterable[tuple[str, int]]) -> list[str]:
    return [why if count == 1 else f"{why} ({count} times)" for why, count in reasons]


def _headed(title: str, line: str) -> list[str]:
    return ["", title, line * len(title), ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that begin below each other."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
