"""Numbers computed of sizes: n as a float, a / b, 1 / sqrt(n); and tables of them.

In: sizes and numbers. Out: a float; where a size is a symbol, what gives that float in a call: the symbol itself, or
a 0-d float64 value that ops compute of it, which round as Python's floats do. So no hint gets into a graph as data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from compiler_core import dtype as dt
from compiler_core.ops import prims
from compiler_core.ops.registry import Value, use_trace
from compiler_core.symbolic.size import Sym, symbols_in


def as_float(n: Any) -> Any:
    """n as a number that is not whole: a symbol stays, as what it fills has a dtype."""
    return n if type(n) is Sym else float(n)


def _value(n: Any) -> Value:
    return prims.full((), n, dt.float64) if isinstance(n, int | float | Sym) else n


def quotient(a: Any, b: Any) -> Any:
    """a / b, of numbers, sizes, and what these functions gave."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a / b
    return prims.div(_value(a), _value(b))


def inverse_root(n: Any) -> Any:
    """1 / sqrt(n)."""
    return 1.0 / n**0.5 if isinstance(n, int | float) else quotient(1.0, prims.sqrt(_value(n)))


def less(n: Any, correction: Any) -> Any:
    """max(n - correction, 0): what n elements leave a variance to be divided by."""
    if type(n) is not Sym:
        return max(n - correction, 0.0)
    if correction == int(correction):
        return max(n - int(correction), 0)
    rest = prims.sub(_value(n), _value(correction))
    return prims.maximum(rest, prims.full_like(rest, 0.0))


def as_like(x: Value, number: Any) -> Value:
    """A number, or what these functions gave, as a constant of x's shape and dtype."""
    if isinstance(number, int | float | Sym):
        return prims.full_like(x, number)
    return prims.expand(prims.cast(number, dt.of(x.dtype)), tuple(x.shape))


def of_sizes(make: Callable[..., Any], *sizes: Any) -> Any:
    """make(*sizes), tables that a program reads: of numbers arrays, which are kept; of symbols they are computed in the
    graph. sizes: also numbers, names, and tuples of them."""
    return make(*sizes) if symbols_in(sizes) else _of_numbers(make, *sizes)


@functools.lru_cache(256)
def _of_numbers(make: Callable[..., Any], *sizes: Any) -> Any:
    with use_trace(None):
        return make(*sizes)
