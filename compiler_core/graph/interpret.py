"""Runs a Graph op by op: the living definition of what a graph means, and the oracle of all generated code.

In: a Graph and one value a placeholder (arrays, Tensors, or nodes of another trace: anything `bind` takes).
Out: one value an output. On arrays every op is `Op.eager`; on Tensors the autograd tape records; on nodes the graph is
inlined into the current trace. A value is dropped after its last use, so peak memory is that of a good program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.ops.registry import Array, Value, bind, current_trace, meta_of

Override: TypeAlias = Callable[[Call, Mapping[Node, Value]], Mapping[Node, Value] | None]


def interpret(
    graph: Graph,
    inputs: Sequence[Value],
    outs: Sequence[Array | None] | None = None,
    *,
    override: Override | None = None,
) -> list[Value]:
    """The outputs of `graph` on `inputs`. outs[i], where given, receives output i in place and is returned for it.

    override: asked before each call; the values it gives (of that call and of others) are taken instead of running it.
    Raises GraphError if an input's shape or dtype is not its placeholder's.
    """
    environment = _bind_inputs(graph, inputs)
    on_arrays = all(isinstance(value, np.ndarray) for value in inputs) and current_trace() is None
    dying = _last_uses(graph)
    for node in graph.nodes:
        if isinstance(node, Call) and node not in environment:
            given = None if override is None else override(node, environment)
            environment.update({node: _run(node, environment, on_arrays)} if given is None else given)
        elif isinstance(node, Constant):
            environment[node] = node.array
        for dead in dying.get(node, ()):
            del environment[dead]
    results = [environment[node] for node in graph.outputs]
    return results if outs is None else [_deliver(value, out) for value, out in zip(results, outs, strict=True)]


def _run(call: Call, environment: Mapping[Node, Value], on_arrays: bool) -> Value:
    operands = [environment[arg] for arg in call.args]
    if on_arrays:
        return np.asarray(call.op.eager(np, *operands, **call.attrs))
    return bind(call.op, *operands, **call.attrs)


def _bind_inputs(graph: Graph, inputs: Sequence[Value]) -> dict[Node, Value]:
    placeholders = graph.inputs
    if len(placeholders) != len(inputs):
        raise GraphError(f"graph {graph.name} takes {len(placeholders)} inputs", got=f"{len(inputs)}")
    for node, value in zip(placeholders, inputs):
        if meta_of(value) != node.meta:
            raise GraphError(
                f"graph {graph.name}: input %{node.name} does not fit", expected=str(node.meta), got=str(meta_of(value))
            )
    return dict(zip(placeholders, inputs))


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Node -> the values that no node after it reads and that are not returned."""
    last = {node: node for node in graph.nodes}
    for call in graph.calls:
        for arg in call.args:
            last[arg] = call
    table: dict[Node, list[Node]] = {}
    kept = set(graph.outputs)
    for value, user in last.items():
        if value not in kept:
            table.setdefault(user, []).append(value)
    return table


def _deliver(value: Value, out: Array | None) -> Value:
    if out is None:
        return value
    np.copyto(out, value)
    return out
