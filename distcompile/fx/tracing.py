"""make_fx: a function run once on example inputs, and the primitives that it applied, as a GraphModule.

In: a function of Tensors, by place. Out: a Module of the same arguments, whose result is a tree of the same shape.
Raises GraphBreak where the function asks for a value, FxError where it writes into what it did not make, or draws.
A Python branch is the one that was taken. What is no Tensor among the arguments is a constant, and so is every Tensor
that is no argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.ops.registry import Value, meta_of, use_trace
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor
from compiler_core.trees import flatten
from distcompile.fx.errors import FxError
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.of_compiler import module_of

__all__ = ["make_fx"]


def make_fx(f: Callable[..., Any], decomposition_table: Any = None, tracing_mode: str = "real", **options: Any) -> Any:
    """`make_fx(f)(*args)`: the GraphModule of what `f(*args)` does to Tensors. torch's other arguments have no effect,

    but a table of decompositions and tracing_mode="symbolic" are refused (FxError).
    """
    if decomposition_table or tracing_mode == "symbolic":
        raise FxError("make_fx traces primitives, of the sizes of its arguments", remedy="leave these arguments out")

    def traced(*args: Any) -> GraphModule:
        builder = _Recorder(getattr(f, "__name__", type(f).__name__))
        handles = [_stands_for(builder, arg, k) if isinstance(arg, Tensor) else arg for k, arg in enumerate(args)]
        with use_trace(builder), no_grad():
            found, shape = flatten(f(*handles))
            outputs = [_node(builder, leaf) for leaf in found]
            for handle in handles:
                if isinstance(handle, Tensor) and handle._read() not in builder.placeholders:
                    raise FxError("the function writes into an argument", remedy="let it write into a clone()")
        return _module(builder.build(outputs), shape, [isinstance(arg, Tensor) for arg in args])

    return traced


class _Recorder(GraphBuilder):
    """A trace in which Tensors live that are no arguments: as constants."""

    def read_cell(self, cell: Cell, handle: Tensor | None) -> Value:
        return self.constant(cell.taken())

    def write_cell(self, cell: Cell, node: Value) -> None:
        raise FxError("the function writes into a Tensor that it did not make", remedy="let it write into a clone()")

    def note_copy(self, node: Value) -> None:
        return None  # nothing that is here before is written to

    def next_rng(self) -> tuple[Value, int]:
        raise FxError("the function draws at random, which would be the same in each call", remedy="pass the numbers")

    def draws_outside(self) -> bool:
        return False

    def outside_draw(self, draw: Any) -> Value:
        return self.next_rng()


def _stands_for(builder: GraphBuilder, leaf: Tensor, k: int) -> Tensor:
    return Tensor._wrap(builder.placeholder(f"x_{k}", meta_of(leaf)))


def _node(builder: GraphBuilder, leaf: Any) -> Node:
    if not isinstance(leaf, Tensor):
        raise FxError("make_fx takes functions that return Tensors alone", got=type(leaf).__name__)
    value = leaf._read()
    return value if isinstance(value, Node) else builder.constant(value)


def _module(graph: Graph, shape: Any, are_tensors: list[bool]) -> GraphModule:
    """The graph's module, with a placeholder for every leaf, whose result is a tree of that shape."""
    module = module_of(graph)
    (output,) = module.graph.find_nodes(op="output")
    (values,) = output.args
    output.args = (shape.unflatten(list(values)),)
    given = module.graph.find_nodes(op="placeholder")
    for k, is_tensor in enumerate(are_tensors):
        if not is_tensor:
            with module.graph.inserting_before(given[k] if k < len(given) else output):
                given.insert(k, module.graph.placeholder(f"x_{k}"))
    module.recompile()
    return module
