"""The levels of forward mode: which ones this thread is in, and the tangents that its tensors carry in each.

In: `enter`, `leave`. Out: `tangent_of(tensor)`: a tensor carries its tangents in a slot, each together with the level
that it belongs to; once that has ended the tangent counts no more. Levels nest: a tangent of an inner one carries
tangents of the outer ones. A view's tangent is the view of its base's, so that a write through one is seen by the
other. While no thread is in a level nothing here is called: `duals.py` puts itself in the place of what records
operations when the first level begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class Level:
    """One level. ended: whether it is over."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


class _Thread(threading.local):
    """levels: those that count in this thread for now, the innermost last."""

    levels: tuple[Level, ...] = ()


_thread = _Thread()
_lock = threading.Lock()
_number = 0
on = False  # whether any thread is in a level


def levels() -> tuple[Level, ...]:
    """Those that count in this thread, the innermost last."""
    return _thread.levels


def current() -> Level | None:
    """The innermost level of this thread that counts."""
    return _thread.levels[-1] if _thread.levels else None


def enter(begin: Callable[[], None]) -> Level:
    """Begin a level. begin: called if it is the only one of all threads."""
    global _number, on
    with _lock:
        _number += 1
        on = True
        if _number == 1:
            begin()
    made = Level()
    _thread.levels = (*_thread.levels, made)
    return made


def leave(level: Level, end: Callable[[], None]) -> None:
    """End a level. end: called if it was the last of all threads."""
    global _number, on
    level.ended = True
    _thread.levels = tuple(one for one in _thread.levels if one is not level)
    with _lock:
        _number -= 1
        on = _number > 0
        if not on:
            end()


class resting:
    """Inside, only the levels around `level` count in this thread; none if it is None."""

    __slots__ = ("before", "level")

    def __init__(self, level: Level | None = None) -> None:
        self.level = level

    def __enter__(self) -> None:
        self.before = before = _thread.levels
        _thread.levels = () if self.level is None else before[: before.index(self.level)]

    def __exit__(self, *error: object) -> None:
        _thread.levels = tuple(one for one in self.before if not one.ended)


def tangent_of(tensor: Any, level: Level | None = None) -> Tensor | None:
    """The tangent that a tensor carries in a level that counts, the innermost for None; None of anything else."""
    level = level or current()
    if level is not None:
        for one, tangent in getattr(tensor, "_dual", ()):
            if one is level:
                return tangent  # type: ignore[no-any-return]
    return None


def give(tensor: Any, tangent: Tensor | None, level: Level | None = None) -> None:
    """Let `tensor` carry this tangent, of the innermost level for None."""
    if tangent is not None:
        level = level or current()
        others = [pair for pair in getattr(tensor, "_dual", ()) if pair[0] is not level and not pair[0].ended]
        tensor._dual = (*others, (level, tangent))


def carry(source: Any, made: Any) -> None:
    """Let `made`, which is `source` as another handle, carry its tangents."""
    for level in _thread.levels:
        give(made, tangent_of(source, level), level)
