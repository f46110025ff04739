"""torch._dynamo's names that model files use: hints to a compiler that needs none of them.

In: tensors, functions. Out: the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from distcompile.backends import Switches
from distcompile.compiler import allow_in_graph, disable, is_compiling

__all__ = ["allow_in_graph", "assume_constant_result", "config", "disable", "is_compiling", "mark_static_address"]

config = Switches()
F = TypeVar("F", bound=Callable[..., Any])


def assume_constant_result(fn: F) -> F:
    """`fn`: what a function gives that is no tensor is a constant of the graph in any case, read while tracing."""
    return fn


def mark_static_address(t: Any, guard: bool = False) -> None:
    """A promise that `t` stays where it is. Nothing here rests on where a tensor lies."""
