"""What traced code reads beside its arguments: globals, closures and attributes, turned into guards.

In: the compiled function, and every function of the user's that runs while it is traced (seen by `sys.settrace`, which
hands on to a tracer that is already there). Out: guards on their global names, closures, code and defaults, and on what
can be reached from these and from guarded modules by an attribute name that the code mentions (`reachable.py`).
Draws from Python's and NumPy's global generators cannot be part of a graph: they break it, and are undone.
Limits: what traced code asks of the system (`os.environ`, clocks, files) is not guarded.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any

from compiler_core.capture.called import CalledFunctions
from compiler_core.capture.code_names import names_of
from compiler_core.capture.guards import Guards
from compiler_core.capture.module_protocol import unwrapped
from compiler_core.capture.reachable import Walk, is_set
from compiler_core.errors import GraphBreak
from compiler_core.location import is_ours

_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = tuple(os.path.join(_STDLIB, name) for name in ("site-packages", "dist-packages"))
_ARRAYS = tuple(os.path.dirname(str(sys.modules[name].__file__)) + os.sep for name in ("numpy", "ml_dtypes"))


class CodeRecorder:
    """While it is entered, notes the code of every function of the user's that is called, with its globals.

    The garbage collector rests meanwhile: its callbacks and finalizers are not what the user's function calls.
    """

    def __init__(self) -> None:
        self.calls = CalledFunctions()
        self._seen: set[CodeType] = set()

    @property
    def found(self) -> dict[CodeType, dict[str, Any]]:
        """Code -> globals."""
        return self.calls.namespaces

    def __enter__(self) -> CodeRecorder:
        self._collects = gc.isenabled()
        gc.disable()
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.settrace(self._before)
        if self._collects:
            gc.enable()

    def _called(self, frame: FrameType, event: Any, arg: Any) -> Any:
        code = frame.f_code
        if code not in self._seen:
            self._seen.add(code)
            if is_users(code.co_filename) and not is_called_by_the_collector(code):
                self.calls.first_call(frame)
        self.calls.call(frame)
        return None if self._before is None else self._before(frame, event, arg)


def is_called_by_the_collector(code: CodeType) -> bool:
    """Whether code is a callback of the garbage collector, which runs at any time: other threads may allow it."""
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)


class RandomWatch:
    """While it is entered, the code that `recorder` sees may not draw from Python's or NumPy's global generator.

    If it has drawn, the draws are undone, and GraphBreak is raised. Another thread may draw meanwhile: only code that
    names these generators is suspected.
    """

    def __init__(self, recorder: CodeRecorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> RandomWatch:
        self._python, self._numpy = random.getstate(), _numpy_state()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        drawn = self._python != random.getstate() or self._numpy != _numpy_state()
        if not drawn or not any(_names_generator(*item) for item in self.recorder.found.items()):
            return
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy.random"].set_state(self._numpy)
        if error is None:
            raise GraphBreak(
                "the compiled function draws from Python's or NumPy's global generator",
                remedy="draw with distcompile's functions (rand, randn, dropout), or outside of the compiled function",
            )


def _numpy_state() -> tuple[Any, ...] | None:
    """The state of NumPy's global generator, comparable; None if nobody has imported it."""
    module = sys.modules.get("numpy.random")
    if not hasattr(module, "get_state"):  # another thread may be importing it right now
        return None
    name, keys, *rest = module.get_state()  # type: ignore[union-attr]
    return (name, tuple(keys.tolist()), *rest)


def _names_generator(code: CodeType, namespace: Mapping[str, Any]) -> bool:
    """Whether code mentions `random`, or a global function of Python's generator (`from random import choice`)."""
    owner = getattr(random.random, "__self__", None)
    return "random" in code.co_names or any(
        getattr(namespace.get(name), "__self__", None) is owner for name in code.co_names
    )


def is_users(filename: str) -> bool:
    """Whether a source file is the user's: not ours, not Python's, not NumPy's."""
    python = filename.startswith(_STDLIB) and not filename.startswith(_SITE)
    return not (python or filename.startswith(_ARRAYS) or is_ours(filename))


def variables(guards: Guards, function: Any) -> Iterator[tuple[str, str, Any]]:
    """(name, code, value) of the closure variables and globals that `function`, and functions in its closure, read."""
    for inner in _closures(function):
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or ()):
            if is_set(cell):
                yield name, f"{guards.bind(cell, 'cell')}.cell_contents", cell.cell_contents
        for name in names_of(inner.__code__).globals:
            if name in inner.__globals__:
                yield name, f"{guards.bind(inner.__globals__, 'globals')}.get({name!r})", inner.__globals__[name]


def guard_environment(guards: Guards, function: Callable[..., Any], recorder: CodeRecorder) -> None:
    """Require what the recorded code, and the closures reachable from `function`, read to be as it is."""
    names = frozenset(name for code in recorder.found for name in names_of(code).attributes)
    walk = Walk(guards, names, recorder.found, is_users)
    for code, namespace in recorder.found.items():
        for name in names_of(code).globals:
            if name in namespace and not name.startswith("__"):
                walk.item(namespace, "globals", name, name)
    for inner in _closures(function):
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or ()):
            walk.cell(cell, name)
    walk.hanging(unwrapped(function), walk_name(function), 0)
    for called in recorder.calls.functions(_closures(function)):
        walk.function(called, called.__name__)
    for module in guards.modules:
        for part in module.modules():
            walk.attributes(unwrapped(part), "the module", 1)


def walk_name(function: object) -> str:
    """What guards call the compiled function."""
    return str(getattr(function, "__name__", type(function).__name__))


def _closures(function: Any) -> list[FunctionType]:
    """`function` and the functions in its closure, theirs, and so on: those that are the user's."""
    found: dict[int, FunctionType] = {}
    todo = [function]
    while todo:
        item = todo.pop()
        item = item.__func__ if isinstance(item, MethodType) else unwrapped(item)
        if isinstance(item, FunctionType) and id(item) not in found and not is_ours(item.__code__.co_filename):
            found[id(item)] = item
            todo.extend(cell.cell_contents for cell in item.__closure__ or () if is_set(cell))
    return list(found.values())
