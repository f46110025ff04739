"""Modules of accelerators that are never here: torch.xpu, torch.mps, torch.mtia. They answer as torch does without one.

In: a device type, its questions and answers, what else its module has. Out: `__all__` and `__getattr__` of the module.
Questions are answered: none is available, none is counted, 0 bytes are allocated, seeds are taken for none. All else
raises NoGPUError, which is what torch raises too (a RuntimeError, an AssertionError).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from distcompile.errors import NoGPUError

COUNTS: dict[str, Any] = {
    "is_available": False, "is_initialized": False, "is_bf16_supported": False, "device_count": 0,
    "memory_allocated": 0, "max_memory_allocated": 0,
    "manual_seed": None, "manual_seed_all": None, "seed": None, "seed_all": None,
}  # fmt: skip


def absent(kind: str, answers: dict[str, Any], refused: str) -> tuple[list[str], Callable[[str], Any]]:
    """(names, __getattr__) of a module: functions that answer, and functions that refuse."""
    names = [*answers, *refused.split()]

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module 'distcompile.{kind}' has no attribute {name!r}")
        return _answering(name, answers[name]) if name in answers else _refusing(kind, name)

    return sorted(names), find


def _answering(name: str, answer: Any) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        return type(answer)() if isinstance(answer, (list, dict)) else answer

    ask.__name__, ask.__doc__ = name, f"{answer!r}: there is no such device."
    return ask


def _refusing(kind: str, name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NoGPUError(f"{kind}.{name}: there are no {kind.upper()} devices", remedy=f"ask {kind}.is_available()")

    refuse.__name__, refuse.__doc__ = name, "Raises NoGPUError."
    return refuse
