"""Writes ONNX nodes: what the rules of the tables (pointwise.py, movement.py, whole.py) are handed.

In: a Graph whose calls have a row in a table. Out: NodeProtos in order, initialisers, and the name of each value.
A size that the call decides is computed from the inputs' shapes, with Shape, Gather and integer arithmetic.
`full` and `expand` are emitted when somebody reads them whole: beside another operand of the full shape, a pointwise
operator broadcasts by itself, and is given what was repeated.
Operators are those of the ONNX specification (https://onnx.ai/onnx/operators), opset `OPSET`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler_core.dtype import DType
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.ops.registry import OPS
from compiler_core.symbolic.expression import Quotient, SizeFactor, SizeSymbol, Sym
from compiler_core.symbolic.size import SymOrInt, symbols_in

OPSET = 20
Rule: TypeAlias = "Callable[[Emitter, Call], str]"
Sizes: TypeAlias = Sequence[SymOrInt]


def element_type(dtype: DType) -> int:
    """ONNX's number of an element type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype.numpy))


class Emitter:
    """The nodes written so far. table: op's name -> rule. names: of inputs. taken: names that no value may have."""

    def __init__(
        self, graph: Graph, table: Mapping[str, Rule], names: Mapping[Node, str], taken: Sequence[str] = ()
    ) -> None:
        self.graph, self.table = graph, table
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.names: dict[Node, str] = {node: names.get(node, node.name) for node in graph.inputs}
        self._taken = {*taken, *self.names.values()}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._symbols: dict[SizeSymbol, str] = {}
        self._counts: dict[str, int] = {}

    # -- nodes

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        """The name of the one output of a new node; inputs may be "" where they are left out."""
        name = self.fresh(op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        while True:
            self._counts[stem] = count = self._counts.get(stem, -1) + 1
            name = f"{stem}_{count}"
            if name not in self._taken:
                return name

    def constant(self, array: Any, dtype: DType | np.dtype[Any] | None = None) -> str:
        """An initialiser; equal ones are one."""
        kind = dtype.numpy if isinstance(dtype, DType) else dtype
        data = np.asarray(array) if kind is None else np.asarray(array).astype(kind)
        data = np.ascontiguousarray(data).reshape(data.shape)
        key = (data.dtype.str + data.dtype.name, data.shape, data.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.fresh("const")
            self.initializers[name] = numpy_helper.from_array(data, name)
        return self._constants[key]

    def integers(self, values: Sequence[int]) -> str:
        """i64[n]."""
        return self.constant(np.asarray(values, np.int64).reshape(len(values)))

    # -- values

    def value(self, node: Node) -> str:
        """The name of a value, whole."""
        if node not in self.names:
            if isinstance(node, Constant):
                self.names[node] = self.constant(node.array)
            elif not symbols_in(node.shape) and 0 in node.shape:  # engines' operators differ on these
                self.names[node] = self.constant(np.empty(node.shape, node.dtype.numpy))
            else:
                assert isinstance(node, Call)
                self.names[node] = self.table[node.op.name](self, node)
        return self.names[node]

    def operands(self, call: Call) -> list[str]:
        return [self.value(arg) for arg in call.args]

    def broadcast(self, call: Call, args: Sequence[Node] | None = None) -> list[str]:
        """The operands of a pointwise operator: what repeats something, as that, where one is left that is whole."""
        args = call.args if args is None else args
        short = [_repeated(arg) for arg in args]
        if all(what is not None for what in short):
            whole = next((k for k, arg in enumerate(args) if arg in self.names), 0)
            short[whole] = None
        return [self.value(arg) if what is None else self._short(arg, what) for arg, what in zip(args, short)]

    def _short(self, node: Node, what: Node | Any) -> str:
        return self.value(what) if isinstance(what, Node) else self.number(what, node.dtype)

    def number(self, value: Any, dtype: DType) -> str:
        """A 0-d array; a size that the call decides, too."""
        if isinstance(value, Sym):
            flat = self.node("Squeeze", self.size(value), self.integers([0]))
            return self.node("Cast", flat, to=element_type(dtype))
        return self.constant(np.asarray(value).astype(dtype.numpy))

    def emit(self) -> None:
        """All calls, but those that repeat, which are written when they are read."""
        for call in self.graph.calls:
            if _repeated(call) is None:
                self.value(call)

    # -- sizes

    def sizes(self, sizes: Sizes) -> str:
        """i64[n], of sizes and symbols."""
        known = [n for n in sizes if not isinstance(n, Sym)]
        if len(known) == len(sizes):
            return self.integers(known)
        return self.node("Concat", *(self.size(n) for n in sizes), axis=0)

    def size(self, size: SymOrInt) -> str:
        """i64[1]."""
        if not isinstance(size, Sym):
            return self.integers([int(size)])
        total = ""
        for monomial, coefficient in size.terms.items():
            term = self.integers([coefficient]) if coefficient != 1 or not monomial else ""
            for factor, power in monomial:
                for _ in range(power):
                    name = self._factor(cast(SizeFactor, factor))
                    term = self.node("Mul", term, name) if term else name
            total = self.node("Add", total, term) if total else term
        return total

    def _factor(self, factor: SizeFactor) -> str:
        if isinstance(factor, SizeSymbol):
            return self._symbol(factor)
        dividend, divisor = self.size(factor.dividend), self.size(factor.divisor)
        rest = self.node("Mod", dividend, divisor)  # of integers it has the divisor's sign, as Python's
        return self.node("Div", self.node("Sub", dividend, rest), divisor) if isinstance(factor, Quotient) else rest

    def _symbol(self, symbol: SizeSymbol) -> str:
        """A symbol, read off the first input dim that is it. Raises BackendError if none is."""
        if symbol not in self._symbols:
            for node in self.graph.inputs:
                sizes: Sizes = node.shape
                for dim, size in enumerate(sizes):
                    if isinstance(size, Sym) and size.terms == {((symbol, 1),): 1}:
                        shape = self.node("Shape", self.names[node], start=dim, end=dim + 1)
                        self._symbols[symbol] = shape
                        return shape
            raise BackendError(f"graph {self.graph.name}: the size {symbol.name} is no dim of an input")
        return self._symbols[symbol]


def _repeated(node: Node) -> Node | Any | None:
    """What a value repeats: a node, a number; None if it is whole."""
    if not isinstance(node, Call):
        return None
    if node.op is OPS["expand"]:
        return node.args[0]
    return node.attrs["value"] if node.op is OPS["full"] and node.shape else None
