"""torch.cuda's questions, answered: there is no GPU here yet. Scripts that ask first run on the CPU.

In: nothing. Out: "no".
"""

from __future__ import annotations

import importlib
from typing import Any

from distcompile.errors import NotSupportedError


def is_available() -> bool:
    """Whether a GPU can be used: not yet."""
    return False


def device_count() -> int:
    """The number of GPUs that can be used."""
    return 0


def manual_seed(seed: int) -> None:
    """Seed the GPUs' generators: there are none."""


def manual_seed_all(seed: int) -> None:
    """Seed the GPUs' generators: there are none."""


def empty_cache() -> None:
    """Give back what a GPU's allocator keeps: nothing."""


def synchronize(device: object = None) -> None:
    """Wait for a GPU. Raises NotSupportedError, as torch's raises without one."""
    raise NotSupportedError("cuda.synchronize() needs a GPU, and there is none here", remedy="ask cuda.is_available()")


def is_initialized() -> bool:
    """Whether a GPU is in use."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether GPUs compute in bfloat16: there are none."""
    return False


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("distcompile.cuda.amp")
    raise AttributeError(f"module 'distcompile.cuda' has no attribute {name!r}")
