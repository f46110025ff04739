"""One-op graphs of the conformance cases: what every interpreter and code generator is handed."""

from __future__ import annotations

from cases import Case

from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.ops.registry import meta_of


def graph_of(case: Case) -> Graph:
    """out = op(x0, x1, ...), named after the case."""
    builder = GraphBuilder(case.name.replace("-", "_"))
    args = [builder.placeholder(f"x{k}", meta_of(array), role="input") for k, array in enumerate(case.arrays)]
    return builder.build([builder.call(case.op, args, case.sample.attrs)])
