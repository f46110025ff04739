"""Backends after ahead-of-time differentiation: `aot_autograd`, boxed functions, and tables of decompositions.

In: functions `compiler(graph_module, example_inputs)`. Out: a backend. Graphs come differentiated and cut to every
backend here, so `aot_autograd` only says who compiles which: the forward, the backward's segments, a graph that nobody
differentiates. A table of decompositions says which primitives it writes with others first: those of the core set stay.
Limits: the partition is ours (a minimum cut), whatever is asked for. torch's operators are compositions of primitives
here, written with them when they are captured; so a table has primitives alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from compiler_core.backend import CallableBackend, Executable
from compiler_core.capture import compile
from compiler_core.graph.ir import OF_BACKWARDS, Graph
from compiler_core.graph.passes import Dce, Decompose, run_passes
from compiler_core.ops.registry import OPS, Op
from compiler_core.ops.rules import Decomposed
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.of_compiler import module_of
from distcompile.library.operators import OpOverload

__all__ = [
    "aot_autograd",
    "aot_function",
    "aot_module_simplified",
    "core_aten_decompositions",
    "default_partition",
    "get_decompositions",
    "make_boxed_compiler",
    "make_boxed_func",
    "min_cut_rematerialization_partition",
    "nop",
]

GraphCompiler: TypeAlias = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]
Table: TypeAlias = Mapping[Op, Callable[..., Any]]


def make_boxed_func(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` as a function of one list of its arguments, as compilers may return them: who calls can empty the list."""

    def g(args: list[Any]) -> Any:
        return f(*args)

    g._boxed_call = True  # type: ignore[attr-defined]
    return g


def make_boxed_compiler(compiler: GraphCompiler) -> GraphCompiler:
    """A compiler whose results are boxed."""

    def boxed(fx_g: GraphModule, inps: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compiler(fx_g, inps))

    return boxed


def nop(fx_g: GraphModule, _: Sequence[Any]) -> GraphModule:
    """The compiler that compiles nothing: the graph runs as it is."""
    return fx_g


def default_partition(*_: Any, **__: Any) -> Any:
    """torch's name of a partition, as `partition_fn`. Raises NotSupportedError when it is called."""
    raise NotSupportedError("joint graphs are cut by the compiler, and are not handed out")


def min_cut_rematerialization_partition(*_: Any, **__: Any) -> Any:
    """torch's name of a partition, as `partition_fn`: that of the compiler. Raises NotSupportedError when called."""
    raise NotSupportedError("joint graphs are cut by the compiler, and are not handed out")


class AotBackend:
    """See the head of this file. It is a backend, and called a compiler of whatever graph comes."""

    announces = False

    def __init__(self, compilers: Mapping[str, GraphCompiler], decompositions: Table) -> None:
        self.compilers, self.decompositions = compilers, decompositions
        self.name = getattr(compilers["forward"], "__name__", "aot_autograd")

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Sequence[Graph], name: str) -> Sequence[Executable]:
        """Executables of `graphs`, in order: a forward first where several come at once."""
        kinds = [_kind(graph, len(graphs) > 1) for graph in graphs]
        ready = [self._decomposed(graph) for graph in graphs]
        made = [CallableBackend(self.compilers[kind]).compile([graph], name) for kind, graph in zip(kinds, ready)]
        return [one for executables in made for one in executables]

    def _decomposed(self, graph: Graph) -> Graph:
        if not self.decompositions:
            return graph
        return run_passes(graph, (Decompose(rules=self.decompositions), Dce()))

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = getattr(gm, "ir", None)
        if graph is None:
            raise ArgumentError(
                "aot_autograd is given a module that no compilation made", got=type(gm).__name__,
                remedy="pass what aot_autograd returned as compile(backend=...), or call it in a backend",
            )  # fmt: skip
        ready = self._decomposed(graph)
        return self.compilers[_kind(graph, False)](gm if ready is graph else module_of(ready), example_inputs)


def _kind(graph: Graph, is_trained: bool) -> str:
    """Which of the compilers a graph goes to. is_trained: it is compiled together with its backward."""
    if any(node.role in OF_BACKWARDS for node in graph.inputs):
        return "backward"
    return "forward" if is_trained else "inference"


def aot_autograd(
    *,
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    partition_fn: Callable[..., Any] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    inference_compiler: GraphCompiler | None = None,
    **kwargs: Any,
) -> AotBackend:
    """A backend whose forward graphs `fw_compiler` compiles, backward ones `bw_compiler` (by default the same), and
    those that nobody differentiates `inference_compiler` (by default the first).

    decompositions: a table of `core_aten_decompositions` or `get_decompositions`, or of one's own: primitive ->
    function of values and attributes. Raises NotSupportedError for a partition of one's own, and for other arguments.
    """
    if partition_fn not in (None, default_partition, min_cut_rematerialization_partition):
        raise NotSupportedError(
            "aot_autograd takes no partition of one's own",
            got=getattr(partition_fn, "__name__", repr(partition_fn)),
            remedy="leave partition_fn out: the compiler's is a minimum cut",
        )
    unknown = sorted(kwargs.keys() - {"keep_inference_input_mutations"})
    if unknown:
        raise NotSupportedError(f"aot_autograd does not take {', '.join(unknown)}")
    compilers = {
        "forward": fw_compiler,
        "backward": bw_compiler or fw_compiler,
        "inference": inference_compiler or fw_compiler,
    }
    return AotBackend(compilers, {primitive(key): rule for key, rule in (decompositions or {}).items()})


def aot_module_simplified(
    mod: GraphModule, args: Sequence[Any], fw_compiler: GraphCompiler, **how: Any
) -> Callable[..., Any]:
    """`aot_autograd(fw_compiler=..., **how)` of one graph: what a backend returns."""
    return aot_autograd(fw_compiler=fw_compiler, **how)(mod, args)


def aot_function(fn: Callable[..., Any], fw_compiler: GraphCompiler, **how: Any) -> Callable[..., Any]:
    """`fn`, a function or a Module, compiled whole by `aot_autograd(fw_compiler=..., **how)`."""
    compiled: Callable[..., Any] = compile(fn, backend=aot_autograd(fw_compiler=fw_compiler, **how), fullgraph=True)
    return compiled


def core_aten_decompositions() -> dict[Op, Callable[..., Any]]:
    """Every primitive beyond the core set -> its composition (docs/reference/operations.md)."""
    return {op: op.engines.expand for op in OPS.values() if isinstance(op.engines, Decomposed)}


def get_decompositions(aten_ops: Iterable[Any]) -> dict[Op, Callable[..., Any]]:
    """The part of that table of these operators: primitives, their names, or torch's operators of that name.

    One that is no primitive is written with primitives when it is captured, and needs no row.
    """
    table = core_aten_decompositions()
    named = (OPS.get(_name(op)) for op in aten_ops)
    return {op: table[op] for op in named if op is not None and op in table}


def _name(op: Any) -> str:
    packet = op.overloadpacket if isinstance(op, OpOverload) else op
    return op if isinstance(op, str) else op.name if isinstance(op, Op) else getattr(packet, "__name__", "")


def primitive(key: Any) -> Op:
    """The primitive that a key of a table means. Raises NotSupportedError if it is none."""
    op = OPS.get(_name(key))
    if op is None:
        raise NotSupportedError(
            f"{_name(key) or key!r} is no primitive, so no graph has it",
            expected="the name of one in docs/reference/operations.md",
            remedy="decompose what it is written with; print(gm.graph) shows that",
        )
    return op
