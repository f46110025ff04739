"""Scalar expressions of the loop IR, and the table of scalar functions they may call.

    Expr := Const(value, dtype) | Var(NAME, dtype) | Load(BUFFER, Index, dtype) | IndexValue(Index, dtype)
          | IndexCompare(op, Index, Index)        bool; op: lt le gt ge eq ne, on integers
          | ScalarCall(SCALAR, Expr*, dtype) | Cast(Expr, dtype) | Where(Expr, Expr, Expr)

In: nothing. Out: the classes, and `SCALARS`: name -> arity, result dtype, cost, and the NumPy function that defines it
(scalars.py), which the interpreter runs. A code generator has a table over the same names: how it writes each.
Index: symbolic/index.py. In a kernel it holds no Data.

Invariants: the arguments of a ScalarCall have one dtype (`philox`: u64; `normal32`, `normal64`: u32). It is never f16
or bf16: these are cast to f32 and back by Casts, so that rounding happens where the text shows it. `Where` evaluates
only the side that it takes: the other may load out of bounds. Integer arithmetic wraps. Casts follow C for values in
range; from float to integer they truncate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

from compiler_core.dtype import DType, bool_, float32, float64, uint32
from compiler_core.loop_ir.scalars import TABLE
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Index

CompareOp = Literal["lt", "le", "gt", "ge", "eq", "ne"]


@dataclass(frozen=True, slots=True)
class Const:
    """A literal; floats, and the parts of complex numbers, may be nan and ±inf. 0.0 and -0.0 are two."""

    value: bool | int | float | complex
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if type(other) is not Const or self.dtype is not other.dtype or self.value != other.value:
            return False
        return bool(self.value) or str(self.value) == str(other.value)

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))


@dataclass(frozen=True, slots=True)
class Var:
    """A Let, or an Accumulator after its loop (i64 for argmax and argmin)."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Load:
    """buffer[index]: a Param or a Local."""

    buffer: str
    index: Index
    dtype: DType


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index as data."""

    index: Index
    dtype: DType


@dataclass(frozen=True, slots=True)
class IndexCompare:
    """left OP right, on indices."""

    op: CompareOp
    left: Index
    right: Index
    dtype: DType = bool_


@dataclass(frozen=True, slots=True)
class ScalarCall:
    """SCALARS[scalar](*args)."""

    scalar: str
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Cast:
    """arg converted to dtype. To bool: arg != 0."""

    arg: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Where:
    """then if cond else other; lazy."""

    cond: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> DType:
        return self.then.dtype


Expr: TypeAlias = Const | Var | Load | IndexValue | IndexCompare | ScalarCall | Cast | Where


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    if isinstance(expr, ScalarCall):
        return expr.args
    if isinstance(expr, Cast):
        return (expr.arg,)
    return (expr.cond, expr.then, expr.other) if isinstance(expr, Where) else ()


def rebuilt(expr: Expr, part: Callable[[Expr], Expr], index: Callable[[Index], Index]) -> Expr:
    """`expr` with its direct subexpressions and indices mapped."""
    match expr:
        case Load(buffer, at, dtype):
            return Load(buffer, index(at), dtype)
        case IndexValue(at, dtype):
            return IndexValue(index(at), dtype)
        case IndexCompare(op, left, right, dtype):
            return IndexCompare(op, index(left), index(right), dtype)
        case ScalarCall(scalar, args, dtype):
            return ScalarCall(scalar, tuple(part(arg) for arg in args), dtype)
        case Cast(arg, dtype):
            return Cast(part(arg), dtype)
        case Where(cond, then, other):
            return Where(part(cond), part(then), part(other))
    return expr


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """`expr` and everything in it, outer before inner."""
    todo = [expr]
    while todo:
        part = todo.pop()
        yield part
        todo += reversed(children(part))


ResultRule = Literal["same", "bool", "u32", "f32", "f64", "real", "complex"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One scalar function. numpy: on arrays or NumPy scalars. costly: takes many times as long as reading a number.

    result: "same" as its arguments, "bool", "u32", "real" (of complex arguments the dtype of their parts, of others
    theirs), "complex" (that of which the arguments are the parts).
    """

    name: str
    arity: int
    result: ResultRule
    numpy: Callable[..., Any]
    costly: bool = False

    def result_dtype(self, argument: DType) -> DType:
        if self.result in ("real", "complex"):
            return argument.real if self.result == "real" else argument.complex
        return {"same": argument, "bool": bool_, "u32": uint32, "f32": float32, "f64": float64}[self.result]


SCALARS: dict[str, Scalar] = {entry.name: Scalar(*entry) for entry in TABLE}
