"""torch.accelerator's questions, answered: there is none here. Scripts that ask first run on the CPU.

In: nothing. Out: "no".
"""

from __future__ import annotations

from compiler_core.device import Device

__all__ = ["current_accelerator", "device_count", "is_available"]


def is_available() -> bool:
    """Whether an accelerator can be used."""
    return False


def device_count() -> int:
    """How many can be used."""
    return 0


def current_accelerator(check_available: bool = False) -> Device | None:
    """The accelerator's device: None."""
    return None
