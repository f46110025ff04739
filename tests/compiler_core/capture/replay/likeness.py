"""Whether two object graphs are alike: same types, same contents, same sharing, object by object.

In: two objects. Out: `alike(a, b)`: None, or a text that says where they differ. What an object holds is read from its
attributes here, not by the code under test.
"""

from __future__ import annotations

import collections
import functools
import itertools
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core.bytecode.frame import Frame
from compiler_core.capture.recipes.constants import is_constant
from compiler_core.tensor.tensor import Tensor


def alike(first: Sequence[Any], second: Sequence[Any], same: Callable[[Any], bool] = lambda thing: False) -> str | None:
    """Where two graphs differ. same: what must be the very same object in both (it came from outside)."""
    there: dict[int, int] = {}
    back: dict[int, int] = {}
    keep: list[Any] = []
    waiting: list[tuple[Any, Any, str]] = [(first, second, "")]
    while waiting:
        a, b, path = waiting.pop()
        keep += [a, b]
        if type(a) is not type(b):
            return f"{path}: {type(a)} and {type(b)}"
        if same(a) or is_constant(a):
            if a is not b and not (type(a) in (int, float, str, bytes, complex) and repr(a) == repr(b)):
                return f"{path}: {a!r} is not the same"
            continue
        if there.get(id(a), id(b)) != id(b) or back.get(id(b), id(a)) != id(a):
            return f"{path}: shared otherwise"
        if id(a) in there:
            continue
        if a is b and type(a) is not Tensor and not is_frozen(a):
            return f"{path}: {type(a)} is the very object"
        if not is_frozen(a):
            there[id(a)], back[id(b)] = id(b), id(a)
        parts_a, parts_b = contents(a), contents(b)
        if len(parts_a) != len(parts_b):
            return f"{path}: {len(parts_a)} and {len(parts_b)} parts of {type(a)}"
        for (name, x), (name_b, y) in zip(parts_a, parts_b):
            if name != name_b:
                return f"{path}: {name} and {name_b}"
            waiting.append((x, y, f"{path}.{name}"))
    return None


def is_frozen(thing: Any) -> bool:
    """Whether identity says nothing: values that may be one constant, and methods, which are made when looked up."""
    return issubclass(
        type(thing),
        tuple | frozenset | slice | range | str | int | float | types.MethodType | types.BuiltinFunctionType,
    ) or type(thing) in (types.MethodWrapperType, weakref.ref)


def contents(thing: Any) -> list[tuple[str, Any]]:
    """What an object holds: (name, part)."""
    found: list[tuple[str, Any]] = []
    if issubclass(type(thing), Tensor):
        return [("table", vars(thing))]
    if issubclass(type(thing), collections.OrderedDict):
        for i, (key, value) in enumerate(collections.OrderedDict.items(thing)):
            found += [(f"key{i}", key), (f"value{i}", value)]
    elif issubclass(type(thing), dict):
        for i, (key, value) in enumerate(dict.items(thing)):
            found += [(f"key{i}", key), (f"value{i}", value)]
    elif issubclass(type(thing), tuple | list | collections.deque):
        found += [(str(i), item) for i, item in enumerate(iter_raw(thing))]
    elif issubclass(type(thing), set | frozenset):
        found += [(f"item{i}", item) for i, item in enumerate(sorted(thing, key=_order))]
    elif issubclass(type(thing), np.ndarray):
        found += [("text", repr((thing.tolist(), thing.dtype, thing.shape, thing.flags.writeable)))]
    elif issubclass(type(thing), int | float | str | bytes):
        found += [
            ("text", next(base for base in (int, float, str, bytes) if issubclass(type(thing), base)).__repr__(thing))
        ]
    elif issubclass(type(thing), types.CellType):
        try:
            found += [("contents", thing.cell_contents)]
        except ValueError:
            found += [("empty", None)]
    elif type(thing) in ITERATORS:
        with warnings.catch_warnings():  # itertools' is deprecated from 3.12 on
            warnings.simplefilter("ignore", DeprecationWarning)
            function, arguments, *state = thing.__reduce__()
        found += [("function", function), ("state", tuple(state[:1])), *((str(i), a) for i, a in enumerate(arguments))]
    elif type(thing) in (type({}.keys()), type({}.values()), type({}.items())):
        found += [(str(i), item) for i, item in enumerate(thing)]
    elif issubclass(type(thing), weakref.ref):
        found += [("target", weakref.ref.__call__(thing)), ("callback", thing.__callback__)]
    for name in ATTRIBUTES.get(type(thing), ()):
        found.append((name, getattr(thing, name)))
    if issubclass(type(thing), BaseException):
        found += [("args", thing.args), ("cause", thing.__cause__)]
        found += [
            (name, getattr(thing, name)) for name in ("value", "errno", "filename", "name") if hasattr(thing, name)
        ]
    if issubclass(type(thing), collections.defaultdict):
        found.append(("factory", thing.default_factory))
    if issubclass(type(thing), collections.deque):
        found.append(("maxlen", thing.maxlen))
    for base in type(thing).__mro__:
        for name, member in vars(base).items() if "__slots__" in vars(base) else ():
            if isinstance(member, types.MemberDescriptorType) and type(thing) is not Frame:
                try:
                    found.append((name, member.__get__(thing)))
                except AttributeError:
                    found.append((name, "<unset>"))
    try:
        table = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        table = None
    if table is not None and not issubclass(type(thing), property | staticmethod | classmethod):
        found.append(("table", table))
    return found


def iter_raw(thing: Any) -> list[Any]:
    """The items, whatever the class says of iteration."""
    base: Any = next(base for base in (tuple, list, collections.deque) if isinstance(thing, base))
    return list(base.__iter__(thing))


def _order(item: Any) -> str:
    return str(getattr(item, "mark", item))


ITERATORS = {
    *map(type, [iter([]), iter(()), iter(""), iter(range(1)), iter({}), iter({}.items()), iter(set()), reversed([])]),
    *(kind for kind in vars(itertools).values() if isinstance(kind, type) and "__reduce__" in vars(kind)),
    *(enumerate, zip, map, filter, reversed),
}
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    types.FunctionType: (
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__closure__",
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
    ),
    types.MethodType: ("__func__", "__self__"),
    types.BuiltinFunctionType: ("__name__", "__self__"),
    types.MethodWrapperType: ("__name__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    property: ("fget", "fset", "fdel", "__doc__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    slice: ("start", "stop", "step"),
    range: ("start", "stop", "step"),
    Frame: ("code", "globals", "locals", "stack", "next", "completion", "pending", "handled", "keyword_names"),
}
