"""Functions that torch has for one, two and three spatial dims, of one that takes their number first.

In: `conv_nd(rank, input, weight, ...)`. Out: `conv1d(input, weight, ...)`, with the rest of its arguments, defaults and
annotations, to Python (`inspect.signature`) and to type checkers. In the family's docstring {n}, {k} and {o} stand for
the sizes of the input, the kernel and the output. A call that does not fit is a TypeError that names `conv1d`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
SIZES = {
    1: {"n": "L", "k": "K", "o": "o"},
    2: {"n": "H, W", "k": "kH, kW", "o": "oH, oW"},
    3: {"n": "D, H, W", "k": "kD, kH, kW", "o": "oD, oH, oW"},
}


def at_rank(rank: int, family: Callable[Concatenate[int, P], R]) -> Callable[P, R]:
    """`family`, whose name has an `_nd` in it, of so many spatial dims."""
    name = family.__name__.strip("_").replace("_nd", f"{rank}d")
    signature = inspect.signature(family)
    first, *rest = signature.parameters.values()

    @functools.wraps(family)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return family(rank, *args, **kwargs)
        except TypeError:
            check_fit(name, function, args, kwargs)
            raise

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (family.__doc__ or "").format(**SIZES[rank])
    function.__annotations__ = {key: hint for key, hint in family.__annotations__.items() if key != first.name}
    function.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
    return function


def check_fit(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises the TypeError of a call that does not fit, told of `name`: Python's own names the family."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
