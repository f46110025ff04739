"""Where in the user's code we are: the innermost frame outside of our own packages, and what it called of ours.

In: the Python stack. Out: "file:line", and the call as text, with dtypes and shapes: `add(input: f32[2, 3], other: 1)`.
The demo counts as a user's code. Used by errors, graph breaks and graph nodes.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

_ROOT = Path(__file__).resolve().parents[1]
_OURS = (
    *(f"{_ROOT / package}/" for package in ("compiler_core", "collectives", "distcompile", "launch")),
    f"{sysconfig.get_path('scripts')}/distcompile",  # the commands, as pip writes them
)
_MACHINE = (f"{_ROOT / 'compiler_core' / 'bytecode'}/", f"{_ROOT / 'compiler_core' / 'capture' / 'tracing'}/")
_RECALLING = ("ops/remembered.py", "tensor/recalling.py")
_PASSING = ("overrides/", "sparse/rules.py", "sparse/tensor.py", "errors.py", *_RECALLING)
_OVERRIDES = tuple(  # who asks whether a call is handed to somebody, or was met before; who computes of sparse tensors
    f"{_ROOT / 'compiler_core' / part}" for part in _PASSING
)
_ASKING = (*_OVERRIDES, str(_ROOT / "compiler_core/tensor/torch_names.py"))
_USERS = (f"{_ROOT / 'distcompile' / 'demo'}",)


@cache
def is_ours(filename: str) -> bool:
    """Whether a source file belongs to us rather than to the user (frozen and generated code does too)."""
    return filename.startswith("<frozen") or (filename.startswith(_OURS) and not filename.startswith(_USERS))


@cache
def is_asking(filename: str) -> bool:
    """Whether code from there stands between the program and a function of ours, and computes nothing."""
    return filename.startswith(_ASKING)


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_location() -> str:
    """`file:line` of the innermost frame of the user's code, or an empty text."""
    interpreted = interpreted_location()
    if interpreted:
        return interpreted
    frame = user_frame()
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


_LONGEST = 40  # characters of an argument that is neither an array nor a number


def user_call() -> tuple[str, str]:
    """`file:line` of the user's innermost frame, and the call of ours that it made; empty texts where there is none.

    Of modules that call each other the innermost is named. Closures (decorators, tables of methods) and who
    asks for overrides are passed over.
    """
    frame, calls = sys._getframe(1), []
    while is_ours(frame.f_code.co_filename):
        if "<locals>" not in frame.f_code.co_qualname and not frame.f_code.co_filename.startswith(_OVERRIDES):
            calls.append(frame)
        if frame.f_back is None:
            return "", ""
        frame = frame.f_back
    where = interpreted_location() or f"{frame.f_code.co_filename}:{frame.f_lineno}"
    calls = calls[: next((i for i, call in enumerate(calls) if _is_machine(call)), len(calls))]
    if calls and calls[-1].f_code.co_name == "__call__":
        calls = [call for call in calls if call.f_code.co_name == "__call__"][:1]
    return where, _described(calls[-1]) if calls else ""


def _is_machine(frame: FrameType) -> bool:
    """Whether a frame of the interpreter: what called it is not what the user called."""
    return frame.f_code.co_filename.startswith(_MACHINE)


def _described(frame: FrameType) -> str:
    """The call that `frame` runs: name(argument: value, ...), without what is None or False."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {
        name: values[name]
        for name in names
        if name[0] != "_" and values.get(name) is not None and values[name] is not False
    }
    title = code.co_name.strip("_")
    if "_nd" in title and "rank" in given:  # a family of ops/ranks.py: conv2d was called
        title = title.replace("_nd", f"{given.pop('rank')}d")
    own = given.get("self")
    if own is not None and not hasattr(own, "dtype"):
        del given["self"]
        title = type(own).__name__ if title in ("call", "init") else f"{type(own).__name__}.{title}"
    shown = [f"{name}: {_shown(value)}" for name, value in given.items()]
    if code.co_flags & inspect.CO_VARARGS:
        shown += map(_shown, values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ()))
    return f"{title}({', '.join(shown)})"


def _shown(value: Any) -> str:
    """An argument as text; its type's name if looking at it raises, which must hide no error."""
    try:
        return _text(value)
    except Exception:  # noqa: BLE001 - a property or a repr may raise anything
        return type(value).__name__


def _text(value: Any) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and isinstance(shape, tuple):
        return f"{getattr(dtype, 'short', dtype)}[{', '.join(map(str, shape))}]"
    if isinstance(value, list | tuple) and any(hasattr(part, "shape") for part in value):
        return f"[{', '.join(map(_shown, value))}]"
    if not isinstance(value, int | float | complex | str | list | tuple):
        return getattr(value, "__name__", type(value).__name__)
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


# -- frames that a machine interprets: they are not on Python's stack

_machines = threading.local()


@contextmanager
def interpreting(machine: Interpreting) -> Iterator[None]:
    """Within the block the user's innermost frame is one that `machine` runs."""
    before = getattr(_machines, "innermost", None)
    _machines.innermost = machine
    try:
        yield
    finally:
        _machines.innermost = before


class Interpreting(Protocol):
    """A machine that runs frames."""

    def location_outside(self, is_ours: Callable[[str], bool]) -> str:
        """`file:line` of the innermost frame of which the file is not ours; "" if there is none."""


def interpreted_location() -> str:
    """`file:line` of the user's innermost interpreted frame, or an empty text."""
    machine = getattr(_machines, "innermost", None)
    return "" if machine is None else str(machine.location_outside(is_ours))
