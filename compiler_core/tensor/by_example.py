"""Functions that read data, under vmap: once for each example.

In: a function of Tensors that looks at their numbers. Out: the same function; where it is given Tensors that stand for
a batch it is called with each example's, and the results are put together. `of_all` instead shows all examples, for
what may be told from all of them at once. What has a result as long as the data says is `refused_under_vmap`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.errors import BatchError
from compiler_core.log import warn_once
from compiler_core.ops import functional as F
from compiler_core.ops.batching.value import Level, levels_of
from compiler_core.tensor.batching import entered, left
from compiler_core.tensor.tensor import Tensor

Fn = TypeVar("Fn", bound=Callable[..., Any])


def of_all(x: Tensor) -> Tensor:
    """`x` of all examples, of all levels."""
    for level in levels_of(x._cell.raw):
        x = left(x, level, 0)
    return x


def by_example(function: Fn) -> Fn:
    """See the head of this file. Raises BatchError where the results of two examples have not one shape."""

    @functools.wraps(function)
    def each(*args: Any, **kwargs: Any) -> Any:
        batched = [one for x in (*args, *kwargs.values()) for one in _levels(x)]
        if not batched:
            return function(*args, **kwargs)
        level = max(batched, key=lambda one: one.number)
        name = function.__name__
        warn_once(f"vmap.{name}", f"vmap: {name} reads data, and runs once for each example (this is said once)")
        found = []
        for k in range(level.size):
            own = [_row(x, level, k) for x in args]
            found.append(each(*own, **{key: _row(x, level, k) for key, x in kwargs.items()}))
        return _stacked(name, found, level)

    return each  # type: ignore[return-value]


def refused_under_vmap(function: Fn) -> Fn:
    """Of a function whose result is as long as the data says. Raises BatchError where an argument stands for a batch,
    also if the lengths happen to agree: with other data they would not."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if any(_levels(x) for x in (*args, *kwargs.values())):
            name = function.__name__
            raise BatchError(
                f"vmap: It looks like you attempted to use {name}, whose result has another shape for other data "
                "(a dynamic shape). We don't support that under vmap",
                remedy=f"choose with torch.where(condition, a, b), or call {name} outside of the mapped function",
            )
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _levels(x: Any) -> tuple[Level, ...]:
    return levels_of(x._cell.raw) if isinstance(x, Tensor) else ()


def _row(x: Any, level: Level, k: int) -> Any:
    return left(x, level, 0)[k] if level in _levels(x) else x


def _stacked(name: str, found: list[Any], level: Level) -> Any:
    if isinstance(found[0], tuple):
        parts = [_stacked(name, list(column), level) for column in zip(*found, strict=True)]
        return type(found[0])(*parts) if hasattr(found[0], "_fields") else tuple(parts)
    if len({tuple(x.shape) for x in found}) > 1:
        raise BatchError(
            f"vmap: the result of {name} has another shape for each example",
            remedy="give it the size (`minlength`, say), or call it outside of the mapped function",
        )
    return entered(F.stack(found), level, 0)
