"""Scalar expressions as text, in Python's syntax, and back: of kernels and of definitions alike.

    f32(1.0)   t0   p0[128*i0 + i1]   index_value(i0 + 1, i64)   index_lt(i0, 3)
    add(X, Y)   cast(X, f32)   where(C, X, Y)
    data(X)   data(X, 0, 41, 'take: index out of range')      within an index: an integer that is read; checked

In: an `Expr`, and how values and variables are called; or text, and what its names are. Out: the text, or the `Expr`.
dtypes follow from declarations and from the scalar table. Raises GraphError for what does not fit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import get_args

from compiler_core.dtype import DType, by_name
from compiler_core.errors import GraphError
from compiler_core.loop_ir import expr as x
from compiler_core.meta import Size
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Data, Div, Index, Mod, Scalar, Variable
from compiler_core.symbolic.index_text import in_python, name_of, not_an_index, read_index, show_index

_NUMBERS = {"nan": float("nan"), "inf": float("inf"), "True": True, "False": False}
_COMPARES: Mapping[str, x.CompareOp] = {f"index_{op}": op for op in get_args(x.CompareOp)}


@dataclass(frozen=True)
class ExprPrinter:
    """buffer: what a value is called; variable: what an axis or scalar is."""

    buffer: Callable[[str], str] = str
    variable: Callable[[Variable], str] = name_of

    def text(self, expr: x.Expr) -> str:
        """One expression."""
        match expr:
            case x.Const(value, dtype):
                parts = f"{value.real!r}, {value.imag!r}" if dtype.is_complex else repr(value)
                return f"{dtype.short}({parts})"
            case x.Var(name, _):
                return name
            case x.Load(buffer, index, _):
                return f"{self.buffer(buffer)}[{self.index(index)}]"
            case x.IndexValue(index, dtype):
                return f"index_value({self.index(index)}, {dtype.short})"
            case x.IndexCompare(op, left, right, _):
                return f"index_{op}({self.index(left)}, {self.index(right)})"
            case x.ScalarCall(scalar, args, _):
                return f"{scalar}({', '.join(map(self.text, args))})"
            case x.Cast(arg, dtype):
                return f"cast({self.text(arg)}, {dtype.short})"
            case x.Where(cond, then, other):
                return f"where({self.text(cond)}, {self.text(then)}, {self.text(other)})"

    def index(self, index: Index) -> str:
        return show_index(index, self._atom, self.variable)

    def _atom(self, atom: Data | Div | Mod, coefficient: Size) -> str:
        if not isinstance(atom, Data):
            return in_python(atom, self.index(atom.arg), coefficient)
        checked = f", {atom.low}, {atom.high}, {atom.message!r}" if atom.message else ""
        return f"data({self.text(atom.value)}{checked})"


def parsed(text: str) -> ast.expr:
    """Python's tree of an expression."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise GraphError("not an expression of the loop IR", got=text) from error


@dataclass
class ExprReader:
    """dtypes of the arrays and scalars that an expression may name, and its axes."""

    arrays: dict[str, DType] = field(default_factory=dict)
    scalars: dict[str, DType] = field(default_factory=dict)
    axes: dict[str, Axis] = field(default_factory=dict)

    def index(self, text: str) -> Index:
        return self.index_of(parsed(text))

    def expr(self, text: str) -> x.Expr:
        return self.expr_of(parsed(text))

    def index_of(self, tree: ast.expr) -> Index:
        return read_index(tree, self._atom)

    def _atom(self, tree: ast.Name | ast.Call) -> Axis | Scalar | Data:
        match tree:
            case ast.Name(id=name):
                return self.axes.get(name) or Scalar(name)
            case ast.Call(func=ast.Name(id="data"), args=[value]):
                return Data(self.expr_of(value))
            case ast.Call(func=ast.Name(id="data"), args=[value, *checked]) if len(checked) == 3:
                return Data(self.expr_of(value), *map(ast.literal_eval, checked))
        raise not_an_index(tree)

    def expr_of(self, tree: ast.expr) -> x.Expr:
        match tree:
            case ast.Name(id=name) if name in self.scalars:
                return x.Var(name, self.scalars[name])
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in self.arrays:
                return x.Load(name, self.index_of(index), self.arrays[name])
            case ast.Call(func=ast.Name(id=function), args=args):
                return self._call(function, args)
        raise GraphError("not an expression of the loop IR, or an undeclared name", got=ast.unparse(tree))

    def _call(self, function: str, args: Sequence[ast.expr]) -> x.Expr:
        if function in _COMPARES:
            left, right = map(self.index_of, args)
            return x.IndexCompare(_COMPARES[function], left, right)
        if function == "index_value":
            return x.IndexValue(self.index_of(args[0]), by_name(ast.unparse(args[1])))
        if function == "cast":
            return x.Cast(self.expr_of(args[0]), by_name(ast.unparse(args[1])))
        if function == "where":
            cond, then, other = map(self.expr_of, args)
            return x.Where(cond, then, other)
        if function in x.SCALARS:
            operands = tuple(map(self.expr_of, args))
            return x.ScalarCall(function, operands, x.SCALARS[function].result_dtype(operands[0].dtype))
        dtype = by_name(function)
        numbers = [_read_number(ast.unparse(arg)) for arg in args]
        return x.Const(complex(*numbers) if len(numbers) == 2 else numbers[0], dtype)


def _read_number(text: str) -> bool | int | float:
    negative = text.startswith("-")
    word = text.lstrip("-")
    value = _NUMBERS[word] if word in _NUMBERS else ast.literal_eval(word)
    return -value if negative else value
