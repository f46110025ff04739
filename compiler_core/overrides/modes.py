"""Modes of a thread: `TorchFunctionMode`, which is asked at every overridable call, and what switches asking off.

In: `with` blocks. Out: the thread's state (`state.py`).
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, ClassVar

from compiler_core.overrides.state import Now, become, disabled, thread_overrides
from compiler_core.overrides.switch import turn_on


def push_mode(mode: Any) -> None:
    """From now on `mode` is the innermost of this thread."""
    turn_on()
    now = thread_overrides.now
    become(now._replace(modes=(*now.modes, mode)))


def pop_mode() -> Any:
    """Take the innermost mode of this thread away, and give it."""
    now = thread_overrides.now
    become(now._replace(modes=now.modes[:-1]))
    return now.modes[-1]


class TorchFunctionMode:
    """A subclass defines `__torch_function__(self, func, types, args=(), kwargs=None)`. Inside `with` it is asked at
    every overridable call of this thread, those that make tensors too; it is off while it answers."""

    def __init__(self) -> None:
        pass

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        push_mode(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A mode, to be entered."""
        warnings.warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`", stacklevel=2)
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """Lets every call be computed."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class _Flags:
    """A block in which flags of the thread's state are set. May be entered again."""

    flags: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        self.before: list[Now] = []

    def __enter__(self) -> None:
        self.before.append(thread_overrides.now)
        become(thread_overrides.now._replace(**self.flags))

    def __exit__(self, *error: object) -> None:
        before = self.before.pop()
        become(before._replace(modes=thread_overrides.now.modes))


class DisableTorchFunctionSubclass(_Flags):
    """No class of an argument is asked inside; modes are."""

    flags: ClassVar[dict[str, Any]] = {"subclasses_off": True}


class DisableTorchFunction(_Flags):
    """Nobody is asked inside."""

    flags: ClassVar[dict[str, Any]] = {"off": True}


class EnableTorchFunction(_Flags):
    """Asking is on again inside."""

    flags: ClassVar[dict[str, Any]] = {"off": False, "subclasses_off": False}


def skip_one(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """`func(...)`, computed without asking; what it calls in its turn asks."""
    now, skips = thread_overrides.now, thread_overrides.skips
    become(now._replace(subclasses_off=False))
    thread_overrides.skips = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        become(now)
        thread_overrides.skips = skips


__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "EnableTorchFunction",
    "TorchFunctionMode",
    "disabled",
    "pop_mode",
    "push_mode",
    "skip_one",
]
