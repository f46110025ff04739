"""Namespaces made of what other modules hold: each public name stands once, in a table by module.

In: {module: "its names that are public"}. Out: name -> what it is; the namespace takes that as its own, and its names
as `__all__`. Editors and type checkers read the same from the `.pyi` beside the namespace's file, which
tests/test_stubs.py compares with it, and writes when asked (`--update-golden`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any


def named_in(table: Mapping[ModuleType, str]) -> dict[str, Any]:
    """What each module of the table has under the names that the table gives."""
    return {name: getattr(module, name) for module, names in table.items() for name in names.split()}


def classes_in(things: Iterable[Any], base: type) -> dict[str, Any]:
    """The classes of a public name, derived from `base`, that the modules among `things` define."""
    return {
        name: found
        for module in things
        if isinstance(module, ModuleType)
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, base)
        if found.__module__ == module.__name__ and not name.startswith("_")
    }
