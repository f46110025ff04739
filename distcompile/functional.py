"""torch.functional: those of torch's functions that are written in Python in torch. The same objects as torch's.

In: Tensors. Out: Tensors.
"""

from __future__ import annotations

from typing import Any

from distcompile.surface.names import NAMES, TOP

__all__ = [name for name in TOP if "functional" in NAMES[name].kinds]


def __getattr__(name: str) -> Any:
    import distcompile

    if name in __all__:
        return getattr(distcompile, name)
    raise AttributeError(f"module 'distcompile.functional' has no attribute {name!r}")
