"""torch.sym_int and its like: arithmetic of sizes, which the call decides while code is captured.

In: numbers, or sizes (`Sym`). Out: the same, as Python computes them. Whoever needs an order of sizes (`sym_max`) or a
float has it guarded, as everywhere.
"""

from __future__ import annotations

import math
from typing import Any

from compiler_core.symbolic.expression import Sym

__all__ = ["sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum"]

sym_float, sym_sqrt = float, math.sqrt


def sym_int(a: Any) -> Any:
    """The whole number towards 0."""
    return a if isinstance(a, Sym) else math.trunc(a)


def sym_not(a: Any) -> bool:
    """not a."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger; a float if one of them is."""
    return _either(a, b, max(a, b))


def sym_min(a: Any, b: Any) -> Any:
    """The smaller; a float if one of them is."""
    return _either(a, b, min(a, b))


def _either(a: Any, b: Any, found: Any) -> Any:
    return float(found) if isinstance(a, float) or isinstance(b, float) else found


def sym_sum(args: Any) -> Any:
    """The sum of a list."""
    return sum(args)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t` if `b`, else `f`."""
    return t if b else f
