"""torch._dynamo.testing: backends that count, or keep, what they are given.

In: `compile(f, backend=...)`. Out: numbers of graphs and of operations; graphs. What they give back runs op by op, but
`CompileCounterWithBackend`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distcompile.compiler import lookup_backend
from distcompile.fx.graph_module import GraphModule

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounter:
    """Counts. frame_count: graphs; op_count: calls in them."""

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        return gm.forward

    def clear(self) -> None:
        """Begin at 0."""
        self.frame_count = self.op_count = 0


class EagerAndRecordGraphs:
    """Keeps the graphs."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


class CompileCounterWithBackend(CompileCounter):
    """Counts, keeps the graphs, and has a backend of that name compile them."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        compiled: Callable[..., Any] = lookup_backend(self.backend)(gm, example_inputs)
        return compiled

    def clear(self) -> None:
        """Begin at 0, without graphs."""
        super().clear()
        self.graphs: list[GraphModule] = []
