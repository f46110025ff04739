"""torch._dynamo's names: `explain`, `run`, a profiler of compilations (counting.py), and hints to the compiler.

In: functions. Out: reports; the same functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from compiler_core.capture import CompiledFunction, CompiledModule
from compiler_core.capture import CompiledModule as OptimizedModule
from compiler_core.capture.compiled.control import stand
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.graph.ir import Graph
from compiler_core.graph.sizes import symbols_of
from distcompile._dynamo import config, decorators
from distcompile._dynamo.counting import CompileProfiler
from distcompile._dynamo.decorators import mark_dynamic, mark_static, mark_static_address, maybe_mark_dynamic
from distcompile.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    graph_break,
    is_compiling,
    list_backends,
    lookup_backend,
    register_backend,
    reset,
    substitute_in_graph,
)
from distcompile.surface.laid_out import lay_out

__all__ = [
    "CompileProfiler",
    "ExplainOutput",
    "ExportResult",
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "decorators",
    "disable",
    "disallow_in_graph",
    "explain",
    "export",
    "graph_break",
    "is_compiling",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "register_backend",
    "reset",
    "run",
    "substitute_in_graph",
    "utils",
]

utils = lay_out(__name__, __name__, {"utils": "counting"})["utils"]


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


class ExportResult(NamedTuple):
    """graph_module: runs the program, on arguments like those of the call. guards: what is assumed of sizes."""

    graph_module: Any
    guards: frozenset[str]


def export(f: Callable[..., Any], *extra_args: Any, dynamic_shapes: Any = None, **extra_kwargs: Any) -> Any:
    """`export(f)(*args)`: the call as one graph, for all sizes that the code lets change, or `dynamic_shapes`.

    What torch calls aten_graph, tracing_mode and the like has no effect. Raises what `distcompile.export.export` does.
    """
    from distcompile.jit.traced import program_of

    def exported(*args: Any, **kwargs: Any) -> ExportResult:
        program = program_of(f, args, kwargs, dynamic_shapes)
        ranges = (f"{low} <= {name} <= {high}" for name, (low, high) in program.range_constraints.items())
        guards = (
            str(guard) for sizes in {symbol.sizes for symbol in symbols_of(program.dc_graph)} for guard in sizes.guards
        )
        return ExportResult(program.module(), frozenset((*ranges, *guards)))

    given = {name: value for name, value in extra_kwargs.items() if name not in _OF_EXPORT}
    return exported(*extra_args, **given) if extra_args or given else exported


_OF_EXPORT = frozenset({
    "aten_graph", "pre_dispatch", "decomposition_table", "tracing_mode", "specialize_float", "assume_static_by_default",
    "same_signature", "disable_constraint_solver", "prefer_deferred_runtime_asserts_over_guards", "constraints",
})  # fmt: skip


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


def run(fn: Callable[..., Any] | None = None) -> Any:
    """`fn`, frozen: its calls run what was compiled of it before, or eager; nothing is compiled. Without it a block,
    or a decorator, in which that holds of every call of this thread.
    """
    frozen = stand("frozen")
    if fn is None:
        return frozen
    if is_module(fn):
        return functools.partial(run(type(fn).__call__), fn)
    return frozen(fn)
