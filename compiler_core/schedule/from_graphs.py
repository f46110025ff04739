"""Graphs -> Programs: the lowering (lowering/lower.py), then the schedule (program.py).

In: the graphs of one compilation (forward, backward segments). Out: one Program a graph; equal kernels are one object
among all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.loop_ir import ir
from compiler_core.lowering.lower import lower
from compiler_core.lowering.target import CPU, Target
from compiler_core.schedule.finish import KernelTable
from compiler_core.schedule.program import schedule
from compiler_core.steps import compiling, record


def lower_and_schedule(graphs: Sequence[Graph], name: str = "", target: Target = CPU) -> list[ir.Program]:
    """The programs of `graphs`, in order; `name` goes into log and dump. target: what the kernels are scheduled for.

    Raises LoweringError for a graph that loops cannot express.
    """
    name = name or graphs[0].name
    lowered, table = lower(graphs, name, target), KernelTable(target)
    with compiling(name, "schedule"):
        programs = [schedule(graph, defined, table) for graph, defined in zip(graphs, lowered, strict=True)]
    for program in programs:
        if config.verify:
            from compiler_core.loop_ir.verify import verify_program

            verify_program(program)
        record(
            name,
            "schedule",
            partial(_text, program, elide=True),
            part=program.name,
            artefact="loop_ir",
            whole=partial(_text, program),
        )
    return programs


def _text(program: ir.Program, *, elide: bool = False) -> str:
    from compiler_core.loop_ir.print import print_program

    return print_program(program, notes=True, elide=elide)
