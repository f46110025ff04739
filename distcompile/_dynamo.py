"""torch._dynamo's names that model files use: hints to a compiler that needs none of them.

In: tensors, functions. Out: the same.
"""

from __future__ import annotations

from typing import Any

from distcompile.backends import Switches
from distcompile.compiler import allow_in_graph, disable, is_compiling

__all__ = ["allow_in_graph", "config", "disable", "is_compiling", "mark_static_address"]

config = Switches()


def mark_static_address(t: Any, guard: bool = False) -> None:
    """A promise that `t` stays where it is. Nothing here rests on where a tensor lies."""
