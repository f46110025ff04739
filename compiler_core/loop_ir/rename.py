"""Statements with other names for the arrays that they touch.

In: a statement and a table of names. Out: the statement; what the table lacks keeps its name. `arrays_of` lists the
names in an order that depends on nothing but the statement's form, so equal forms list what corresponds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from compiler_core.loop_ir.expr import Expr, Load, rebuilt, walk_expr
from compiler_core.loop_ir.ir import Accumulate, Check, Let, Loop, Stmt, Store, walk

Names = Mapping[str, str]


def renamed(stmt: Stmt, names: Names) -> Stmt:
    """`stmt` with the arrays of `names` under their new names."""
    match stmt:
        case Loop():
            return replace(stmt, body=tuple(renamed(inner, names) for inner in stmt.body))
        case Store():
            return replace(stmt, buffer=names.get(stmt.buffer, stmt.buffer), value=_expr(stmt.value, names))
        case Let() | Accumulate():
            return replace(stmt, value=_expr(stmt.value, names))
        case Check():
            return replace(stmt, condition=_expr(stmt.condition, names))
        case _:
            return stmt


def _expr(expr: Expr, names: Names) -> Expr:
    if isinstance(expr, Load):
        return replace(expr, buffer=names.get(expr.buffer, expr.buffer))
    return rebuilt(expr, lambda part: _expr(part, names), lambda index: index)


def arrays_of(stmt: Stmt) -> list[str]:
    """The arrays that `stmt` touches, with repeats."""
    return [name for inner in walk((stmt,)) for name in _touched(inner)]


def written_by(stmt: Stmt) -> set[str]:
    """The arrays that `stmt` stores to."""
    return {inner.buffer for inner in walk((stmt,)) if isinstance(inner, Store)}


def _touched(stmt: Stmt) -> Iterator[str]:
    match stmt:
        case Store():
            yield stmt.buffer
            yield from _loaded(stmt.value)
        case Let() | Accumulate():
            yield from _loaded(stmt.value)
        case Check():
            yield from _loaded(stmt.condition)


def _loaded(expr: Expr) -> Iterator[str]:
    return (part.buffer for part in walk_expr(expr) if isinstance(part, Load))
