"""Integer division and remainder as sympy functions: the only non-affine pieces of an index expression.

In: sympy integer expressions. Out: `FloorDiv(x, n)` and `FloorMod(x, n)`, both rounding towards minus infinity, as
Python does. They do not simplify beyond integer arguments: `symbolic/affine.py` simplifies with ranges before an index
becomes sympy (sympy's own `floor` and `Mod` try to, slowly, and know nothing of ranges).
"""

from __future__ import annotations

from functools import cache

import sympy


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """x // n for integers, n > 0."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, x: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
        if x.is_Integer and n.is_Integer:
            return sympy.Integer(int(x) // int(n))
        return None


class FloorMod(sympy.Function):  # type: ignore[misc]
    """x % n for integers, n > 0; the result lies in [0, n)."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, x: sympy.Expr, n: sympy.Expr) -> sympy.Expr | None:
        if x.is_Integer and n.is_Integer:
            return sympy.Integer(int(x) % int(n))
        return None


@cache
def integer_symbol(name: str) -> sympy.Symbol:
    """The integer symbol called `name`: one object for every axis or Let of that name."""
    return sympy.Symbol(name, integer=True)
