"""A call of an overridable function: computed as it is, or handed to a mode, or to the class of an argument.

In: an `Entry` and a call's arguments. Out: the call's result. Who is asked, and what it is told, is torch's protocol:
the innermost mode first, which is off while it is asked; then each class among the arguments that overrides, subclasses
before their bases, else from left to right; NotImplemented asks the next. A function that torch has in Python counts
plain Tensors among the classes, and hands its arguments over in one form: those without defaults by place, the others
by name. Any argument counts, in lists and tuples too. What the core calls in itself is computed, as what torch's C
code calls is; what `distcompile/` calls (nn, optim) is handed over, as what torch's Python code calls is.
Errors are TypeErrors with torch's words, for programs look at them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import Any

from compiler_core.errors import GraphBreak
from compiler_core.location import is_ours, user_location
from compiler_core.ops.registry import current_trace
from compiler_core.overrides.state import (
    Now,
    become,
    disabled,
    is_tensor,
    method_of,
    note_plain,
    other_layouts,
    plain,
    thread_overrides,
)
from compiler_core.records import dataclass


@dataclass(slots=True, eq=False)
class Entry:
    """One overridable function. func: what `__torch_function__` is handed. origin: what it was made of, which computes
    the call.

    name: for errors. in_python: whether it is written in Python in torch: see the head of this file. is_operator: a
    TypeError of who was asked is NotImplemented, so that Python asks the other operand. is_alone: a method or property
    without arguments: its tensor's type is told, whatever it is. all_by_name: no argument is handed over by place.
    is_for_modes: no class of an argument is asked.
    """

    func: Any
    origin: Callable[..., Any]
    name: str
    in_python: bool = False
    is_operator: bool = False
    is_alone: bool = False
    all_by_name: bool = False
    is_for_modes: bool = False


def handle(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call with arguments of which not all are certainly plain, or while a mode is on."""
    if plain and not kwargs:
        for argument in args:  # the usual case: a tuple of numbers, or a list of tensors, among plain arguments
            kind = type(argument)
            if kind not in plain and not (kind in (tuple, list) and plain.issuperset(map(type, argument))):
                break
        else:
            return entry.origin(*args)
    if plain and plain.issuperset(map(type, each_argument(args, kwargs))):  # empty while a mode is on
        return entry.origin(*args, **kwargs)
    if is_cores(sys._getframe(2).f_code.co_filename):  # the caller of the overridable function
        return computed(entry, args, kwargs)
    route = route_of(entry, args, kwargs)
    if route is None:
        given = (entry, args, kwargs)
        return disabled(computed, (), given) if entry.is_for_modes else computed(*given)
    if not entry.is_operator:
        return ask(entry, *route)
    try:
        return ask(entry, *route)
    except TypeError:
        return NotImplemented


def computed(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the call gives if nobody overrides: by who computes with an argument's layout, where it is not strided."""
    if other_layouts:
        for argument in each_argument(args, kwargs):
            compute = other_layouts.get(type(argument))
            if compute is not None:
                return compute(entry, args, kwargs)
    return entry.origin(*args, **kwargs)


_CORE = str(Path(__file__).resolve().parents[1])
_FOR_PROGRAMS = tuple(  # they call what the program calls
    f"{_CORE}/{part}" for part in ("overrides/", "bytecode/", "capture/polyfills", "capture/tracing/native.py")
)


@cache
def is_cores(filename: str) -> bool:
    """Whether code from this file calls for itself, not for the program."""
    return filename.startswith(_CORE) and not filename.startswith(_FOR_PROGRAMS)


Route = tuple[list[Any], tuple[type, ...], tuple[Any, ...], dict[str, Any]]


def route_of(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Route | None:
    """(who is asked in turn, the types told, the arguments as they are handed over); None: nobody.

    A mode among those asked stands first, as the thread's stack of modes.
    """
    if thread_overrides.skips:
        thread_overrides.skips = False
        return None
    modes, off, subclasses_off = thread_overrides.now
    if off or (not modes and (subclasses_off or entry.is_for_modes)):
        return None
    found = overriding(each_argument(args, kwargs), entry.in_python)
    if not modes and all(map(is_tensor, map(type, found))):
        return None
    types = tuple([type(one) for one in found])
    if entry.is_alone and not types:
        types = (type(args[0]),)
    handlers: list[Any] = [] if subclasses_off or entry.is_for_modes else found
    if modes:
        handlers = [modes, *handlers]
    given = _in_one_form(entry, args, kwargs) if entry.in_python else (args, kwargs)
    return handlers, types, *given


def ask(entry: Entry, handlers: list[Any], types: tuple[type, ...], args: tuple[Any, ...], kwargs: Any) -> Any:
    """What the first of `handlers` that does not give NotImplemented gives."""
    if current_trace() is not None and any(map(is_programs, handlers)):
        raise GraphBreak(
            f"{entry.name} is handed to a `__torch_function__` from within a call that runs as it is",
            where=user_location(),
        )
    given = (args, kwargs) if kwargs or entry.in_python else (args,)  # C functions hand no empty names over
    for handler in handlers:
        if type(handler) is tuple:
            result = ask_mode(handler, entry.func, types, *given)
        else:
            result = handler.__torch_function__(entry.func, types, *given)
        if result is not NotImplemented:
            return result
    raise nobody(entry, handlers)


def ask_mode(modes: tuple[Any, ...], func: Any, types: tuple[type, ...], *given: Any) -> Any:
    """What the innermost of `modes` gives, which is off meanwhile."""
    now = without(modes[-1])
    try:
        return modes[-1].__torch_function__(func, types, *given)
    finally:
        become(now)


def without(mode: Any) -> Now:
    """Switch `mode`, the innermost of the thread, off. Gives what the state was."""
    now = thread_overrides.now
    become(now._replace(modes=now.modes[:-1]))
    return now


def is_programs(handler: Any) -> bool:
    """Whether who is asked runs code that is not ours: all but Tensor and the subclasses that leave it at that."""
    method = method_of(type(handler[-1] if type(handler) is tuple else handler))
    function = getattr(method, "__func__", method)
    return not (isinstance(function, FunctionType) and is_ours(function.__code__.co_filename))


def nobody(entry: Entry, handlers: list[Any]) -> TypeError:
    """The error of a call that nobody takes."""
    asked = [handler for handler in handlers if type(handler) is not tuple]
    modes = [handler[-1] for handler in handlers if type(handler) is tuple]
    if entry.in_python:
        within = f" nor in mode {modes[0]}" if modes else ""
        return TypeError(
            f"no implementation found for '{entry.name}' on types that implement __torch_function__: "
            f"{[type(one) for one in asked]}{within}"
        )
    rows = [f"  - mode object {mode}" for mode in modes] + [f"  - tensor subclass {type(one)}" for one in asked]
    return TypeError(
        f"Multiple dispatch failed for '{entry.name}'; all __torch_function__ handlers returned NotImplemented:\n\n"
        + "\n".join(rows)
    )


def overriding(arguments: Iterable[Any], with_tensors: bool) -> list[Any]:
    """One argument of each class that overrides, in the order in which they are asked.

    with_tensors: plain Tensors count, if anything does.
    """
    found: list[Any] = []
    kinds: list[type] = []
    for argument in arguments:
        kind = type(argument)
        if kind in plain and not with_tensors:
            continue
        if kind in kinds or method_of(kind) is None:
            if kind not in kinds and not issubclass(kind, _CONTAINERS):
                note_plain(kind)
            continue
        if is_tensor(kind) and not with_tensors:
            continue
        place = next((k for k, other in enumerate(kinds) if issubclass(kind, other)), len(kinds))
        kinds.insert(place, kind)
        found.insert(place, argument)
    return found


_CONTAINERS = (list, tuple, dict)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the first of the modes, and of the classes of `relevant_args`, that takes the call gives.

    Raises: TypeError if none does.
    """
    return ask(*of_own_function(public_api, relevant_args), args, kwargs)


def of_own_function(function: Any, relevant_args: Iterable[Any]) -> tuple[Entry, list[Any], tuple[type, ...]]:
    """(entry, who is asked in turn, the types told) of a function that is not torch's."""
    found = overriding(relevant_args, True)
    modes = thread_overrides.now.modes
    entry = Entry(function, function, f"{function.__module__}.{function.__name__}", in_python=True)
    return entry, [modes, *found] if modes else list(found), tuple(map(type, found))


def each_argument(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments, and what those that are lists or tuples hold."""
    found: list[Any] = []
    for argument in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(argument, (list, tuple)) and method_of(type(argument)) is None:
            found += each_argument(argument, {})
        else:
            found.append(argument)
    return found


def _in_one_form(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without defaults by place, the others, all of them, by name."""
    parameters = signature(entry.origin).parameters
    bound = signature(entry.origin).bind(*args, **kwargs)
    bound.apply_defaults()
    by_place: list[Any] = []
    by_name: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind, default = parameters[name].kind, parameters[name].default
        if kind is Parameter.VAR_POSITIONAL:
            in_list = entry.name == "torch.einsum" and len(value) == 1 and isinstance(value[0], list | tuple)
            by_place += value[0] if in_list else value
        elif kind is Parameter.VAR_KEYWORD:
            by_name |= value
        elif default is Parameter.empty and kind is not Parameter.KEYWORD_ONLY and not entry.all_by_name:
            by_place.append(value)
        else:
            by_name[name] = value
    return tuple(by_place), by_name
