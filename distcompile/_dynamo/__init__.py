"""torch._dynamo's names: `explain`, a profiler of compilations, and hints to the compiler.

In: functions. Out: reports; the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from compiler_core.capture import CompiledFunction, CompiledModule
from compiler_core.capture import CompiledModule as OptimizedModule
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from distcompile._dynamo import config, decorators
from distcompile._dynamo.decorators import mark_dynamic, mark_static, mark_static_address, maybe_mark_dynamic
from distcompile.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    graph_break,
    is_compiling,
    list_backends,
    register_backend,
    reset,
    substitute_in_graph,
)

__all__ = [
    "CompileProfiler",
    "ExplainOutput",
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "decorators",
    "disable",
    "disallow_in_graph",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "register_backend",
    "reset",
    "substitute_in_graph",
]


@dataclass(frozen=True, slots=True)
class BreakReason:
    """reason: why the graph ends. user_stack: the user's line."""

    reason: str
    user_stack: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.reason}, at {', '.join(self.user_stack)}"


@dataclass(frozen=True, slots=True)
class ExplainOutput:
    """What one call was captured as.

    graph_count: graphs that compute something. ops_per_graph: the functions and operators that the program called,
    without methods of tensors, as torch counts them. out_guards: each graph's guards.
    break_reasons: where and why they end; graph_break_count is their number.
    """

    graphs: tuple[Graph, ...]
    break_reasons: tuple[BreakReason, ...]
    ops_per_graph: tuple[tuple[str, ...], ...]
    out_guards: tuple[tuple[str, ...], ...]

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def op_count(self) -> int:
        return sum(map(len, self.ops_per_graph))

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
            *(f"  Break Reason {i}: {reason}" for i, reason in enumerate(self.break_reasons, 1)),
            "Ops per Graph:",
            *(f"  Ops {i}: {', '.join(ops)}" for i, ops in enumerate(self.ops_per_graph, 1)),
            "Out Guards:",
            *(f"  Guard {i}.{k}: {guard}" for i, g in enumerate(self.out_guards, 1) for k, guard in enumerate(g, 1)),
        ]
        return "\n".join(lines)


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)`: call `f` once, and say what it is captured as: graphs, breaks, ops, guards.

    The call is made for real, op by op. What was compiled of `f` before is neither used nor changed. Functions that
    only uncompiled code calls, captured by themselves, are told after `f`.
    """

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        kind = CompiledModule if is_module(f) else CompiledFunction
        compiled = kind(f, "eager", fullgraph=False)
        compiled(*args, **kwargs)
        found = compiled.explain()
        parts = (found, *found.reached)
        entries = [(e, dict(e.graphs)["forward"]) for part in parts for e in part.entries if e.graphs]
        return ExplainOutput(
            tuple(graph for _, graph in entries),
            tuple(BreakReason(broke.reason, (broke.where,)) for part in parts for broke in part.breaks),
            tuple(entry.operations for entry, _ in entries),
            tuple(entry.guards for entry, _ in entries),
        )

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


@dataclass
class CompileProfiler:
    """A backend that counts: `compile(f, backend=profiler)`. Graphs run op by op."""

    frame_count: int = 0
    op_count: int = 0
    graphs: list[Graph] = field(default_factory=list)

    def __call__(self, graph: Graph, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += len(graph.calls)
        self.graphs.append(graph)
        return lambda *inputs: interpret(graph, inputs)

    def __enter__(self) -> CompileProfiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None

    def get_metrics(self) -> dict[str, int]:
        return {"frames": self.frame_count, "ops": self.op_count}

    def report(self) -> str:
        """What was compiled, graph by graph."""
        rows = [f"  {graph.name}: {len(graph.calls)} ops" for graph in self.graphs]
        return "\n".join([f"Compiled {self.frame_count} graphs with {self.op_count} ops", *rows])
