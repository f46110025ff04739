"""torch.fx's one name that model files use: `wrap`. There is no symbolic tracer over Modules here; `compile` captures.

In: a function, or its name. Out: the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["wrap"]

F = TypeVar("F", bound="str | Callable[..., object]")


def wrap(fn_or_name: F) -> F:
    """`fn_or_name`: nothing would trace through it."""
    return fn_or_name
