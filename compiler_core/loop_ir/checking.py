"""Which checks of a loop are about values alone, so that what stands behind them may run though they fail.

In: a Check and the body that it stands in. Out: whether nothing in the body reads or writes at a place that depends on
what is checked. An index that was read from data is such a place: behind its check it lies inside its buffer, before it
anywhere. `require` checks values (probabilities, a range that is finite): what is computed of those that fail is
thrown away with the program's results.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir


def is_of_values(check: ir.Check, body: tuple[ir.Stmt, ...]) -> bool:
    """See the head of this file."""
    asked = _scalars(check.condition)
    for stmt in body:
        if isinstance(stmt, ir.Let) and not asked.isdisjoint(_scalars(stmt.value)):
            asked.add(stmt.name)
    return all(asked.isdisjoint(places) for stmt in body for places in _places(stmt))


def _scalars(expr: x.Expr) -> set[str]:
    """What it is made of: scalars, and what is compared as a place; not where it is loaded from."""
    found: set[str] = set()
    for part in x.walk_expr(expr):
        match part:
            case x.Var(name):
                found.add(name)
            case x.IndexValue(index):
                found |= index.names
            case x.IndexCompare(_, left, right):
                found |= left.names | right.names
    return found


def _places(stmt: ir.Stmt) -> Iterator[set[str]]:
    """What the places that a statement touches are made of."""
    if isinstance(stmt, ir.Store):
        yield stmt.index.names
    read = stmt.condition if isinstance(stmt, ir.Check) else getattr(stmt, "value", None)
    if read is not None:
        yield from (part.index.names for part in x.walk_expr(read) if isinstance(part, x.Load))
