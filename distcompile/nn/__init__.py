"""Layers, losses, containers: torch.nn's names.

In: tensors. Out: models.
"""

from __future__ import annotations

from typing import Any

from compiler_core.alive import importing
from compiler_core.births import note as note_births
from compiler_core.names.namespaces import named_in

with importing():  # half a thousand modules
    from distcompile.nn import functional, init, lazy, module, parameter, utils
    from distcompile.nn.layers import LAYERS

_LATE = ("attention", "modules", "parallel")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LATE:
        return importlib.import_module(f"distcompile.nn.{name}")
    if name == "DataParallel":
        return importlib.import_module("distcompile.nn.parallel.data_parallel").DataParallel
    raise AttributeError(f"module 'distcompile.nn' has no attribute {name!r}")


_BASES = {lazy: "UninitializedBuffer UninitializedParameter", module: "Module", parameter: "Buffer Parameter"}
globals().update(named_in(_BASES) | LAYERS)
note_births([*vars().values()])
__all__ = ["DataParallel", "attention", "functional", "init", "modules", "parallel", "utils"]
__all__ += sorted(named_in(_BASES) | LAYERS)
