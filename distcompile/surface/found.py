"""What stands under a public name: the function of a row of the tables, as it is public there.

In: a row (surface/names.py), a namespace of torch's ("" is torch itself), a name. Out: `found`, the object;
`namespace`, the `__all__` and the `__getattr__` of a module whose names are loaded at first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from compiler_core.names.torch_rows import Row
from compiler_core.overrides.functions import public_function
from compiler_core.tensor.torch_names import public_form
from distcompile.surface.names import NAMES, names_in

_OF_TENSORS = ("compiler_core.ops.", "compiler_core.tensor.")
_CAN_BE_OVERRIDDEN = (*_OF_TENSORS, "distcompile.nn.functional.")


def found(row: Row, space: str, name: str) -> Any:
    """The object that is public under `name` in `space`."""
    value = _value(row, space)
    asks = row.module.startswith(_CAN_BE_OVERRIDDEN) or "asks" in row.kinds
    return public_function(value, space, name, row) if asks and "silent" not in row.kinds else value


def _value(row: Row, space: str) -> Any:
    if row.module.startswith(_OF_TENSORS) and space != "nn.functional":
        return public_form(row)
    module, inner = row.place
    return getattr(importlib.import_module(module), inner)


def namespace(space: str) -> tuple[list[str], Callable[[str], Any]]:
    """(names, __getattr__) of a namespace."""
    names = names_in(space)

    @cache
    def find(name: str) -> Any:
        if name in names:
            return found(NAMES[f"{space}.{name}"], space, name)
        raise AttributeError(f"module 'distcompile.{space}' has no attribute {name!r}")

    return names, find
