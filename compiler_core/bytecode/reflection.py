"""Functions that look at their caller's frame, answered from an interpreted frame.

In: the frames, the call's arguments. Out: `READERS[function](frames, args, kwargs)`: the call's result, or
NotImplemented where it does not look at the frame. `call_from`: a call that finds real frames above it.
"""

from __future__ import annotations
import __future__

import builtins
import functools
import operator
import sys
from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any

from compiler_core.bytecode.frame import UNSET, Frame
from compiler_core.bytecode.instructions import variable_names
from compiler_core.bytecode.kept import table, watch
from compiler_core.bytecode.program import program_of
from compiler_core.bytecode.traceback import CALLER, is_hidden

FUTURES = functools.reduce(operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))


def namespace(frame: Frame) -> dict[str, Any]:
    """Where STORE_NAME stores."""
    return frame.globals if frame.namespace is None else frame.namespace


def variables(frame: Frame) -> dict[str, Any]:
    """What `locals()` answers."""
    if frame.namespace is not None:
        return frame.namespace
    values = {}
    for name, value in zip(variable_names(frame.code), frame.locals):
        if type(value) is CellType and (name in frame.code.co_cellvars or name in frame.code.co_freevars):
            try:
                value = value.cell_contents
            except ValueError:
                continue
        if value is not UNSET:
            values[name] = value
    return values


def read_locals(frames: list[Frame], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return variables(frames[-1]) if not args else NotImplemented


def read_globals(frames: list[Frame], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return frames[-1].globals if not args else NotImplemented


def read_dir(frames: list[Frame], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return sorted(variables(frames[-1])) if not args else NotImplemented


def zero_argument_super(frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """super(): the cell __class__ and the first argument."""
    if args or kwargs:
        return NotImplemented
    code = frame.code
    if not code.co_argcount:
        raise RuntimeError("super(): no arguments")
    first = frame.locals[0]
    if code.co_varnames[0] in code.co_cellvars:
        first = contents(first)
    if first is UNSET:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = contents(frame.locals[variable_names(code).index("__class__")])
    if cls is UNSET:
        raise RuntimeError("super(): empty __class__ cell")
    return super(cls, first)


def contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def run_text(function: Callable[..., Any]) -> Callable[[list[Frame], tuple[Any, ...], dict[str, Any]], Any]:
    """eval and exec, which take the caller's variables where they are given none."""

    def read(frames: list[Frame], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text, scope, names = (*args, None, None)[:3] if args else (None, None, None)
        scope, names = kwargs.get("globals", scope), kwargs.get("locals", names)
        if not args or scope is not None:
            return NotImplemented
        frame, more = frames[-1], {key: kwargs[key] for key in kwargs if key not in ("globals", "locals")}
        names = variables(frame) if names is None else names
        return call_from(frames, function, (text, frame.globals, names), more)

    return read


READERS: dict[Any, Callable[[list[Frame], tuple[Any, ...], dict[str, Any]], Any]] = {
    builtins.locals: read_locals,
    builtins.vars: read_locals,
    builtins.globals: read_globals,
    builtins.dir: read_dir,
    builtins.super: lambda frames, args, kwargs: zero_argument_super(frames[-1], args, kwargs),
    builtins.eval: run_text(builtins.eval),
    builtins.exec: run_text(builtins.exec),
}


STUB = (lambda function, args, kwargs: function(*args, **kwargs)).__code__  # one line: all of it is co_firstlineno
callers: dict[int, dict[tuple[int, tuple[str, ...]], CodeType]] = table()


def call_from(frames: list[Frame], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """function(*args, **kwargs), by real frames that say they are `frames`, at their lines, with their variables.

    So warnings, logging, named tuples and whoever looks at frames find the user's modules, files and lines, and text is
    compiled as by the user's `__future__` imports. A first frame's caller is the machine.
    """
    for frame in reversed(frames):
        if not is_hidden(frame.globals.get("__name__", "")):
            shown = {} if frame.namespace is not None else variables(frame)
            stub = caller(frame, tuple(shown))
            function, args, kwargs = FunctionType(stub, frame.globals), (function, args, kwargs, *shown.values()), {}
    return function(*args, **kwargs)


def caller(frame: Frame, names: tuple[str, ...]) -> CodeType:
    """What calls from `frame`; it has variables of these names."""
    known = callers.get(id(frame.code))
    if known is None:
        known = callers[watch(frame.code)] = {}
    stub = known.get((frame.next, names))
    if stub is None:
        stub = known[frame.next, names] = caller_of(frame, names)
    return stub


def caller_of(frame: Frame, names: tuple[str, ...]) -> CodeType:
    code = frame.code
    return STUB.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=program_of(code).line_at(frame.next),
        co_flags=STUB.co_flags & ~FUTURES | code.co_flags & FUTURES,
        co_varnames=(CALLER, ".args", ".kwargs", *names),
        co_argcount=3 + len(names),
        co_nlocals=3 + len(names),
    )


def import_from(module: Any, name: str) -> Any:
    """`from module import name`."""
    try:
        return getattr(module, name)
    except AttributeError:
        pass
    package = getattr(module, "__name__", None)
    found = sys.modules.get(f"{package}.{name}")
    if found is None:
        raise missing_name(module, name)
    return found


def missing_name(module: Any, name: str) -> ImportError:
    """CPython's own words: it imports the name itself, which fails."""
    scope = {"__builtins__": {"__import__": lambda *args: module}}
    try:
        exec(f"from x import {name}", scope)
    except ImportError as error:
        return error.with_traceback(None)
    return ImportError(f"cannot import name {name!r}", name=name)
