"""torch.compiler's names: asking whether `compile` is capturing, and keeping functions out of graphs.

In: functions. Out: functions; answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.location import user_location
from compiler_core.ops.registry import current_trace

__all__ = ["allow_in_graph", "compile", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting"]

F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether `compile` is capturing what runs now."""
    return current_trace() is not None


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """Whether a program is being exported: there is no export."""
    return False


def allow_in_graph(fn: F) -> F:
    """`fn`: capture runs through it, whatever it is."""
    return fn


@overload
def disable(fn: F, recursive: bool = True, *, reason: str | None = None) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[F], F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """`fn`, never captured: a compiled function that calls it runs that call eager (under fullgraph=True: GraphBreak).

    Of a Module, a callable that calls it. reason: said in the break. recursive: callees are not captured either way.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)

    @functools.wraps(fn if hasattr(fn, "__name__") else type(fn).__call__)
    def eager(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            name = getattr(fn, "__qualname__", type(fn).__name__)
            raise GraphBreak(f"{name} is kept out of graphs by compiler.disable" + (f": {reason}" if reason else ""),
                             where=user_location(), remedy="call it outside of the compiled function")  # fmt: skip
        return fn(*args, **kwargs)

    return eager
