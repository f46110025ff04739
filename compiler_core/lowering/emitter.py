"""The `e` that an op's lower rule writes expressions with, and how a scalar call is spelt for each dtype.

In: calls from `Indexed.emit` and `Scatter.target`. Out: loop-IR expressions whose indices are Index (see
definition.py). 16-bit floats: every call is cast to f32, computed, and cast back, so generated code never does
arithmetic on them.
"""

from __future__ import annotations

import numpy as np

from compiler_core.dtype import DType, bool_, int64
from compiler_core.errors import LoweringError
from compiler_core.loop_ir import expr as x
from compiler_core.lowering.ranges import Ranges
from compiler_core.symbolic.index import Data, Index, IntLike, as_index, of_data


def cast(expr: x.Expr, dtype: DType) -> x.Expr:
    """`expr` as `dtype`; itself if it is already."""
    if expr.dtype is dtype:
        return expr
    if isinstance(expr, x.Const):
        value = np.asarray(expr.value).astype(expr.dtype.numpy)
        value = value.real if expr.dtype.is_complex and not dtype.is_complex and dtype is not bool_ else value
        return x.Const(value.astype(dtype.numpy).item(), dtype)
    return x.Cast(expr, dtype)


def call(scalar: str, args: tuple[x.Expr, ...]) -> x.Expr:
    """The scalar function on arguments of one dtype, 16-bit floats through f32. Raises LoweringError if unknown."""
    if scalar == "where":
        return x.Where(*args)
    if scalar not in x.SCALARS:
        raise LoweringError(f"scalar function {scalar!r} is not in the loop IR", expected=", ".join(sorted(x.SCALARS)))
    rule = x.SCALARS[scalar]
    operand = args[0].dtype
    compute = operand.compute
    wide = tuple(cast(arg, compute) for arg in args)
    result = x.ScalarCall(scalar, wide, rule.result_dtype(compute))
    return cast(result, operand) if rule.result in ("same", "real") and compute is not operand else result


class Emitter:
    """Constructors of expressions, under the names that ops/rules.py promises. checked: what `check_bounds` gave.

    ranges: what is known of the integers of the graph.
    """

    def __init__(self, ranges: Ranges | None = None) -> None:
        self.checked: list[Data] = []
        self._ranges = ranges or Ranges()

    def const(self, value: bool | int | float | complex, dtype: DType) -> x.Expr:
        return x.Const(np.asarray(value).astype(dtype.numpy).item(), dtype)  # which wraps, as full does

    def call(self, scalar: str, *args: x.Expr) -> x.Expr:
        return call(scalar, args)

    def cast(self, expr: x.Expr, dtype: DType) -> x.Expr:
        return cast(expr, dtype)

    def where(self, cond: x.Expr, then: x.Expr, other: x.Expr) -> x.Expr:
        """Lazy. A condition known from the ranges of the axes is resolved here."""
        if isinstance(cond, x.Const):
            return then if cond.value else other
        return x.Where(cond, then, other)

    def compare(self, op: x.CompareOp, left: IntLike, right: IntLike) -> x.Expr:
        """left OP right on indices; a Const where the ranges of the axes decide."""
        difference = as_index(left) - right
        low, high = difference.bounds
        verdict = _decide(op, low, high)
        if verdict is not None:
            return x.Const(verdict, bool_)
        return x.IndexCompare(op, as_index(left), as_index(right))

    def index_value(self, index: IntLike, dtype: DType) -> x.Expr:
        """An index as data; the value of a bare data index is that data, once checked."""
        return x.IndexValue(as_index(index), dtype)

    def as_index(self, expr: x.Expr) -> Index:
        known = self._ranges.of(expr)
        return of_data(Data(cast(expr, int64)) if known is None else Data(cast(expr, int64), *known))

    def check_bounds(self, index: IntLike, size: int, message: str) -> Index:
        """`index`, which the program checks to lie in [0, size) before it is used."""
        index = as_index(index)
        low, high = index.bounds
        if low >= 0 and high < size:
            return index
        atoms = list(index.terms.items())
        if len(atoms) == 1 and isinstance(atoms[0][0], Data) and atoms[0][1] == 1 and index.const == 0:
            value: object = atoms[0][0].value
        else:
            value = x.IndexValue(index, int64)
        checked = Data(value, 0, max(size - 1, 0), message)
        self.checked.append(checked)
        return of_data(checked)


def with_checks(value: x.Expr, checked: list[Data]) -> x.Expr:
    """`value`, which asks for the checked places that it does not depend on (along dims of one element, or that repeat
    it), or might not once what it loads from is computed in place."""
    loads = [part.index for part in x.walk_expr(value) if isinstance(part, x.Load | x.IndexValue)]
    for atom in checked:
        if atom.high == 0 or not any(atom in index.terms for index in loads):
            value = x.Where(x.IndexCompare("ge", of_data(atom), as_index(0)), value, x.Const(0, value.dtype))
    return value


def _decide(op: x.CompareOp, low: int, high: int) -> bool | None:
    """Whether `d OP 0` holds for every (True), no (False) or some d in [low, high]."""
    always, never = {
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "gt": (low > 0, high <= 0),
        "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0),
    }[op]
    return True if always else False if never else None
