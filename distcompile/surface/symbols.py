"""torch.sym_int and its like: arithmetic of sizes that may be symbols. Sizes that Python code sees are numbers here.

In: numbers. Out: numbers, as Python computes them.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum"]

sym_float, sym_sqrt = float, math.sqrt


def sym_int(a: Any) -> int:
    """The whole number towards 0."""
    whole: int = math.trunc(a)
    return whole


def sym_not(a: Any) -> bool:
    """not a."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The larger; a float if one of them is."""
    return type(a + b)(max(a, b))


def sym_min(a: Any, b: Any) -> Any:
    """The smaller; a float if one of them is."""
    return type(a + b)(min(a, b))


def sym_sum(args: Any) -> Any:
    """The sum of a list."""
    return sum(args)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t` if `b`, else `f`."""
    return t if b else f
