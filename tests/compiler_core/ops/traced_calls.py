"""Traces a call on our functions into a verified Graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.verify import verify
from compiler_core.ops import functional
from compiler_core.ops.registry import Array, meta_of, use_trace

CallF = Callable[..., Any]


def outputs(result: Any) -> list[Any]:
    """One result or several, as a list."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def trace(call: CallF, arrays: Sequence[Array]) -> Graph:
    """The graph that `call` records on placeholders like `arrays`."""
    builder = GraphBuilder("traced")
    nodes = [builder.placeholder(f"x{k}", meta_of(a)) for k, a in enumerate(arrays)]
    with use_trace(builder):
        results = outputs(call(functional, *nodes))
    return verify(builder.build(results))
