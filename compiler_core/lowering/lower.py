"""Graphs -> definitions: the lowering as one straight list of steps, each recorded.

In: the graphs of one compilation (forward, backward segments). Out: one `Defined` a graph.

    expand      ops that loops do not compute whole (convolutions), written with others   graph/passes/expand.py
    define      Graph -> definitions (views composed, index-only values inlined)          define.py
    inline, round, epilogue, place, triangle                                              passes.py

With DISTCOMPILE_VERIFY=1 what each step made is verified, and with it what the next is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import EXPAND, run_passes
from compiler_core.lowering.define import define
from compiler_core.lowering.definition import Defined
from compiler_core.lowering.passes import PASSES
from compiler_core.lowering.target import CPU, Target
from compiler_core.steps import compiling, record, record_graph


def lower(graphs: Sequence[Graph], name: str = "", target: Target = CPU) -> list[Defined]:
    """The definitions of `graphs`, in order; `name` goes into log and dump.

    Raises LoweringError for a graph that loops cannot express.
    """
    name = name or graphs[0].name
    with compiling(name, "expand"):
        expanded = [run_passes(graph, EXPAND) for graph in graphs]
    for before, graph in zip(graphs, expanded, strict=True):
        if graph is not before:
            record_graph(name, "expand", graph, part=graph.name, artefact="aot")
    with compiling(name, "define"):
        defined = [define(graph, target.halves) for graph in expanded]
    _record(name, "define", defined)
    for one in PASSES:
        if one.is_for(target):
            with compiling(name, one.name):
                defined = [one.apply(definitions, target) for definitions in defined]
            _record(name, one.name, defined)
    return defined


def _record(name: str, step: str, defined: Sequence[Defined]) -> None:
    for definitions in defined:
        if config.verify:
            from compiler_core.lowering.verify import verify_definitions

            verify_definitions(definitions)
        record(name, step, lambda: _text(definitions), part=definitions.name, artefact="definitions")  # noqa: B023


def _text(defined: Defined) -> str:
    from compiler_core.lowering.print import print_definitions

    return print_definitions(defined, notes=True)
