"""Where ints and slices of an index stand in a dim, of ints and of sizes that are symbols.

In: a slice or an int, and the size of its dim. Out: places from the start, clipped as Python clips them. A symbol is
asked only what its range does not say: `x[:, -1]` and `x[:, 1:]` assume nothing of a dim of 2 or more.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from compiler_core.errors import IndexError_
from compiler_core.meta import as_size
from compiler_core.ops.registry import Value
from compiler_core.symbolic.expression import Sym


def clip(entry: slice, n: int) -> tuple[int, int, int]:
    """(start, stop, step) of a Python slice of n elements, with an empty one spelt start:start."""
    if type(n) is not int or type(entry.start) is Sym or type(entry.stop) is Sym:
        return _clip_symbols(entry, n)
    start, stop, step = entry.indices(n)
    if not len(range(start, stop, step)):
        return (0, 0, 1)
    return start, stop, step


def _clip_symbols(entry: slice, n: int) -> tuple[int, int, int]:
    """The same of sizes that are symbols; one that goes backwards makes them constants."""
    step = 1 if entry.step is None else entry.step
    if step < 0:
        return clip(slice(*map(_fixed, (entry.start, entry.stop, step))), index(n))
    start, stop = _end(entry.start, 0, n), _end(entry.stop, n, n)
    return start, stop if start <= stop else start, step


def _end(end: int | None, default: int, n: int) -> int:
    """Where one end of a slice of n elements is."""
    if end is None:
        return default
    end = as_size(end)
    if end < 0:
        return end + n if end + n >= 0 else 0
    return end if end <= n else n


def _fixed(end: int | None) -> int | None:
    return None if end is None else index(end)


def check_int(index: int, n: int) -> int:
    """The place that `index`, which may count from the end, is in a dim of n elements. Raises IndexError_."""
    if not -n <= index < n:
        raise IndexError_(f"index {index} is out of range", expected=f"{-n} <= index < {n}", got=str(index))
    return index + n if index < 0 else index


def as_given(size: int, op: Callable[..., Value], *operands: Any) -> Value:
    """`op` of indices to which `size` was added where they were negative: its error names the index as it was given.

    size: 0 if it was added to none.
    """
    try:
        return op(*operands)
    except IndexError_ as error:
        place = int(error.got) if error.got.startswith("-") else 0
        if not place or not size:
            raise
        what = f"{error.what.partition(':')[0]}: index {place - size} is out of range"
        raise IndexError_(what, expected=f"{-size} <= index < {size}", got=str(place - size)) from None
