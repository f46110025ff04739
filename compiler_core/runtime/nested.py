"""Executables that are run inside of others: the branches of `cond`, from the routine that native code calls back.

In: a graph. Out: a function of its inputs. What is under way keeps its arena: that of the next level is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler_core.aot.branch import EXECUTABLE
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.pipeline import compile_graph
from compiler_core.runtime.lasting_memory import nested_arena


def nested_executable(graph: Graph) -> Callable[[Sequence[Array]], list[Array]]:
    """`graph`, compiled, as a function that may be called while another program runs in this thread."""
    executable = compile_graph(graph)

    def run(inputs: Sequence[Array]) -> list[Array]:
        with nested_arena():
            return executable(inputs)

    return run


EXECUTABLE.fill(nested_executable)
