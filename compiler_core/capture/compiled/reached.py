"""Functions of the program that only uncompiled code calls, compiled each by itself.

In: calls that run uncompiled (the instruction at a graph break, a call that runs eager, what `disable(recursive=False)`
keeps out). Out: the same results; functions called from inside, by Python code or back from C (`sorted(key=...)`,
`map`, decorators), are captured as if they had been given to `compile`, with entries and guards of their own.
Method: while such a call runs, frames are evaluated by an extension (`runtime/frames.py`, PEP 523), which asks here of
every function's frame. Where the extension cannot be had, such functions run plain.
A function is compiled for its code, not for the object: a closure made anew at each call fits what was compiled for the
one before, its cells are guarded. A module's method is compiled for the module.
Run plain: library code and our own, what Python calls by itself (`__init__`, `__add__`, ...), generators, functions in
whose arguments and closure no tensor or module is found, what capture was told not to enter, everything while a tracer,
profiler or monitoring tool is on, under a stance, NESTED deep, or what has often raised. Known limits: `MOST` functions
are kept for each compiled function; older ones are compiled again. A code that had no tensor many times on end is taken
for one that never has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache, partial
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from compiler_core.bytecode import reflection
from compiler_core.bytecode.native import MISSING, NativeSemantics
from compiler_core.bytecode.traceback import hidden, is_caller
from compiler_core.capture import policy
from compiler_core.capture.compiled.control import is_transformed, stance
from compiler_core.capture.guards.kinds import in_cell, is_constant, own_attributes
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.location import is_ours
from compiler_core.ops.registry import current_trace
from compiler_core.runtime.frames import ASK, OFF, PLAIN, FrameEvaluation, frame_evaluation
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.compiled.function import State

hidden.append(__name__)  # a traceback shows what is called from here, not this
NESTED = 8  # functions reached from functions reached: each takes some dozen of Python's frames
MOST = 256
RAISES = 16  # a function that has raised so often runs plain: a call that raises is captured each time
_TOOLS = 6  # places for tools of sys.monitoring
_WIDE, _DEEP = 8, 3  # how many items, how many levels are searched for a tensor
_HEAP_TYPE = 1 << 9
_INERT = (Tensor, ModuleType, list, tuple, dict, set, frozenset)  # as arguments: no call of a C function calls them


class Carried:
    """Calls its first argument. A point that has one is for whatever function of the same code comes."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


class MethodOf:
    """A method of a module that only uncompiled code calls. It does not keep the module alive."""

    def __init__(self, function: FunctionType, module: Any) -> None:
        self.__name__ = function.__name__
        self.function, self._module = function, ref(module)

    def bound(self) -> MethodType:
        """The method, while there is the module."""
        return MethodType(self.function, self._module())


def _forget(reached: ReferenceType[Reached], key: tuple[int, int], gone: object) -> None:
    """What was compiled for a module goes with it."""
    found = reached()
    if found is not None:
        found.known.pop(key, None)


class _Here(threading.local):
    """plain: the code whose next frame is not asked of: capture has given it up. depth: functions reached."""

    plain: CodeType | None = None
    depth = 0


here = _Here()


class Reached:
    """The functions that one compiled function, and what it reached, has reached. make: a State of a function."""

    def __init__(self, make: Callable[[Any], State]) -> None:
        self.make = make
        self.known: dict[tuple[int, int], tuple[State, Any]] = {}  # and what must live for the key to stand for it

    def states(self) -> list[State]:
        """In the order in which they were reached."""
        return [state for state, _ in list(self.known.values())]

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """function(*args, **kwargs): itself as it is, what it calls compiled."""
        extension = None if here.depth >= NESTED else evaluation()
        if extension is None:
            return function(*args, **kwargs)
        before, here.plain = here.plain, _code_of(function, args)
        try:
            return extension.run(self.answer, function, args, kwargs)
        finally:
            here.plain = before

    def answer(self, function: FunctionType, values: tuple[Any, ...]) -> Any:
        """Of a frame: None: run it; True: this time; False: run it, and ask of nothing that it calls; (result,), or the
        exception that it raised."""
        code = function.__code__
        if here.plain is code:
            here.plain = None
            return True
        how = policy.how(function)
        if is_ours(code.co_filename):
            return None if how is policy.ENTER or policy.keeps_out_a_caller(function) else False
        if _is_left_alone():
            return True
        if how is not policy.ENTER or not _holds_tensor(function, values):
            return None
        state, args, kwargs = self._find(function, values)
        if state.raised >= RAISES:
            return True
        here.depth += 1
        try:
            return (state.run(args, kwargs),)
        except BaseException as error:  # noqa: BLE001  raised by who asked
            state.raised += 1
            error.__traceback__ = _users(error.__traceback__)
            return error
        finally:
            here.depth -= 1

    def _find(self, function: FunctionType, values: tuple[Any, ...]) -> tuple[State, tuple[Any, ...], dict[str, Any]]:
        """What is compiled of a function, and the arguments to run that with."""
        args, kwargs = _arguments(function.__code__, values)
        if args and is_module(args[0]) and _is_method(type(args[0]), function):
            module, *rest = args
            key = id(function), id(module)
            kept: Any = function, ref(module, partial(_forget, ref(self), key))
            return self._state(key, MethodOf(function, module), kept), tuple(rest), kwargs
        kept = function.__code__, function.__globals__
        key = id(function.__code__), id(function.__globals__)
        return self._state(key, Carried(function.__name__), kept), (function, *args), kwargs

    def _state(self, key: tuple[int, int], function: Any, kept: Any) -> State:
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= MOST:
                self.known.pop(next(iter(self.known)), None)
            found = self.known.setdefault(key, (self.make(function), kept))
        return found[0]


class UncompiledSemantics(NativeSemantics):
    """Instructions by themselves, as Python does them; what the functions called there call is compiled."""

    def __init__(self, reached: Reached) -> None:
        super().__init__()
        self.reached = reached

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        may_reach = _calls(function) or any(map(_calls, args)) or (kwargs and any(map(_calls, kwargs.values())))
        extension = evaluation() if may_reach and here.depth < NESTED else None
        if extension is None or self.machine is None or not self.machine.frames:
            return super().call(function, args, kwargs)
        answer = self.call_special(function, args, kwargs)
        if answer is not MISSING:
            return answer
        given = (self.reached.answer, function, args, kwargs)
        return reflection.call_from(self.machine.frames, extension.run, given, {})


def evaluation() -> FrameEvaluation | None:
    """The extension, ready."""
    extension = frame_evaluation()
    if extension is not None:
        _prepare(extension)
    return extension


@cache
def _prepare(extension: FrameEvaluation) -> None:
    extension.prepare(judge)


# -- which frames


def judge(code: CodeType) -> int:
    """What is done with all frames of a code."""
    name, filename = code.co_name, code.co_filename
    if is_ours(filename):
        if policy.how_file(filename) is policy.ENTER:
            return PLAIN if filename.startswith(policy.CALLERS) else OFF
        return ASK if code.co_freevars else OFF  # a decorator's function, perhaps
    if policy.is_library_file(filename) or is_caller(code):
        return PLAIN
    by_python = name.startswith("__") and name.endswith("__") and name != "__call__"
    if by_python or name in ("<listcomp>", "<setcomp>", "<dictcomp>"):
        return PLAIN
    return ASK


def _is_left_alone() -> bool:
    """Whether nothing of this thread is to be compiled now."""
    if here.depth >= NESTED or stance.name != "default" or current_trace() is not None:
        return True
    return is_transformed() or _is_monitored()


def _is_monitored() -> bool:
    monitoring = getattr(sys, "monitoring", None)  # new in 3.12
    return monitoring is not None and any(monitoring.get_tool(tool) is not None for tool in range(_TOOLS))


def _holds_tensor(function: FunctionType, values: tuple[Any, ...]) -> bool:
    if _any_tensor(values, _DEEP):
        return True
    return _any_tensor(map(in_cell, function.__closure__ or ()), _DEEP)


def _any_tensor(values: Iterable[Any], levels: int) -> bool:
    """Whether a tensor or module is among `values`, or in what they hold, so many levels down. Runs no code of the
    program's."""
    for value in values:
        kind = type(value)
        if issubclass(kind, Tensor) or is_module(value):
            return True
        if levels and _any_tensor(islice(_held(value, kind), _WIDE), levels - 1):
            return True
    return False


def _held(value: Any, kind: type) -> Iterable[Any]:
    if kind is list or kind is tuple:
        return list(value[:_WIDE])
    if kind is dict:
        return list(value.values())
    if kind.__flags__ & _HEAP_TYPE and not issubclass(kind, type):
        return list((own_attributes(value) or {}).values())
    return ()


def _calls(value: Any) -> bool:
    """Whether a call of, or with, `value` may call functions of the program."""
    kind = type(value)
    if kind is FunctionType:
        return policy.how_file(value.__code__.co_filename) is not policy.RUN
    if kind is MethodType:
        return _calls(value.__func__)
    if kind is BuiltinFunctionType:
        return _calls(value.__self__)
    if kind is MethodDescriptorType or kind is WrapperDescriptorType or issubclass(kind, _INERT):
        return False
    if isinstance(value, type):
        return bool(kind.__flags__ & _HEAP_TYPE or value.__flags__ & _HEAP_TYPE)
    return not is_constant(value)


# -- a call, from its frame


def _arguments(code: CodeType, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the call that gave the parameters these values."""
    positional, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args, kwargs = values[:positional], dict(zip(code.co_varnames[positional:named], values[positional:named]))
    if code.co_flags & CO_VARARGS:
        args += values[named]
    if code.co_flags & CO_VARKEYWORDS:
        kwargs.update(values[-1])
    return args, kwargs


def _is_method(cls: type, function: FunctionType) -> bool:
    """Whether a class has `function` under its own name."""
    return any(base.__dict__.get(function.__name__) is function for base in cls.__mro__)


def _code_of(function: Any, args: tuple[Any, ...]) -> CodeType | None:
    """The code of the program's that a call begins with."""
    if type(function) is Carried:
        function = args[0]
    if is_module(function):
        function = getattr(type(function), "forward", None)
    if type(function) is MethodType:
        function = function.__func__
    return function.__code__ if type(function) is FunctionType else None


def _users(entries: TracebackType | None) -> TracebackType | None:
    """A traceback from its first entry that is not ours; all of it if there is none."""
    found = entries
    while found is not None and is_ours(found.tb_frame.f_code.co_filename):
        found = found.tb_next
    return entries if found is None else found
