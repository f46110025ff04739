"""torch.utils' submodules, so that swapped imports find them: `from distcompile.utils.data import DataLoader`.

In: nothing. Out: the submodules, loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_SUBMODULES = """
_pytree benchmark checkpoint collect_env data dlpack flop_counter hooks model_zoo module_tracker tensorboard
"""


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES.split():
        return importlib.import_module(f"distcompile.utils.{name}")
    if name == "swap_tensors":
        return importlib.import_module("distcompile.utils.swapping").swap_tensors
    raise AttributeError(f"module 'distcompile.utils' has no attribute {name!r}")
