"""Expressions of the loop IR as C++, one line of text each.

In: an `Expr`, the printer of its indices, the variables kept in another type than their own. Out: text of the register
type of `expr.dtype`. Invariant: text that holds an operator is parenthesised, so it can stand anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.scalars import Used, emit_scalar
from compiler_core.codegen.cpp.types import is_half, literal, register_type
from compiler_core.dtype import DType, bool_, float32, int64
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.expr import (
    Cast,
    Const,
    Expr,
    IndexCompare,
    IndexValue,
    Load,
    ScalarCall,
    Var,
    Where,
)
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class ExprPrinter:
    """Prints expressions.

    held_as: variable -> the C++ type it is kept in, where that is not its register type.
    from_tiles: loads whose element stands in a local array now, and where.
    """

    index: CppIndexPrinter
    used: Used
    held_as: Mapping[str, str]
    from_tiles: Mapping[Load, str]

    def text(self, expr: Expr) -> str:
        match expr:
            case Const(value, dtype):
                return literal(value, dtype)
            case Var(name, dtype):
                return self._variable(name, dtype)
            case Load(buffer, index, dtype):
                element = self.from_tiles.get(expr) if self.from_tiles else None
                element = element or f"{buffer}[{self.index.text(index)}]"
                return f"({element} != 0)" if dtype is bool_ else element
            case IndexValue(index, dtype):
                return self.convert(f"(int64_t)({self.index.text(index)})", int64, dtype)
            case IndexCompare(op, left, right):
                return self.index.compare(op, left, right)
            case ScalarCall(scalar, args, _):
                return emit_scalar(scalar, args, [self.text(arg) for arg in args], args[0].dtype, self.used)
            case Cast(arg, dtype):
                return self.convert(self.text(arg), arg.dtype, dtype)
            case Where(cond, then, other):
                chosen = f"({self.text(cond)} ? {self.text(then)} : {self.text(other)})"
                is_number = isinstance(then, Const) and isinstance(other, Const) and then.dtype.kind in "iu"
                return f"DC_HIDDEN{chosen}" if is_number else chosen
        raise LoweringError(f"no C++ for the expression {expr!r}")

    def _variable(self, name: str, dtype: DType) -> str:
        if name not in self.held_as:
            return name
        if is_half(dtype):  # an accumulator of a 16-bit float is kept in float
            return self.convert(name, float32, dtype)
        return f"({register_type(dtype)}){name}"

    def convert(self, text: str, source: DType, target: DType) -> str:
        """`text` of dtype `source` as `target`."""
        if source is target:
            return text
        if is_half(source):
            self.used.helpers.add(source.short)
            return self.convert(f"dc_from_{source.short}({text})", float32, target)
        if target is bool_:
            return f"({text} != 0)"
        if source.is_complex and not target.is_complex:
            return self.convert(f"(__real__ {text})", source.real, target)
        if is_half(target):
            self.used.helpers.add(target.short)
            return f"dc_to_{target.short}({self.convert(text, source, float32)})"
        if source is bool_ and target.kind == "f":  # GCC has no vectors of conversions from bool
            return f"({text} ? {literal(1, target)} : {literal(0, target)})"
        if source is bool_:
            return f"DC_HIDDEN(({target.ctype}){text})"
        return f"({target.ctype}){text}"
