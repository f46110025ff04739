"""A graph of one example as a graph of a batch of them: every op by its vmap rule.

In: a graph, the size of the batch, which inputs have it (in front). Out: a graph whose outputs all have it in front.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes.dce import Dce
from compiler_core.meta import TensorMeta
from compiler_core.ops.batching.running import leave
from compiler_core.ops.batching.value import Batched, Level
from compiler_core.ops.registry import use_trace


def over_batch(graph: Graph, size: int, are_batched: Sequence[bool]) -> Graph:
    """`graph` of `size` examples. See the head of this file."""
    level, builder = Level(size), GraphBuilder(f"{graph.name}_batch")
    inputs = []
    for node, yes in zip(graph.inputs, are_batched, strict=True):
        meta = TensorMeta((size, *node.shape), node.dtype) if yes else node.meta
        made = builder.placeholder(node.name, meta)
        inputs.append(Batched(made, level) if yes else made)
    with use_trace(builder):
        outputs = [leave(output, level, 0) for output in interpret(graph, inputs)]
    return Dce().apply(builder.build(outputs))
