"""Expressions over values -> over params, scratch and scalars; what does not change along a row is hoisted.

In: an expression of a Definition over a kernel's axes (see space.py). Out: the loop-IR expression for one place in the
kernel, and the Lets and Checks that must stand before it. Two places: the row block (once a row, before a stage's
column loop) and the column block (once an element). Invariants: nothing under a Where's condition is hoisted or loaded
unconditionally but what surely lies in its buffer: an index read from data there is guarded by the same condition,
since the side not taken may lie outside.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_core.dtype import DType, bool_, int64
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.lowering import definition as d
from compiler_core.meta import Size
from compiler_core.symbolic.index import Axis, Data, Index, Scalar, of_scalar

Resolve = Callable[[x.Load], x.Expr | None]
_ZERO = x.Const(0, int64)


class Translator:
    """Appends to `row` and `column`, the blocks of the stage at hand; column is None while a row value is translated.

    resolve: what a load of another member of the kernel is, at this place; None for loads from memory.
    param: the name of the parameter that holds a value. numel: elements of a buffer in memory; None of others.
    """

    def __init__(
        self,
        cols: tuple[Axis, ...],
        resolve: Resolve,
        param: Callable[[str], str],
        numel: Callable[[str], Size | None] = lambda buffer: None,
    ) -> None:
        self.cols = set(cols)
        self.resolve, self.param, self.numel = resolve, param, numel
        self.row: list[ir.Stmt] = []
        self.column: list[ir.Stmt] | None = None
        self.n_scalars = 0
        self._hoisted: dict[x.Expr, x.Expr] = {}
        self._in_row: dict[tuple[x.Expr, str], Scalar] = {}
        self._in_column: dict[tuple[x.Expr, x.Expr | None, str], Scalar] = {}
        self._varies: dict[x.Expr, bool] = {}

    def enter(self, row: list[ir.Stmt], column: list[ir.Stmt] | None) -> None:
        """Go on at another place; Lets of an earlier column block are out of scope there."""
        if column is not self.column:
            self._in_column = {}
        self.row, self.column = row, column

    def let(self, block: list[ir.Stmt], value: x.Expr) -> x.Expr:
        """A new scalar; plain variables and constants stay themselves."""
        if isinstance(value, x.Var | x.Const):
            return value
        name = f"t{self.n_scalars}"
        self.n_scalars += 1
        block.append(ir.Let(name, value))
        return x.Var(name, value.dtype)

    def __call__(self, expr: x.Expr, guard: x.Expr | None = None) -> x.Expr:
        """The expression at the current place. guard: the condition under which it is evaluated at all."""
        if self.column is not None and self._hoistable(expr) and (guard is None or self._is_there(expr)):
            return self._hoist(expr)
        match expr:
            case x.Load(buffer, index, dtype):
                known = self.resolve(expr)
                return known if known is not None else x.Load(self.param(buffer), self.index(index, guard), dtype)
            case x.IndexValue(index, dtype):
                return self._index_value(self.index(index, guard), dtype)
            case x.IndexCompare(op, left, right, dtype):
                return x.IndexCompare(op, self.index(left, guard), self.index(right, guard), dtype)
            case x.ScalarCall(scalar, args, dtype):
                return x.ScalarCall(scalar, tuple(self(arg, guard) for arg in args), dtype)
            case x.Cast(arg, dtype):
                return x.Cast(self(arg, guard), dtype)
            case x.Where(cond, then, other):
                condition = self(cond, guard)
                taken = _both(guard, condition)
                untaken = _both(guard, x.ScalarCall("logical_not", (condition,), bool_))
                return x.Where(condition, self(then, taken), self(other, untaken))
        return expr

    def index(self, index: Index, guard: x.Expr | None) -> Index:
        """`index` with every Data replaced by a scalar that holds it."""
        if index.is_linear:
            return index
        return index.substitute({}, lambda atom: of_scalar(self._data(atom, guard)))

    def _index_value(self, index: Index, dtype: DType) -> x.Expr:
        if len(index.terms) == 1 and index.const == 0:
            (atom, coefficient), *_ = index.terms.items()
            if isinstance(atom, Scalar) and coefficient == 1:
                value = x.Var(atom.name, int64)
                return value if dtype is int64 else x.Cast(value, dtype)
        return x.IndexValue(index, dtype)

    def _data(self, atom: Data, guard: x.Expr | None) -> Scalar:
        """The scalar of a data index: computed and checked once, where its value changes."""
        value = d.data_value(atom)
        column = self.column
        if column is not None and (guard is not None or self._depends_on_cols(value)):
            key = (value, guard, atom.message)
            if key not in self._in_column:
                self._in_column[key] = self._load_data(atom, value, guard, column)
            return self._in_column[key]
        if guard is not None:
            return self._load_data(atom, value, guard, self.row)
        place = (value, atom.message)
        if place not in self._in_row:
            self.column = None
            self._in_row[place] = self._load_data(atom, value, None, self.row)
            self.column = column
        return self._in_row[place]

    def _load_data(self, atom: Data, value: x.Expr, guard: x.Expr | None, block: list[ir.Stmt]) -> Scalar:
        """A Let for a data index, and the checks on it."""
        inner = self(value, guard)
        if guard is not None:
            inner = x.Where(guard, inner, _ZERO)
        scalar = Scalar(f"t{self.n_scalars}")
        self.n_scalars += 1
        block.append(ir.Let(scalar.name, inner))
        if atom.message:
            block += _bounds_checks(scalar, atom)
        return scalar

    def _hoistable(self, expr: x.Expr) -> bool:
        return isinstance(expr, x.Load | x.ScalarCall | x.Cast) and not self._depends_on_cols(expr)

    def _is_there(self, expr: x.Expr) -> bool:
        """Whether it is a load that may be made whatever its guard says. A load of a branch of a loop, of what does not
        change in it, is what GCC makes no vectors of."""
        if not isinstance(expr, x.Load) or not expr.index.is_linear:
            return False
        n, (low, high) = self.numel(expr.buffer), expr.index.bounds
        return isinstance(n, int) and isinstance(low, int) and isinstance(high, int) and 0 <= low <= high < n

    def _hoist(self, expr: x.Expr) -> x.Expr:
        if expr not in self._hoisted:
            column, self.column = self.column, None
            value = self(expr)
            self.column = column
            self._hoisted[expr] = self.let(self.row, value)
        return self._hoisted[expr]

    def _depends_on_cols(self, expr: x.Expr) -> bool:
        if expr not in self._varies:
            self._varies[expr] = not self.cols or bool(d.axes_in_expr(expr) & self.cols)
        return self._varies[expr]


def _both(guard: x.Expr | None, condition: x.Expr) -> x.Expr:
    return condition if guard is None else x.Where(guard, condition, x.Const(False, bool_))


def _bounds_checks(scalar: Scalar, atom: Data) -> list[ir.Stmt]:
    place = of_scalar(scalar)
    low = x.IndexCompare("ge", place, Index({}, atom.low))
    high = x.IndexCompare("le", place, Index({}, atom.high))
    return [ir.Check(low, atom.message), ir.Check(high, atom.message)]
