"""torch.cpu's questions, answered: there is one CPU, and what runs on it is done when the call returns.

In: nothing. Out: what torch.cpu answers.
"""

from __future__ import annotations

import importlib
from typing import Any


def is_available() -> bool:
    """Whether the CPU can be used."""
    return True


def device_count() -> int:
    """The number of CPUs, as torch counts them."""
    return 1


def current_device() -> str:
    """The CPU."""
    return "cpu"


def synchronize(device: object = None) -> None:
    """Wait for the CPU: nothing is left running."""


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("distcompile.cpu.amp")
    raise AttributeError(f"module 'distcompile.cpu' has no attribute {name!r}")
