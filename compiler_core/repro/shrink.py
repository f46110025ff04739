"""A case made small, as long as it fails alike; what it needs for that it keeps.

In: a `Case`, its `Fault`, seconds. Out: `shrink`: the smallest case found, and its fault, found anew. Method:
graph/minify.py; a graph counts as failing if its first fault is of the same kind, in the same stage. Wrong native code
may lie in its schedule or its text, which only small graphs tell apart: there these count as one stage.
"""

from __future__ import annotations

import time
from dataclasses import replace

from compiler_core.errors import GraphError
from compiler_core.graph.ir import Graph
from compiler_core.graph.minify import minify
from compiler_core.repro.case import Case, Fault
from compiler_core.repro.ladder import find

FEW = 2  # operations: the last of so few is taken for the one that fails
_IN_NATIVE = ("schedule", "emit")
_WITHOUT_LIBRARY = (
    *("simplify", "rule", "joint", "simplify_joint", "layout", "partition", "plan"),
    *("expand", "define", "inline", "round", "epilogue", "place", "triangle"),
)


def are_alike(one: Fault | None, other: Fault) -> bool:
    """Whether two faults are one, as far as can be told."""
    return one is not None and (one.kind, one.mark, _stage(one)) == (other.kind, other.mark, _stage(other))


def _stage(fault: Fault) -> str:
    stage = fault.stage.partition(",")[0]
    return "native code" if fault.kind == "accuracy" and stage in _IN_NATIVE else stage


def find_again(case: Case, fault: Fault) -> Fault | None:
    """What is wrong with `case`, looked for as far as `fault` needs it."""
    is_error = fault.kind == "error"
    in_text = fault.stage in _WITHOUT_LIBRARY or (is_error and fault.stage in _IN_NATIVE)
    return find(case, errors_only=is_error, builds=not in_text)


def shrink(case: Case, fault: Fault, limit_s: float) -> tuple[Case, Fault]:
    """The smallest case found within `limit_s` that fails alike, and how it fails."""
    until_s = time.monotonic() + limit_s

    def fails(graph: Graph) -> bool:
        return time.monotonic() < until_s and are_alike(find_again(case.with_graph(graph), fault), fault)

    try:
        small = case.with_graph(minify(case.graph, fails))
    except GraphError:  # with gradients to all inputs it is another one
        return case, fault
    found = find_again(small, fault)
    if found is None or not are_alike(found, fault):
        return case, fault
    calls = small.graph.calls
    if not found.op and 0 < len(calls) <= FEW:
        found = replace(found, op=calls[-1].op.name, where=calls[-1].location)
    return small, found
