"""What traced code reads beside its arguments: globals and closure variables, turned into guards.

In: the compiled function, and every function of the user's that runs while it is traced (seen by `sys.settrace`, which
hands on to a tracer that is already there). Out: guards on their global names and on closure cells: plain values and
small containers of them by content, Tensors and functions by identity, modules by identity and version.
Limits: objects of the user's classes are not looked into; closures of functions that only the traced code can reach
are not guarded.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Any

from compiler_core.capture.arguments import guard_module
from compiler_core.capture.guards import Guards, is_plain
from compiler_core.capture.module_protocol import is_module
from compiler_core.tensor.location import is_ours
from compiler_core.tensor.tensor import Tensor

ARRAY_PACKAGES = frozenset({"numpy", "ml_dtypes"})
LARGEST_CONTAINER = 64  # items of a list or dict that is guarded by content


class CodeRecorder:
    """While it is entered, notes the code of every function of the user's that is called, with its globals.

    The garbage collector rests meanwhile: its callbacks and finalizers are not what the user's function calls.
    """

    def __init__(self) -> None:
        self.found: dict[CodeType, dict[str, Any]] = {}
        self._seen: set[CodeType] = set()

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
            if _is_users(frame):
                self.found[code] = frame.f_globals
        return None if self._before is None else self._before(frame, event, arg)


def guard_environment(guards: Guards, function: Callable[..., Any], recorder: CodeRecorder) -> None:
    """Require what the recorded code, and the closures reachable from `function`, read to be as it is."""
    done: set[tuple[int, str]] = set()
    for code, namespace in recorder.found.items():
        for name in code.co_names:
            key = (id(namespace), name)
            if name in namespace and key not in done and not name.startswith("__"):
                done.add(key)
                scope = guards.bind(namespace, "globals")
                _guard_variable(guards, f"{scope}.get({name!r})", namespace[name], name)
    for function_ in _closures(function):
        for name, cell in zip(function_.__code__.co_freevars, function_.__closure__ or ()):
            if _is_set(cell):
                variable = guards.bind(cell, "cell")
                _guard_variable(guards, f"{variable}.cell_contents", cell.cell_contents, name)


def _is_users(frame: FrameType) -> bool:
    """Whether a frame runs the user's code: not ours, not Python's, not NumPy's."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return not (is_ours(frame.f_code.co_filename) or package in sys.stdlib_module_names or package in ARRAY_PACKAGES)


def _guard_variable(guards: Guards, code: str, value: Any, text: str) -> None:
    """Require a variable to be what it is, if that is something that can be required."""
    if is_plain(value):
        guards.require_plain(code, value, text)
    elif type(value) in (list, dict) and len(value) <= LARGEST_CONTAINER and _is_plain_container(value):
        guards.require(f"repr({code}) == {repr(value)!r}", f"{text} == {value!r}")
    elif is_module(value):
        guard_module(guards, code, value, text)
    elif isinstance(value, Tensor | FunctionType):
        guards.require_same(code, value, text)


def _is_plain_container(value: Any) -> bool:
    return all(map(is_plain, value)) and (not isinstance(value, dict) or all(map(is_plain, value.values())))


def _is_set(cell: Any) -> bool:
    """Whether a closure cell holds anything yet."""
    try:
        return bool(cell.cell_contents is not cell)
    except ValueError:
        return False


def _closures(function: Any) -> list[FunctionType]:
    """`function` and the functions in its closure, theirs, and so on: those of the user's that have a closure."""
    found: dict[int, FunctionType] = {}
    todo = [function]
    while todo:
        item = todo.pop()
        item = item.__func__ if isinstance(item, MethodType) else item
        if isinstance(item, FunctionType) and id(item) not in found and not is_ours(item.__code__.co_filename):
            found[id(item)] = item
            todo.extend(cell.cell_contents for cell in item.__closure__ or () if _is_set(cell))
    return list(found.values())
