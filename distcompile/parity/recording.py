"""A backend that runs another one and keeps what went through it: graphs, their inputs and outputs.

In: a backend's name. Out: `RecordingBackend`, to be given to `compile`; `runs` afterwards: the last run of every graph.
`values_of` computes all values of a graph op by op: in its own dtypes, or every float in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_core.backend import Backend, Executable, GraphCompiler, find_backend
from compiler_core.events import Events
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.ops.registry import Array


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one graph. Arrays are copies."""

    graph: Graph
    inputs: list[Array]
    outputs: list[Array]


class RecordingBackend:
    """Backend `inner`, observed. One for each compiled function.

    announces is False: outputs are copied before anybody may change them where they lie, as a reducer does.
    """

    announces = False

    def __init__(self, inner: str | Backend | GraphCompiler) -> None:
        self.inner = find_backend(inner)
        self.graphs: list[Graph] = []
        self._runs: dict[int, Run] = {}

    @property
    def name(self) -> str:
        return f"{self.inner.name}, recorded"

    def lay_out(self, graph: Graph) -> Graph:
        return self.inner.lay_out(graph)

    @property
    def runs(self) -> list[Run]:
        """The last run of each graph, in the order in which they ran."""
        return list(self._runs.values())

    def compile(self, graphs: Sequence[Graph], name: str) -> list[Executable]:
        """What `inner` makes of the graphs, each wrapped."""
        first = len(self.graphs)
        self.graphs += graphs
        made = self.inner.compile(graphs, name)
        return [self._wrapped(first + k, graph, run) for k, (graph, run) in enumerate(zip(graphs, made, strict=True))]

    def _wrapped(self, number: int, graph: Graph, run: Executable) -> Executable:
        def recorded(
            inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
        ) -> list[Array]:
            kept = [np.array(value) for value in inputs]
            if events is not None:
                for event in range(len(graph.waits)):
                    events.wait(event)
            results = run(inputs)
            self._runs.pop(number, None)
            self._runs[number] = Run(graph, kept, [np.array(value) for value in results])
            results = _delivered(results, outs)
            if events is not None:
                for event in range(len(graph.signals)):
                    events.signal(event)
            return results

        return recorded


def _delivered(results: list[Array], outs: Sequence[Array | None] | None) -> list[Array]:
    for k, out in enumerate(outs or ()):
        if out is not None:
            np.copyto(out, results[k])
            results[k] = out
    return results


def values_of(graph: Graph, inputs: Sequence[Array], *, wide: bool = False) -> Mapping[Node, Array]:
    """The value of every node. wide: floats in float64, whatever the graph's own dtypes are."""

    def kept(array: Array) -> Array:
        is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        return array.astype(np.float64) if wide and is_float else array

    values: dict[Node, Array] = {node: kept(value) for node, value in zip(graph.inputs, inputs, strict=True)}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if isinstance(node, Constant):
                values[node] = kept(node.array)
            elif isinstance(node, Call):
                operands = [values[arg] for arg in node.args]
                values[node] = kept(np.asarray(node.op.eager(np, *operands, **node.attrs)))
    return values
