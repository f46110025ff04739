"""Overridable functions: they compute, and from the first moment that something overrides they ask first who it is.

In: functions under their public names. Out: `overridable`, which notes one. `turn_on`: from now on all of them look at
their arguments; called when the first instance of a subclass that overrides is made, a mode is entered, or an argument
of another class with `__torch_function__` is met.
Method: a function keeps its identity, which tables like `{torch.mean: ...}` rely on, and is given other code: before
the switch its own, so that plain tensors pay nothing; after it `_ASKS`, which compares the types of the arguments, and
calls what the function was made of, `Entry.origin`. What the package calls in itself are other function objects.
"""

from __future__ import annotations

import threading
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from compiler_core.ops.registry import TURN_ON
from compiler_core.overrides import calls, state

ENTRIES: dict[int, calls.Entry] = {}  # by id of the function that was noted
_PUBLIC: dict[int, FunctionType] = {}  # by id of what an operator was made of: the operator
_waiting: list[FunctionType] = []  # those that do not ask yet
_lock = threading.RLock()  # a finaliser may come while the lock is held
is_on = False


def copy_of(function: FunctionType, name: str = "") -> FunctionType:
    """A function object of its own that does the same."""
    new = FunctionType(
        function.__code__, function.__globals__, name or function.__name__, function.__defaults__, function.__closure__
    )
    new.__kwdefaults__, new.__doc__, new.__module__ = function.__kwdefaults__, function.__doc__, function.__module__
    new.__annotations__, new.__qualname__ = function.__annotations__, function.__qualname__
    new.__dict__.update(function.__dict__)
    return new


def overridable(function: FunctionType, entry: calls.Entry, at_once: bool = False) -> None:
    """Note that `function` is overridable: once the switch is on, or at once, it asks, by `entry`, who overrides."""
    with _lock:
        ENTRIES[id(function)] = entry
        if entry.is_operator:
            _PUBLIC[id(entry.origin)] = function
        if is_on or at_once:
            _give_code(function, entry)
        else:
            _waiting.append(function)


def met(operator: Any, self: Any, other: Any) -> Any:
    """What an operator of Tensor gives for something it does not know: it may override."""
    if state.method_of(type(other)) is None:
        return NotImplemented
    turn_on()
    return _PUBLIC[id(vars(operator).get("outer", operator))](self, other)


def turn_on() -> None:
    """From now on overridable functions ask who overrides: all of them, when this returns, in whatever thread."""
    global is_on
    if is_on:
        return
    with _lock:
        for function in _waiting:
            _give_code(function, ENTRIES[id(function)])
        _waiting.clear()
        is_on = True


def _give_code(function: FunctionType, entry: calls.Entry) -> None:
    parts = (entry, entry.origin, state.plain.issuperset, calls.handle)
    code = _asking_code(len(function.__code__.co_freevars))
    constants = tuple(parts if constant == "PARTS" else constant for constant in code.co_consts)
    function.__code__ = code.replace(co_consts=constants, co_name=function.__name__)
    vars(function).setdefault("__wrapped__", entry.origin)  # its signature stays


# the code of a function that asks; PARTS: the entry, its origin, whether types are plain, calls.handle
_ASKS = """
def outer():
    {variables} = None
    def asks(*args, **kwargs):
        entry, origin, are_plain, handle = "PARTS"
        if are_plain(map(type, args)) and (not kwargs or are_plain(map(type, kwargs.values()))):
            return origin(*args, **kwargs)
        return handle(entry, args, kwargs)
        {names}
    return asks
"""


@cache
def _asking_code(free: int) -> CodeType:
    """It has as many free variables as the code it replaces: they belong to the function, and are left alone."""
    namespace: dict[str, Any] = {}
    names = [f"v{number}" for number in range(free)]
    text = _ASKS.format(variables=" = ".join(names or ["_"]), names=", ".join(names))
    exec(compile(text, __file__, "exec"), namespace)
    asks: FunctionType = namespace["outer"]()
    return asks.__code__


TURN_ON.fill(turn_on)
