"""How often what happened to compiled functions, over the whole process: breaks by reason, failed guards by function.

In: `State`s that say so. Out: `counters`, as torch._dynamo.utils has it: "graph_break" by reason, "frames" (captures
that were begun: "total", and that gave something to run: "ok"), "stats" ("unique_graphs", "calls_captured");
`guard_failures`: a code -> why what was compiled for it did not fit, in words, once for each further capture.
Counted where something is captured, never where a compiled call runs. Programs may clear both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from types import CodeType
from typing import Any

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
guard_failures: defaultdict[Any, list[str]] = defaultdict(list)


def count_graph(operations: int) -> None:
    """A segment was captured that holds so many calls of functions."""
    counters["frames"]["ok"] += 1
    counters["stats"]["unique_graphs"] += 1
    counters["stats"]["calls_captured"] += operations


def code_of(function: Any) -> Any:
    """The code that a function, a method or a module runs; without one the function itself."""
    found = getattr(type(function), "forward", None) if hasattr(function, "named_parameters") else function
    found = getattr(found, "__func__", found)
    code = getattr(found, "__code__", None)
    return code if isinstance(code, CodeType) else function
