"""Frames of functions: arguments bound to parameters.

In: a function with the arguments of a call. Out: `make_frame`: its frame, before the first instruction. Raises what
CPython raises for arguments that do not fit, in its words: a function of the same signature without a body is called.
Source: Python/ceval.c, initialize_locals.
"""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from compiler_core.bytecode.frame import UNSET, Frame
from compiler_core.bytecode.instructions import variable_names
from compiler_core.bytecode.kept import table, watch

VARARGS, VARKEYWORDS = 4, 8
EMPTY = (lambda: None).__code__
NOT_A_BODY = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines
counts: dict[int, int] = table()  # of variables


def make_frame(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
    """The frame of function(*args, **kwargs). Raises: TypeError, as the call would."""
    code = function.__code__
    known = counts.get(id(code))
    if known is None:
        known = counts[watch(code)] = len(variable_names(code))
    if not kwargs and len(args) == code.co_argcount and not code.co_kwonlyargcount and not code.co_flags & 12:
        variables = list(args) + [UNSET] * (known - len(args))
    else:
        variables = bind(function, code, args, kwargs) + [UNSET] * known
        del variables[known:]
    builtins = function.__builtins__
    return Frame(code, function.__globals__, builtins, variables, function=function)


def bind(function: Any, code: CodeType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Values of the parameters, in the order of co_varnames."""
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: positional + keyword_only]
    values = list(args[:positional])
    values += [UNSET] * (positional + keyword_only - len(values))
    extra: dict[str, Any] = {}
    for name, value in kwargs.items():
        slot = find(names, name, code.co_posonlyargcount)
        if slot is not None and values[slot] is UNSET:
            values[slot] = value
        elif slot is None and code.co_flags & VARKEYWORDS:
            extra[name] = value
        else:
            raise misfit(function, args, kwargs)
    fill_defaults(function, names, values, positional)
    if any(value is UNSET for value in values) or (len(args) > positional and not code.co_flags & VARARGS):
        raise misfit(function, args, kwargs)
    if code.co_flags & VARARGS:
        values.append(args[positional:])
    if code.co_flags & VARKEYWORDS:
        values.append(extra)
    return values


def find(names: tuple[str, ...], name: str, start: int) -> int | None:
    """Where a keyword argument goes; `start`: the first that may be given by name."""
    for slot in range(start, len(names)):
        if names[slot] == name:
            return slot
    return None


def fill_defaults(function: Any, names: tuple[str, ...], values: list[Any], positional: int) -> None:
    defaults = function.__defaults__ or ()
    for slot, value in enumerate(defaults, positional - len(defaults)):
        if values[slot] is UNSET:
            values[slot] = value
    if len(values) > positional and function.__kwdefaults__:
        for slot in range(positional, len(values)):
            if values[slot] is UNSET:
                values[slot] = function.__kwdefaults__.get(names[slot], UNSET)


def misfit(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    """CPython's own error for such a call."""
    code = function.__code__
    body = code.replace(
        co_code=EMPTY.co_code,
        co_consts=EMPTY.co_consts,
        co_exceptiontable=b"",
        co_freevars=(),
        co_cellvars=(),
        co_flags=code.co_flags & ~NOT_A_BODY,
        co_linetable=EMPTY.co_linetable,
        co_stacksize=EMPTY.co_stacksize,
    )
    stub = FunctionType(body, function.__globals__, function.__name__, function.__defaults__)
    stub.__kwdefaults__, stub.__qualname__ = function.__kwdefaults__, function.__qualname__
    try:
        stub(*args, **kwargs)
    except TypeError as error:
        return error.with_traceback(None)
    return TypeError(f"{function.__qualname__}() cannot take these arguments")
