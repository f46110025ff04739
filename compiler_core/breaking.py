"""`breaks_graph`, `between_graphs`, `unbroken`: decorators for our functions that no graph can hold, or none in part.

In: a function. Out: the same. Where captured code calls it, the graph breaks, and the call is made as it is; of one
that is `unbroken`, only if something in it breaks the graph. `ends_in`: of functions that have another way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

from compiler_core.errors import GraphBreak, GraphSeam
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace

F = TypeVar("F", bound=Callable[..., Any])
UNBROKEN: set[CodeType] = set()  # of functions in which no graph may end: it ends before their call

# of functions that can do otherwise where a graph ended in them: asked, with their arguments, whether they will now
ENDED_IN: dict[CodeType, Callable[..., bool]] = {}


class Otherwise:
    """count: how often one said that it will."""

    count = 0


def ends_in(code: CodeType, *arguments: Any) -> bool:
    """A graph has ended in a call of the function of this code. Whether it does otherwise when it is captured again."""
    asked = ENDED_IN.get(code)
    will = asked is not None and asked(*arguments)
    Otherwise.count += will
    return will


def unbroken(function: F) -> F:
    """A function that is captured whole or not at all: what it makes of tensors in between means nothing outside."""
    UNBROKEN.add(function.__code__)
    return function


def copied_from(function: Callable[..., Any]) -> tuple[str, ...]:
    """`updated` for functools.wraps: attributes of a function go along; a module's tables stay its own."""
    return functools.WRAPPER_UPDATES if isinstance(function, FunctionType) else ()


def between_graphs(reason: str) -> Callable[[F], F]:
    """A function of ours at which a graph ends by design, and behind which another begins. Raises GraphSeam."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def kept_out(*args: Any, **kwargs: Any) -> Any:
            if current_trace() is not None:
                raise GraphSeam(reason, where=user_location())
            return function(*args, **kwargs)

        kept_out.__graph_break__ = reason, "", False, True  # type: ignore[attr-defined]
        return kept_out  # type: ignore[return-value]

    return decorate


def breaks_graph(reason: str, remedy: str = "") -> Callable[[F], F]:
    """reason: what the function is, as a sentence of the break. Raises GraphBreak while something is traced."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def kept_out(*args: Any, **kwargs: Any) -> Any:
            if current_trace() is not None:
                raise GraphBreak(reason, where=user_location(), remedy=remedy)
            return function(*args, **kwargs)

        kept_out.__graph_break__ = reason, remedy  # type: ignore[attr-defined]
        return kept_out  # type: ignore[return-value]

    return decorate
