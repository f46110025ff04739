"""Graphs -> Programs: the lowering and the schedule as one straight list of steps.

In: the graphs of one compilation (forward, backward segments). Out: one Program a graph; equal kernels are one object
among all of them.

    define      Graph -> definitions (views composed, index-only values inlined)          lowering/define.py
    place       products written where their only reader wants them           lowering/place.py
    schedule    definitions -> fused groups -> kernels, library calls, memory plan        schedule/program.py
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core import log
from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.loop_ir import ir
from compiler_core.lowering.define import define
from compiler_core.lowering.place import place_products
from compiler_core.schedule.finish import KernelTable
from compiler_core.schedule.program import schedule


def lower_and_schedule(graphs: Sequence[Graph]) -> list[ir.Program]:
    """The programs of `graphs`, in order. Raises LoweringError for a graph that loops cannot express."""
    table = KernelTable()
    programs = [schedule(graph, place_products(define(graph)), table) for graph in graphs]
    for program in programs:
        if config.verify:
            from compiler_core.loop_ir.verify import verify_program

            verify_program(program)
        if log.is_on("loop_ir"):
            from compiler_core.loop_ir.print import print_program

            log.emit("loop_ir", print_program(program, notes=True, elide=True))
    return programs
