"""Which values need no digits near 0: those that are only added to something larger.

In: the statements of a kernel. Out: `coarse(body)`: the names of Lets, each the tanh or erf of something, whose
relative error near 0 nobody sees, since every reader adds a number of at least a half to it, or to its square. So
gelu's (1 + tanh) and (1 + erf) take formulas that are good to 1e-7 everywhere, and to no digit at 1e-7: half the
instructions of those that are, and less.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler_core.codegen.triton.sections import expressions
from compiler_core.dtype import float32
from compiler_core.loop_ir.expr import Const, Expr, ScalarCall, Var, children, walk_expr
from compiler_core.loop_ir.ir import Let, Stmt, walk


def coarse(body: tuple[Stmt, ...]) -> set[str]:
    """The names, of float32 values."""
    return {let.name for let in _lets(body) if _has_quick(let.value) and _only_added_to(body, let.name)}


def _lets(body: tuple[Stmt, ...]) -> Iterator[Let]:
    return (stmt for stmt in walk(body) if isinstance(stmt, Let))


def _has_quick(value: Expr) -> bool:
    return isinstance(value, ScalarCall) and value.scalar in ("tanh", "erf") and value.dtype is float32


def _only_added_to(body: tuple[Stmt, ...], name: str) -> bool:
    """Whether all that is done with scalar `name` is to add a constant that dwarfs its error; or with its square."""
    squares = {let.name for let in _lets(body) if _is_square(let.value, name)}
    return all(
        _adds(part) or (_is_square(part, name) and let is not None and let.name in squares)
        for let, part in _readers(body, name)
    ) and all(_only_added_to(body, square) for square in squares)


def _readers(body: tuple[Stmt, ...], name: str) -> Iterator[tuple[Let | None, Expr | None]]:
    """Of every mention of `name`: the Let whose whole value holds it directly, if it is one, and the expression."""
    for stmt in walk(body):
        for value in expressions(stmt):
            if isinstance(value, Var) and value.name == name:
                yield None, None
            for part in walk_expr(value):
                if any(isinstance(child, Var) and child.name == name for child in children(part)):
                    yield (stmt if isinstance(stmt, Let) and part is value else None), part


def _is_square(value: Expr | None, name: str) -> bool:
    return (
        isinstance(value, ScalarCall)
        and value.scalar == "mul"
        and all(isinstance(arg, Var) and arg.name == name for arg in value.args)
    )


def _adds(value: Expr | None) -> bool:
    return (
        isinstance(value, ScalarCall)
        and value.scalar in ("add", "sub")
        and any(isinstance(arg, Const) and abs(arg.value) >= 0.5 for arg in value.args)
    )
