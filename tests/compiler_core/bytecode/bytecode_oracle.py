"""Runs one function by CPython and by the machine, and says what came of it, for tests to compare."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics

notes: list[Any] = []


def note(value: Any) -> Any:
    """A side effect that a program leaves."""
    notes.append(value)
    return value


def interpret(function: Any, *args: Any, **kwargs: Any) -> Any:
    return Machine(NativeSemantics(inline=True)).run([make_frame(function, args, kwargs)])


def chain(error: BaseException | None) -> Any:
    """Type, words, causes and the user's lines of an exception."""
    if error is None:
        return None
    entries = [(e.name, e.lineno) for e in traceback.extract_tb(error.__traceback__) if "/programs_" in e.filename]
    return type(error), str(error), entries, chain(error.__cause__), chain(error.__context__)


def outcome(run: Callable[[], Any]) -> tuple[str, Any, list[Any]]:
    """(how it ended, with what, the notes taken)."""
    notes.clear()
    try:
        value = run()
    except Exception as error:  # noqa: BLE001
        return "raised", chain(error), list(notes)
    return "returned", value, list(notes)


def programs(module: ModuleType) -> list[Any]:
    """The functions without parameters that a file defines."""
    return [
        pytest_id
        for name, pytest_id in vars(module).items()
        if callable(pytest_id)
        and getattr(pytest_id, "__module__", "") == module.__name__
        and not isinstance(pytest_id, type)
        and not name.startswith("_")
        and pytest_id.__code__.co_argcount == 0
    ]
