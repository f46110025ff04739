"""torch.accelerator's questions, answered: there is none here. Scripts that ask first run on the CPU.

In: nothing. Out: "no"; NoGPUError from what torch refuses without one too.
"""

from __future__ import annotations

from typing import Any, NoReturn

from compiler_core.device import Device
from distcompile.errors import NoGPUError

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


def _refusing(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NoGPUError(
            "Cannot access accelerator device when none is available.", remedy="ask accelerator.is_available()"
        )

    refuse.__name__, refuse.__doc__ = name, "Raises NoGPUError."
    return refuse


_NEED_ONE = """
current_device_index current_device_idx set_device_index set_device_idx synchronize current_stream set_stream
empty_cache memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_stats
reset_peak_memory_stats get_memory_info
"""


def __getattr__(name: str) -> Any:
    if name in _NEED_ONE.split():
        return _refusing(name)
    raise AttributeError(f"module 'distcompile.accelerator' has no attribute {name!r}")
