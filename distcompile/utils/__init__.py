"""torch.utils' path to `data`, so that swapped imports find it: `from distcompile.utils.data import DataLoader`.

In: nothing. Out: `distcompile.utils.data`, loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "data":
        return importlib.import_module("distcompile.utils.data")
    raise AttributeError(f"module 'distcompile.utils' has no attribute {name!r}")
