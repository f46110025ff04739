"""Small questions that model files ask torch itself: an assertion, a type's name.

In: anything. Out: nothing, or an AssertionError; a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.tensor.tensor import Tensor


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`."""
    if not condition:
        raise AssertionError(message)


def _check(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises a RuntimeError with `message`, or what it returns, unless `cond`."""
    if not cond:
        text = message() if callable(message) else message
        raise RuntimeError(text or "Expected cond to be True, but got False.")


def typename(obj: Any) -> str:
    """A tensor's type as `type()` gives it, else the class with its module."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"
