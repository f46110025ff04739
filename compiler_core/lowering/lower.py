"""Graphs -> Programs: the lowering and the schedule as one straight list of steps.

In: the graphs of one compilation (forward, backward segments). Out: one Program a graph; equal kernels are one object
among all of them.

    expand      ops that loops do not compute whole (convolutions), written with others   graph/passes/expand.py
    define      Graph -> definitions (views composed, index-only values inlined)          lowering/define.py
    inline      elements read once, in another order, written into their reader           lowering/inline.py
                on a GPU, reductions rounded where they are summed                    lowering/round.py
                and biases added by the product that they are added to                lowering/epilogue.py
    place       products written where their only reader wants them,                      lowering/place.py
                and only where a causal mask lets something through                       lowering/triangle.py
    schedule    definitions -> fused groups -> kernels, library calls, memory plan        schedule/program.py
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import EXPAND, run_passes
from compiler_core.loop_ir import ir
from compiler_core.lowering.define import define
from compiler_core.lowering.epilogue import add_biases
from compiler_core.lowering.inline import inline_reordered
from compiler_core.lowering.place import place_products
from compiler_core.lowering.round import round_results
from compiler_core.lowering.triangle import skip_masked_blocks
from compiler_core.schedule.finish import KernelTable
from compiler_core.schedule.program import schedule
from compiler_core.schedule.target import CPU, Target
from compiler_core.steps import compiling, record


def lower_and_schedule(graphs: Sequence[Graph], name: str = "", target: Target = CPU) -> list[ir.Program]:
    """The programs of `graphs`, in order; `name` goes into log and dump. target: what the kernels are scheduled for.

    Raises LoweringError for a graph that loops cannot express.
    """
    table = KernelTable(target)
    name = name or graphs[0].name
    with compiling(name, "expand"):
        graphs = [run_passes(graph, EXPAND) for graph in graphs]
    with compiling(name, "define"):
        defined = [define(graph, half_products=graph.device != "cpu") for graph in graphs]
    with compiling(name, "inline"):
        inlined = [inline_reordered(definitions, target) for definitions in defined]
        if target.is_gpu:
            inlined = [add_biases(round_results(definitions)) for definitions in inlined]
    with compiling(name, "place"):
        placed = [skip_masked_blocks(place_products(definitions)) for definitions in inlined]
    with compiling(name, "schedule"):
        programs = [schedule(graph, definitions, table) for graph, definitions in zip(graphs, placed, strict=True)]
    for program in programs:
        if config.verify:
            from compiler_core.loop_ir.verify import verify_program

            verify_program(program)
        record(name, "schedule", lambda: _text(program), part=program.name, artefact="loop_ir")  # noqa: B023
    return programs


def _text(program: ir.Program) -> str:
    from compiler_core.loop_ir.print import print_program

    return print_program(program, notes=True, elide=True)
