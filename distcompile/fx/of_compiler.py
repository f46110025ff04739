"""What a function that is a backend is given: the compiler's graph as a GraphModule, and Tensors.

In: a graph of compiler_core, its example inputs, the function. Out: `module_of`: a GraphModule, a node for each of the
graph's, which runs as Python; `handed_over`: a function of arrays, made of the function of Tensors that the backend
returned.

A call's target is torch's function where that alone is the operation (`torch.sin`), else the primitive, with attributes
by name. Numbers that the graph holds are buffers. A size that the call decides is a node that asks an input for it, and
arithmetic over such nodes. `meta["val"]` is a Tensor on the meta device, where the shape is known; `stack_trace` the
user's line. `module.ir` is the compiler's own graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from compiler_core.backend import AS_MODULE
from compiler_core.capture import policy
from compiler_core.errors import DistCompileError
from compiler_core.graph import ir
from compiler_core.graph.input_sizes import numbers_of
from compiler_core.graph.sizes import symbols_of
from compiler_core.meta import TensorMeta
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import Array, Op, applied, use_trace
from compiler_core.symbolic.expression import Quotient, Remainder
from compiler_core.symbolic.polynomial import Factor
from compiler_core.symbolic.size import SizeSymbol, Sym, SymOrInt, symbols_in
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.memory.cell import cell_of
from compiler_core.tensor.tensor import Tensor
from distcompile.fx.graph import Graph
from distcompile.fx.graph_module import GraphModule
from distcompile.fx.node import Node


def module_of(graph: ir.Graph) -> GraphModule:
    """The graph as a Module whose forward takes its inputs, and returns a tuple of its outputs."""
    made = _Conversion(graph)
    module = GraphModule({node.name: Tensor._wrap(node.array) for node in graph.constants}, made.graph)
    object.__setattr__(module, "ir", graph)
    return module


def handed_over(
    function: Callable[..., Any], graph: ir.Graph, examples: Sequence[Array]
) -> Callable[..., Sequence[Array]]:
    """What the function makes of the graph, as a function of arrays; what is no callable is given back as it is."""
    run = function(module_of(graph), [Tensor._wrap(array) for array in examples])
    return partial(_run, run) if callable(run) else run


def _run(run: Callable[..., Any], *arrays: Array) -> list[Any]:
    with no_grad():
        tensors = [Tensor._wrap(array) for array in arrays]
        results = run(tensors) if getattr(run, "_boxed_call", False) else run(*tensors)
    return [result._read() if isinstance(result, Tensor) else result for result in results]


class _Conversion:
    """The nodes of one graph being made."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = Graph()
        self.ir = graph
        self.nodes: dict[ir.Node, Node] = {}
        self.sizes: dict[SizeSymbol, Node] = {}
        for taken in graph.inputs:
            self._note(taken, self.graph.placeholder(taken.name))
        for symbol in sorted(symbols_of(graph), key=lambda symbol: symbol.name):
            self.sizes[symbol] = self._asked(symbol)
        for node in graph.nodes:
            if isinstance(node, ir.Constant):
                self._note(node, self.graph.get_attr(node.name))
            elif isinstance(node, ir.Call):
                self._note(node, self._call(node))
        self.graph.output(tuple(self.nodes[node] for node in graph.outputs))

    def _note(self, node: ir.Node, made: Node) -> None:
        self.nodes[node] = made
        if not symbols_in(node.meta.shape):
            made.meta["val"] = made.meta["example_value"] = Tensor._from_cell(
                cell_of(MetaValue(node.shape, node.dtype))
            )

    def _call(self, call: ir.Call) -> Node:
        args = tuple(self.nodes[arg] for arg in call.args)
        target = _public(call.op, tuple(arg.meta for arg in call.args)) if not call.attrs else None
        kwargs = {name: self._value(value) for name, value in call.attrs.items()}
        made = self.graph.call_function(target or _primitive(call.op), args, kwargs)
        if call.location:
            file, _, line = call.location.rpartition(":")
            made.meta["stack_trace"] = f'  File "{file}", line {line}'
        return made

    def _value(self, value: Any) -> Any:
        """An attribute, with nodes in the place of sizes."""
        if isinstance(value, Sym):
            return self._sum(value)
        return tuple(map(self._value, value)) if type(value) is tuple else value

    # -- sizes that the call decides

    def _asked(self, symbol: SizeSymbol) -> Node:
        for node in self.ir.inputs:
            dims: tuple[SymOrInt, ...] = node.shape
            for k, dim in enumerate(dims):
                if isinstance(dim, Sym) and dim.terms == {((symbol, 1),): 1}:
                    return self.graph.create_node("call_method", "size", (self.nodes[node], k), name=symbol.name)
        told = tuple(self.nodes[node] for node in self.ir.inputs)
        return self.graph.call_function(partial(_told, self.ir, symbol), told, name=symbol.name)

    def _sum(self, size: Any) -> Any:
        if not isinstance(size, Sym):
            return size
        total: Any = 0
        for monomial, coefficient in size.terms.items():
            product: Any = coefficient
            for factor, power in monomial:
                for _ in range(power):
                    product = self._apply(operator.mul, product, self._factor(factor))
            total = self._apply(operator.add, total, product)
        return total

    def _factor(self, factor: Factor) -> Any:
        if isinstance(factor, SizeSymbol):
            return self.sizes[factor]
        assert isinstance(factor, Quotient | Remainder)
        function = operator.floordiv if isinstance(factor, Quotient) else operator.mod
        return self._apply(function, self._sum(factor.dividend), self._sum(factor.divisor))

    def _apply(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        neutral = {operator.add: 0, operator.mul: 1}.get(function)
        if neutral is not None and (a == neutral or b == neutral):
            return b if a == neutral else a
        are_known = isinstance(a, int) and isinstance(b, int)
        return function(a, b) if are_known else self.graph.call_function(function, (a, b))


def _told(graph: ir.Graph, symbol: SizeSymbol, *inputs: Any) -> int:
    """A symbol's number, where no input has it for a dim."""
    return numbers_of(graph, [value.shape for value in inputs])[symbol]


@cache
def _primitive(op: Op) -> Callable[..., Any]:
    """A primitive as a function: one object, so that targets can be compared."""
    function = inner = applied(op)

    def made(*values: Any, **attrs: Any) -> Any:
        return inner(*values, **attrs) if values else Tensor._wrap(inner(**attrs))

    if not any(sample.shapes for sample in op.samples):  # perhaps nothing tells it that a Tensor is wanted
        function = made
        function.__name__ = function.__qualname__ = op.name
        policy.say(function, policy.RUN)  # also when a module is compiled
    function.__module__ = "prims"
    return function


@cache
def _public(op: Op, metas: tuple[TensorMeta, ...]) -> Callable[..., Any] | None:
    """The function of torch's of that name, if of such operands it is this operation and nothing else."""
    import distcompile

    function = getattr(distcompile, op.name, None)
    if not callable(function):
        return None
    builder = ir.GraphBuilder("public")
    inputs = [builder.placeholder("x", meta) for meta in metas]
    try:
        with use_trace(builder):
            result = function(*map(Tensor._wrap, inputs))
            call = result._read() if isinstance(result, Tensor) else None
    except (DistCompileError, TypeError):  # it takes other arguments
        return None
    if not isinstance(call, ir.Call) or call.op is not op or call.attrs:
        return None
    return function if builder.body == [call] and call.args == tuple(inputs) else None


AS_MODULE.fill(handed_over)
