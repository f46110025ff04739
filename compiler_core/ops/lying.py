"""How a function's result lies in memory, where torch's does not lie as what computes it here would say.

In: a function over Values. Out: the same function; Tensors among its results get the strides that torch's have. Arrays
and nodes have none of the user's choosing, and pass as they are. A result that is an operand, or a view of one, stays.
    rows      row-major, and no view of what was computed on the way
    new       row-major, and no view of an operand either: a copy where it would be one
    columns   each matrix column-major, as LAPACK leaves it, if there are as many dims as of the first operand
    images    channels last if the first operand is, else row-major
    signals   the same of [N, C, L], taken for images of one line
    convolved channels last if the first or the second operand is; `convolved signals` if the second is
    joined    channels last if all operands are
    first     in the order of the first operand
    alike     elementwise: by the rule of torch's TensorIterator
    attended  of queries, keys and values: as the queries, or row-major
    function  elementwise too, of operands with the strides that it makes of the operands' own
The rules themselves: compiler_core/tensor/memory/layout.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from compiler_core.ops.aliasing import Strides

F = TypeVar("F", bound=Callable[..., Any])
Rule: TypeAlias = str | Callable[[list[Strides]], list[Strides]]


def lies(rule: Rule) -> Callable[[F], F]:
    """Declares by which rule the results of a function lie."""

    def declare(function: F) -> F:
        @functools.wraps(function)
        def lying(*args: Any, **kwargs: Any) -> Any:
            return as_told(rule, function(*args, **kwargs), (*args, *kwargs.values()))

        return lying  # type: ignore[return-value]

    return declare


def as_told(rule: Rule, result: Any, operands: tuple[Any, ...]) -> Any:
    """`result`, or each of a tuple's, lying by that rule."""
    lay = getattr(type(result), "__lay__", None)
    if lay is not None:
        return lay(result, rule, operands)
    if isinstance(result, tuple):
        made = [as_told(rule, part, operands) for part in result]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)
    return result
