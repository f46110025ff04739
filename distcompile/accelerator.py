"""torch.accelerator: the devices beside the CPU, which are those of CUDA. Where there is none, scripts run on the CPU.

In: devices, or nothing. Out: what distcompile.cuda says; NoGPUError from what torch refuses without one too.
"""

from __future__ import annotations

from typing import Any

from compiler_core.device import Device
from distcompile import cuda
from distcompile.errors import NoGPUError

__all__ = ["current_accelerator", "device_count", "is_available"]


def is_available() -> bool:
    """Whether an accelerator can be used."""
    return cuda.is_available()


def device_count() -> int:
    """How many can be used."""
    return cuda.device_count()


def current_accelerator(check_available: bool = False) -> Device | None:
    """The accelerator's device, without a number; None where there is none."""
    return Device("cuda") if cuda.is_available() else None


_NAMES = {
    "current_device_index": "current_device", "current_device_idx": "current_device", "set_device_index": "set_device",
    "set_device_idx": "set_device", "synchronize": "synchronize", "current_stream": "current_stream",
    "set_stream": "set_stream", "empty_cache": "empty_cache", "memory_allocated": "memory_allocated",
    "max_memory_allocated": "max_memory_allocated", "memory_reserved": "memory_reserved",
    "max_memory_reserved": "max_memory_reserved", "memory_stats": "memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats", "get_memory_info": "mem_get_info",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'distcompile.accelerator' has no attribute {name!r}")

    def function(*args: Any, **kwargs: Any) -> Any:
        if not cuda.is_available():
            raise NoGPUError(
                "Cannot access accelerator device when none is available.", remedy="ask accelerator.is_available()"
            )
        return getattr(cuda, _NAMES[name])(*args, **kwargs)

    function.__name__, function.__doc__ = name, f"As cuda.{_NAMES[name]}. Raises NoGPUError."
    return function
