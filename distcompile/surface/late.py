"""Namespaces of functions that are found in the core's table at their first use: torch.special and its like.

In: a namespace's name. Out: its `__all__` and the `__getattr__` of its module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from compiler_core.torch_table import FUNCTIONS


def namespace(prefix: str, extra: dict[str, str] | None = None) -> tuple[list[str], Callable[[str], Any]]:
    """(names, __getattr__) of the functions listed as `prefix.name`. extra: name -> the function of torch it is."""
    own = {name.removeprefix(prefix + ".") for name in FUNCTIONS if name.startswith(prefix + ".")}
    others = extra or {}

    @cache
    def find(name: str) -> Any:
        import distcompile
        from compiler_core.overrides.functions import public_function
        from compiler_core.tensor.torch_names import named

        if name in own:
            return public_function(named(f"{prefix}.{name}"), prefix, name)
        if name in others:
            return public_function(getattr(distcompile, others[name]), prefix, name)
        raise AttributeError(f"module 'distcompile.{prefix}' has no attribute {name!r}")

    return sorted({*own, *others}), find
