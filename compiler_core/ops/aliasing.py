"""How a view shows its operand's memory: what a view op's block says of it, and the arithmetic of strides.

In: shapes and strides, in elements. Out: `Alias`, the field of Op; strides of reshaped and of contiguous arrays.
Strides are logical, those torch would report for views of a contiguous storage: they answer `is_contiguous`, `stride`,
`storage_offset`, and whether `reshape` aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from compiler_core.meta import Shape, same_shape
from compiler_core.records import dataclass

Strides: TypeAlias = tuple[int, ...]


def _at_the_start(in_strides: Strides, **attrs: Any) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Alias:
    """Says that the result shares operand 0's memory, as torch's does.

    scatter(base, new, **attrs): base with the elements that the view shows replaced by `new`, written with other ops;
    raises ShapeError where several elements of the view are one memory location. strides(in_shape, in_strides, **attrs)
    and offset(in_strides, **attrs): where the view's elements lie. None for strides: this operand is copied instead,
    which is asked only of ops that `may_copy`. keeps_order: of a contiguous operand the view is contiguous too.
    reorders: the dims may lie in another order than the operand's.
    parts: (how many elements of the view, in how many of the operand) make the same bytes, but for 1 in 1; or what
    gives that for the attributes.
    """

    scatter: Callable[..., Any]
    strides: Callable[..., Strides | None]
    offset: Callable[..., int] = _at_the_start
    keeps_order: bool = False
    reorders: bool = False
    may_copy: bool = False
    parts: tuple[int, int] | Callable[..., tuple[int, int]] = (1, 1)


def contiguous_strides(shape: Shape) -> Strides:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def reshaped_strides(shape: Shape, strides: Strides, new_shape: Shape) -> Strides | None:
    """The strides with which `new_shape` shows the same memory, or None if none do (torch's computeStride)."""
    are_numbers = _NUMBERS.issuperset(map(type, (*shape, *strides, *new_shape)))
    return (_reshaped if are_numbers else _reshaped.__wrapped__)(shape, strides, new_shape)


_NUMBERS = frozenset((int,))  # symbols are asked each time


@lru_cache(1 << 12)
def _reshaped(shape: Shape, strides: Strides, new_shape: Shape) -> Strides | None:
    if same_shape(new_shape, shape):
        return strides
    if 0 in shape:
        return contiguous_strides(new_shape)
    groups = _dense_groups(shape, strides)
    result: list[int] = []
    for size in reversed(new_shape):
        while groups and groups[-1][0] == 1 and size != 1:
            groups.pop()
        if not groups:
            result.append(result[-1] if result else 1)
            continue
        left, step = groups[-1]
        if left % size:
            return None
        result.append(step)
        groups[-1] = (left // size, step * size)
    return tuple(reversed(result))


def _dense_groups(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """(elements, innermost stride) of each run of dimensions that lie densely in one another, outermost first."""
    groups: list[tuple[int, int]] = []
    for size, step in zip(shape, strides):
        if size == 1:
            continue
        if groups and groups[-1][1] == size * step:
            groups[-1] = (groups[-1][0] * size, step)
        else:
            groups.append((size, step))
    return groups


def is_contiguous(shape: Shape, strides: Strides) -> bool:
    """Whether the elements lie in row-major order without gaps; no elements do."""
    if 0 in shape:
        return True
    expected = 1
    for size, step in zip(reversed(shape), reversed(strides)):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True
