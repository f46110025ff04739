"""What traced code reads beside its arguments: globals, closures and attributes, turned into guards.

In: the compiled function, and every function of the user's that runs while it is traced (seen by `sys.settrace`, which
hands on to a tracer that is already there). Out: guards on their global names, on closure cells, and on what can be
reached from these and from guarded modules by an attribute name that the code mentions: plain values by content,
containers item by item, Tensors and functions by identity, modules by identity and version.
Draws from Python's and NumPy's global generators cannot be part of a graph: they break it, and are undone.
Limits: closures of functions that only the traced code can reach, slots, and properties are not guarded.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

from compiler_core.capture.arguments import IDENTIFIED, guard_module
from compiler_core.capture.code_names import names_of
from compiler_core.capture.guards import Guards, is_plain
from compiler_core.capture.module_protocol import is_module, unwrapped
from compiler_core.errors import GraphBreak
from compiler_core.tensor.location import is_ours
from compiler_core.tensor.tensor import Tensor

LARGEST_CONTAINER = 64  # items of a container that is guarded item by item
DEEPEST = 4  # attributes of attributes of ...
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = tuple(os.path.join(_STDLIB, name) for name in ("site-packages", "dist-packages"))
_ARRAYS = tuple(os.path.dirname(str(sys.modules[name].__file__)) + os.sep for name in ("numpy", "ml_dtypes"))


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
            if is_users(code.co_filename):
                self.found[code] = frame.f_globals
        return None if self._before is None else self._before(frame, event, arg)


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
    if "numpy.random" not in sys.modules:
        return None
    name, keys, *rest = sys.modules["numpy.random"].get_state()
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
            if _is_set(cell):
                yield name, f"{guards.bind(cell, 'cell')}.cell_contents", cell.cell_contents
        for name in names_of(inner.__code__).globals:
            if name in inner.__globals__:
                yield name, f"{guards.bind(inner.__globals__, 'globals')}.get({name!r})", inner.__globals__[name]


def guard_environment(guards: Guards, function: Callable[..., Any], recorder: CodeRecorder) -> None:
    """Require what the recorded code, and the closures reachable from `function`, read to be as it is."""
    walk = _Walk(guards, frozenset(name for code in recorder.found for name in names_of(code).attributes))
    for code, namespace in recorder.found.items():
        for name in names_of(code).globals:
            if name in namespace and not name.startswith("__"):
                walk.item(namespace, "globals", name, name)
    for inner in _closures(function):
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or ()):
            if _is_set(cell):
                walk.variable(f"{guards.bind(cell, 'cell')}.cell_contents", cell.cell_contents, name, 0)
    for module in guards.modules:
        for part in module.modules():
            walk.attributes(unwrapped(part), "the module", 1)


class _Walk:
    """From variables to what hangs on them. names: the attribute names that the traced code mentions."""

    def __init__(self, guards: Guards, names: frozenset[str]) -> None:
        self.guards, self.names = guards, names
        self.done: set[tuple[int, str]] = set()

    def item(self, namespace: Mapping[str, Any], stem: str, name: str, text: str, depth: int = 0) -> None:
        """namespace[name], once."""
        if (id(namespace), name) not in self.done:
            self.done.add((id(namespace), name))
            code = f"{self.guards.bind(namespace, stem)}.get({name!r})"
            self.variable(code, namespace[name], text, depth)

    def variable(self, code: str, value: Any, text: str, depth: int) -> None:
        """Require the variable `code` to be what it is, and what hangs on it too."""
        if unwrapped(value) is not value:
            self.guards.require_same(code, value, text)
            code, value = f"{code}.__wrapped__", unwrapped(value)
        if is_plain(value):
            self.guards.require_plain(code, value, text)
        elif type(value) in (list, tuple, dict):
            self.container(code, value, text, depth)
        elif is_module(value):
            guard_module(self.guards, code, value, text)
        elif isinstance(value, Tensor | FunctionType):
            self.same(code, value, text)
        elif isinstance(value, type | ModuleType) and not _defined_by_user(value):
            return
        elif isinstance(value, type | ModuleType) or not isinstance(value, IDENTIFIED):
            self.guards.require_same(code, value, text)
            self.attributes(value, text, depth)

    def same(self, code: str, value: Any, text: str) -> None:
        """Require the very Tensor or function; of a Tensor that comes anew with every call, that same one."""
        first = self.guards.tensors.get(id(value))
        if first is None:
            self.guards.require_same(code, value, text)
        elif code != first.code:
            self.guards.require(f"{code} is {first.local}", f"{text} and {first.text} are the same tensor")

    def container(self, code: str, value: Any, text: str, depth: int) -> None:
        """Require the type, the keys and the items of a list, tuple or dict."""
        if len(value) > LARGEST_CONTAINER or depth > DEEPEST:
            return
        keys = list(value) if isinstance(value, dict) else range(len(value))
        local = self.guards.let("container", code)
        kind = self.guards.bind(type(value), "type")
        same_keys = f"len({local}) == {len(value)}"
        if isinstance(value, dict):
            if not all(map(is_plain, keys)):
                return
            same_keys = f"repr(list({local})) == {repr(keys)!r}"
        self.guards.require(f"type({local}) is {kind} and {same_keys}", f"{text} has {len(value)} items")
        for key in keys:
            self.variable(f"{local}[{key!r}]", value[key], f"{text}[{key!r}]", depth + 1)

    def attributes(self, thing: Any, text: str, depth: int) -> None:
        """Require the attributes of `thing` that the code mentions."""
        table = getattr(thing, "__dict__", None)
        if table is None or depth > DEEPEST:
            return
        versioned = is_module(thing)  # a module's own attributes are guarded by its version, what they hold is not
        for name in sorted(self.names & table.keys()):
            value = table[name]
            if not (versioned and (is_plain(value) or isinstance(value, Tensor | FunctionType) or is_module(value))):
                self.item(table, "attributes", name, f"{text}.{name}", depth + 1)


def _defined_by_user(thing: Any) -> bool:
    """Whether a class or a Python module comes from a file of the user's."""
    module = thing if isinstance(thing, ModuleType) else sys.modules.get(thing.__module__)
    filename = getattr(module, "__file__", None)
    return filename is not None and is_users(filename)


def _is_set(cell: Any) -> bool:
    """Whether a closure cell holds anything yet."""
    try:
        return bool(cell.cell_contents is not cell)
    except ValueError:
        return False


def _closures(function: Any) -> list[FunctionType]:
    """`function` and the functions in its closure, theirs, and so on: those that are the user's."""
    found: dict[int, FunctionType] = {}
    todo = [function]
    while todo:
        item = todo.pop()
        item = item.__func__ if isinstance(item, MethodType) else unwrapped(item)
        if isinstance(item, FunctionType) and id(item) not in found and not is_ours(item.__code__.co_filename):
            found[id(item)] = item
            todo.extend(cell.cell_contents for cell in item.__closure__ or () if _is_set(cell))
    return list(found.values())
