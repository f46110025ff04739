"""Called functions: which function objects the code that ran belongs to. CPython's frames name their code only.

In: frames, as calls are seen, and functions that are known by other means. Out: the functions that are alive and were
called; of closures that share their code, those with the variables that calls held.
Method: a function of a module by its qualified name; a method through its first argument's classes; a nested function
among those that known ones, and the ones found, hold in closures or wrap. Only if this may leave one out (a `def` that
ran more than once, with defaults or variables of its own) are all objects that the garbage collector knows looked
through, which takes a second for some ten million. Not by `gc.get_objects`: it would hold tuples that other threads are
making, which CPython answers with a SystemError there.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable, Mapping
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from compiler_core.capture.reachable import is_set

DATACLASS = ("__create_fn__.", "__dataclass_")  # where dataclasses define their methods
SHORT_LIVED = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}  # nobody can hold these functions


class CalledFunctions:
    """namespaces: by code that ran, its globals. held: by code with closure variables, the ids of what they held, call
    by call."""

    def __init__(self) -> None:
        self.namespaces: dict[CodeType, dict[str, Any]] = {}
        self.held: dict[CodeType, set[tuple[int, ...]]] = {}
        self._methods: list[object] = []

    def first_call(self, frame: FrameType) -> None:
        """Code that was not seen before begins to run."""
        code = frame.f_code
        self.namespaces[code] = frame.f_globals
        if "<locals>" in code.co_qualname and code.co_argcount:
            first = frame.f_locals.get(code.co_varnames[0])
            bases = (first if isinstance(first, type) else type(first)).__mro__
            self._methods.extend(vars(base)[code.co_name] for base in bases if code.co_name in vars(base))

    def call(self, frame: FrameType) -> None:
        """Code begins to run."""
        code = frame.f_code
        if code.co_freevars and code in self.namespaces:
            values = frame.f_locals
            ids = tuple(id(values[name]) if name in values else 0 for name in code.co_freevars)
            self.held.setdefault(code, set()).add(ids)

    def functions(self, known: Iterable[FunctionType]) -> list[FunctionType]:
        """The functions that were called. known: some that may be among them."""
        named = (_named(code, namespace) for code, namespace in self.namespaces.items() if not is_nested(code))
        by_code = _reachable([*known, *self._methods, *named])
        found: dict[int, FunctionType] = {}
        left: set[CodeType] = set()
        for code in self.namespaces:
            if code.co_name in SHORT_LIVED or not code.co_flags & CO_OPTIMIZED:  # or a class's or module's body
                continue
            fitting = [f for f in by_code.get(code, ()) if self._was_called(f)]
            found.update((id(f), f) for f in fitting)
            if not self._is_complete(code, fitting):
                left.add(code)
        if left:
            every = (f for f in gc.get_referrers(*left) if type(f) is FunctionType and f.__code__ in left)
            found.update((id(f), f) for f in every if self._was_called(f))
        return list(found.values())

    def _was_called(self, function: FunctionType) -> bool:
        return contents(function) in self.held.get(function.__code__, {()})

    def _is_complete(self, code: CodeType, found: list[FunctionType]) -> bool:
        """Whether no other function alive can have run this code and differ from those found."""
        if not found or not is_nested(code):
            return bool(found)
        if any(f.__defaults__ or f.__kwdefaults__ for f in found):
            return False
        return {contents(f) for f in found} >= self.held.get(code, {()})


def is_nested(code: CodeType) -> bool:
    """Whether a function may have been made of `code` more than once, by running the `def` around it again."""
    if code.co_qualname.startswith(DATACLASS):  # compiled anew for each class
        return False
    return "<locals>" in code.co_qualname or code.co_name == "<lambda>"


def contents(function: FunctionType) -> tuple[int, ...]:
    """The ids of what a function's closure variables hold; 0 for one that holds nothing."""
    return tuple(id(cell.cell_contents) if is_set(cell) else 0 for cell in function.__closure__ or ())


def _named(code: CodeType, namespace: dict[str, Any]) -> object:
    """What the qualified name of `code` leads to: a function, or what decorators have made of it."""
    *outer, name = code.co_qualname.split(".")
    table: Mapping[str, Any] = namespace
    for part in outer:
        owner = table.get(part)
        if not isinstance(owner, type):
            return None
        table = vars(owner)
    return table.get(name)


def _reachable(roots: Iterable[object]) -> dict[CodeType, list[FunctionType]]:
    """The functions that `roots` are, wrap or hold in closures, by their code."""
    found: dict[CodeType, list[FunctionType]] = {}
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if type(thing) is FunctionType:
            found.setdefault(thing.__code__, []).append(thing)
            todo.extend(cell.cell_contents for cell in thing.__closure__ or () if is_set(cell))
        elif isinstance(thing, property):
            todo.extend((thing.fget, thing.fset, thing.fdel))
        elif isinstance(thing, (staticmethod, classmethod, MethodType)):
            todo.append(thing.__func__)
        elif isinstance(thing, (functools.partial, functools.cached_property)):
            todo.append(thing.func)
        elif callable(thing) and not isinstance(thing, type):
            todo.append(getattr(thing, "__dict__", {}).get("__wrapped__"))
    return found
