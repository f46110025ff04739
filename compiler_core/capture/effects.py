"""Traced code that changes Python state outliving the call (`losses.append(...)`, `global n; n += 1`): a graph break.

In: a compiled function and the arguments of a call. While `EffectWatch` is entered, the function is traced. Out: where
lists, dicts, sets, attributes of the user's objects and classes, closure variables, globals, small NumPy arrays or
generators of random numbers that were there before have changed, they are put back, and EffectBreak is raised: the call
runs eager, and the change happens once, as it must in every call.
`made` holds the plain instances that the function made, so that results may be built of them.
Method: shallow copies of what the arguments, the closures and the containers in modules hold, taken before; and of what
the globals hold that a function names, taken when it is first called. Compared by identity, item by item.
What `functools.cached_property` keeps is no change.
Limits: iterators, slots, large arrays, files and other state of the system are not watched. Modules guard their own
attributes (`module_protocol.py`).
"""

from __future__ import annotations

import dis
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType, SimpleNamespace, TracebackType
from typing import Any

from compiler_core.capture.code_names import names_of
from compiler_core.capture.environment import is_called_by_the_collector, is_users
from compiler_core.capture.module_protocol import is_module, unwrapped
from compiler_core.capture.python_state import has_changed, is_users_class, restore, state_of
from compiler_core.capture.pytree import is_plain_instance
from compiler_core.errors import EffectBreak, GraphBreak
from compiler_core.location import is_ours
from compiler_core.tensor.tensor import Tensor

LARGEST_CONTAINER = 64  # items of a container that are looked into
DEEPEST = 3  # containers in containers in ...

_SEQUENCES = (list, deque)
_MAPPINGS = (dict, OrderedDict, defaultdict)
_ABSENT = object()


class EffectWatch:
    """See the head of this file."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._containers: dict[int, tuple[Any, Any, str]] = {}  # id -> container, copy, name
        self._states: dict[int, tuple[Any, Any, str]] = {}  # id -> generator, array or class, its state, name
        self._cells: list[tuple[CellType, Any, str]] = []
        self._globals: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}
        self._seen: set[CodeType] = set()
        self._functions: set[FunctionType] = set()
        self.made: dict[int, Any] = {}  # id -> plain instance whose `__init__` ran
        self._keep(function, "self", 0)
        for argument in (*args, *kwargs.values()):
            self._keep(argument, "an argument", 0)

    def __enter__(self) -> EffectWatch:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        sys.settrace(self._before)
        if error is not None and not isinstance(error, GraphBreak):
            return  # the user's exception: what was changed before it stays, as it does eager
        changed = [*self._put_back()]
        if changed and error is None:
            raise EffectBreak(
                f"the compiled function changes {', '.join(dict.fromkeys(changed))}, which outlives the call",
                remedy="return the new value instead, or make the change outside of the compiled function",
            )

    def _called(self, frame: FrameType, event: Any, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name == "__init__":
            self._keep_made(frame)
        if code not in self._seen:
            self._seen.add(code)
            if is_users(code.co_filename) and not is_called_by_the_collector(code):
                self._keep_globals(code, frame.f_globals)
        return None if self._before is None else self._before(frame, event, arg)

    def _keep_made(self, frame: FrameType) -> None:
        """Note an instance that is being made."""
        instance = frame.f_locals.get(frame.f_code.co_varnames[0]) if frame.f_code.co_argcount else None
        if is_plain_instance(instance) and not vars(instance):
            self.made[id(instance)] = instance

    def _keep_globals(self, code: CodeType, namespace: dict[str, Any]) -> None:
        for name in _stored_globals(code):
            self._globals.setdefault((id(namespace), name), (namespace, namespace.get(name, _ABSENT)))
        for name in names_of(code).globals:
            self._keep(namespace.get(name), f"what {name!r} holds", 0)

    def _keep(self, thing: Any, name: str, depth: int) -> None:
        """Copy `thing` if it is a container or an object of the user's, and what is in it."""
        thing = unwrapped(thing)
        if id(thing) in self._containers or depth > DEEPEST or isinstance(thing, (Tensor, ModuleType)):
            return
        if id(thing) not in self._states and (state := state_of(thing)) is not None:
            self._states[id(thing)] = (thing, state, name)
        if is_module(thing):
            self._keep_module(thing, depth)
        elif isinstance(thing, MethodType):
            self._keep_all((thing.__self__, thing.__func__), name, depth)
        elif isinstance(thing, FunctionType):
            self._keep_variables(thing, depth)
        elif type(thing) in (*_SEQUENCES, *_MAPPINGS, set):
            self._containers[id(thing)] = (thing, thing.copy(), name)
            if len(thing) <= LARGEST_CONTAINER:
                self._keep_all(thing.values() if isinstance(thing, dict) else thing, name, depth)
        elif type(thing) is tuple:
            self._keep_all(thing[:LARGEST_CONTAINER], name, depth)
        elif _is_users_object(thing):
            self._containers[id(thing)] = (thing, dict(vars(thing)), name)
            self._keep(type(thing), name, depth)
            self._keep_all(vars(thing).values(), name, depth)

    def _keep_all(self, things: Iterable[Any], name: str, depth: int) -> None:
        for thing in things:
            self._keep(thing, name, depth + 1)

    def _keep_variables(self, function: FunctionType, depth: int) -> None:
        """Copy what the closure of a function of the user's holds."""
        if function in self._functions or is_ours(function.__code__.co_filename):
            return
        self._functions.add(function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            value = _contents(cell)
            self._cells.append((cell, value, f"the variable {name!r}"))
            self._keep(value, f"what {name!r} holds", depth + 1)

    def _keep_module(self, module: Any, depth: int) -> None:
        for part in module.modules():
            self._keep(type(unwrapped(part)), type(part).__name__, depth)
            for name, value in vars(unwrapped(part)).items():
                if name.startswith("_") and name.endswith("_hooks"):
                    self._keep_all([getattr(hook, "fn", hook) for hook in value.values()], "what a hook holds", depth)
                if not name.startswith("_") and not is_module(unwrapped(value)):
                    self._keep(value, f"what {name!r} of {type(part).__name__} holds", depth + 1)

    def _put_back(self) -> Iterator[str]:
        """Undo what has changed, and name it."""
        for thing, copy, name in self._containers.values():
            now = vars(thing) if _is_users_object(thing) else thing
            cached = _cached_properties(type(thing))
            if _differ(now, copy, cached):
                _refill(now, copy)
                yield name
        for thing, state, name in self._states.values():
            if has_changed(thing, state):
                restore(thing, state)
                yield name
        for cell, value, name in self._cells:
            if _contents(cell) is not value:
                _set_contents(cell, value)
                yield name
        for (_, name), (namespace, value) in self._globals.items():
            if namespace.get(name, _ABSENT) is not value:
                _refill_item(namespace, name, value)
                yield f"the global {name!r}"


@cache
def _stored_globals(code: CodeType) -> tuple[str, ...]:
    """The globals that code assigns or deletes."""
    opcodes = ("STORE_GLOBAL", "DELETE_GLOBAL")
    return tuple(dict.fromkeys(str(i.argval) for i in dis.get_instructions(code) if i.opname in opcodes))


def _is_users_object(thing: Any) -> bool:
    """Whether `thing` is an instance, with attributes, of a class written in Python by the user."""
    if type(thing) is SimpleNamespace:
        return True
    if isinstance(thing, (FunctionType, MethodType)) or not hasattr(thing, "__dict__") or is_module(thing):
        return False
    return is_users_class(type(thing))


def _cached_properties(kind: type) -> frozenset[str]:
    return frozenset(n for base in kind.__mro__ for n, v in vars(base).items() if isinstance(v, cached_property))


def _differ(now: Any, copy: Any, ignored: frozenset[str]) -> bool:
    """Whether other items are in a container than in its copy."""
    if isinstance(now, dict):
        keys = (now.keys() | copy.keys()) - ignored
        return any(now.get(key, _ABSENT) is not copy.get(key, _ABSENT) for key in keys)
    if isinstance(now, set):
        return bool(now != copy)
    return len(now) != len(copy) or any(a is not b for a, b in zip(now, copy))


def _refill(container: Any, items: Any) -> None:
    container.clear()
    container.extend(items) if isinstance(container, _SEQUENCES) else container.update(items)


def _refill_item(namespace: dict[str, Any], name: str, value: Any) -> None:
    if value is _ABSENT:
        del namespace[name]
    else:
        namespace[name] = value


def _contents(cell: CellType) -> Any:
    """What a closure variable holds; _ABSENT if nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _set_contents(cell: CellType, value: Any) -> None:
    if value is _ABSENT:
        del cell.cell_contents
    else:
        cell.cell_contents = value
