"""Index expressions as text and as Python functions.

In: sympy integer expressions over symbols, with FloorDiv and FloorMod. Out: `show_index` (Python syntax, terms ordered
by sympy), `read_index` (its inverse, from a Python AST), `compile_index` (a function of a mapping name -> int or
integer array).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import sympy

from compiler_core.errors import GraphError
from compiler_core.symbolic.functions import FloorDiv, FloorMod, integer_symbol


@cache
def show_index(index: sympy.Expr) -> str:
    """`128*i0 + i1`, `(i0 + 1)//4`, `i0%3`."""
    if index.is_Add:
        text = " + ".join(show_index(term) for term in sorted(index.args, key=_place))
        return text.replace("+ -", "- ")
    if index.is_Mul:
        text = "*".join(_show_factor(factor) for factor in index.args)
        return f"-{text[3:]}" if text.startswith("-1*") else text
    if isinstance(index, FloorDiv | FloorMod):
        x, n = index.args
        return f"{_show_factor(x)}{'//' if isinstance(index, FloorDiv) else '%'}{_show_factor(n)}"
    if index.is_Symbol or index.is_Integer:
        return str(index)
    raise GraphError(f"{index} is not an index expression", got=type(index).__name__)


def _place(term: sympy.Expr) -> tuple[bool, int, str]:
    """Outer axes first: by falling coefficient, then by text; a number last."""
    coefficient, rest = term.as_coeff_Mul()
    return bool(term.is_Integer), -abs(int(coefficient)), show_index(rest)


def _show_factor(index: sympy.Expr) -> str:
    text = show_index(index)
    return text if index.is_Symbol or index.is_Integer else f"({text})"


def read_index(tree: ast.expr) -> sympy.Expr:
    """The index that a parsed Python expression spells. Raises GraphError for anything else."""
    match tree:
        case ast.Constant(value=int(value)):
            return sympy.Integer(value)
        case ast.Name(id=name):
            return integer_symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -read_index(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](read_index(left), read_index(right))
    raise GraphError(f"{ast.unparse(tree)!r} is not an index expression", expected="+ - * // % over names and integers")


_OPERATORS: dict[type[ast.operator], Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: FloorDiv,
    ast.Mod: FloorMod,
}


@cache
def compile_index(index: sympy.Expr) -> Callable[[Mapping[str, Any]], Any]:
    """A function from values of the names in `index` (ints or integer arrays) to its value."""
    code = compile(show_index(index), "<index>", "eval")
    return lambda names: eval(code, {"__builtins__": {}}, names)
