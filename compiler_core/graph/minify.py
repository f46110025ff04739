"""Makes a graph that shows a fault small. As a script that somebody else can run: compiler_core/repro.

In: a graph and a predicate "this graph still shows the fault". Out: `minify(graph, fails)`, a graph in which nothing
more can be left out.
Method: delta debugging (Zeller and Hildebrandt, IEEE TSE 28, 2002) on the structure of a graph: fewer outputs, then
calls cut off into placeholders, the largest cuts first, until no single cut keeps the fault.
Invariant: every graph given to the predicate is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from compiler_core.backend import Backend, GraphCompiler, find_backend
from compiler_core.errors import GraphError
from compiler_core.graph.extract import extract
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.graph.verify import verify
from compiler_core.ops.registry import Array

Fails: TypeAlias = Callable[[Graph], bool]


def minify(graph: Graph, fails: Fails) -> Graph:
    """The smallest graph found that still `fails`. Raises GraphError if `graph` itself does not."""
    if not fails(graph):
        raise GraphError(f"graph {graph.name} does not show the fault that is to be minified")
    smaller: Graph | None = graph
    while smaller is not None:
        graph = smaller
        smaller = next((candidate for candidate in _smaller(graph) if fails(candidate)), None)
    return replace(graph, name="minified")


def _smaller(graph: Graph) -> Iterator[Graph]:
    """Graphs with less in them, the boldest first."""
    outputs = list(dict.fromkeys(graph.outputs))
    if len(outputs) > 1:
        for half in (outputs[: len(outputs) // 2], outputs[len(outputs) // 2 :], *([node] for node in outputs)):
            yield _part(graph, half, [])
    calls = [call for call in graph.calls if call not in graph.outputs]
    size = len(calls)
    while size:
        for start in range(0, len(calls), size):
            yield _part(graph, outputs, calls[start : start + size])
        size //= 2
    for call in graph.calls:  # one of its own operands in place of an output
        if call in outputs:
            for operand in call.args:
                if not isinstance(operand, Placeholder):
                    yield _part(graph, [operand if node is call else node for node in outputs], [])


def _part(graph: Graph, outputs: Sequence[Node], cut: Sequence[Call]) -> Graph:
    """`graph` down to `outputs`, with the calls in `cut` given from outside, and without unread placeholders."""
    given: dict[Node, Placeholder] = {call: Placeholder(call.name, call.meta, "input", call.name) for call in cut}
    part = extract(graph, graph.name, outputs, graph.inputs, replaced=given)
    read = {arg for call in part.calls for arg in call.args} | set(part.outputs)
    nodes = tuple(node for node in part.nodes if not isinstance(node, Placeholder) or node in read)
    return verify(part.with_nodes(nodes))


def example_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    """Values for the placeholders, the same for the same seed: floats in (-1, 1), small whole numbers, bits."""
    rng = np.random.default_rng(seed)
    arrays = []
    for node in graph.inputs:
        values = rng.uniform(-1, 1, node.shape) if node.dtype.is_floating_point else rng.integers(0, 2, node.shape)
        arrays.append(values.astype(node.dtype.numpy))
    return arrays


def largest_difference(graph: Graph, backend: str | Backend | GraphCompiler, seed: int = 0) -> float:
    """How far `backend` is from the interpreter, relative to the largest value of each output; inf where shapes differ
    or NaNs are in other places."""
    inputs = example_inputs(graph, seed)
    with np.errstate(all="ignore"):
        wanted = interpret(graph, inputs)
        gotten = find_backend(backend).compile([graph], graph.name)[0](inputs)
        return max((_difference(got, want) for got, want in zip(gotten, wanted, strict=True)), default=0.0)


def _difference(got: Array, want: Array) -> float:
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if a.shape != b.shape or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    apart = np.abs(a - b)[finite].max(initial=0.0) / np.abs(b[finite]).max(initial=1e-30)
    return float(apart) if np.isfinite(apart) else float("inf")


def differs(backend: str | Backend | GraphCompiler, tolerance: float = 1e-4) -> Fails:
    """The predicate "`backend` gives something else than the interpreter"."""
    return lambda graph: largest_difference(graph, backend) > tolerance
