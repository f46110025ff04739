"""Kinds of values, by how they are guarded: constants, objects that are guarded by identity, containers, attributes.

In: any object. Out: what it is.
"""

from __future__ import annotations

import array
import copy
import datetime
import decimal
import functools
import gc
import operator
import re
import struct
from collections import OrderedDict, deque
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    ModuleType,
    UnionType,
)
from typing import Any

import numpy as np

from compiler_core.bytecode.frame import Marker
from compiler_core.capture.guards.arguments import IDENTIFIED
from compiler_core.capture.guards.deaths import Mortal
from compiler_core.capture.guards.guards import is_plain
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.tensor.size import Size

CONTAINERS = (list, tuple, dict, set, frozenset, deque)
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
VIEWS: tuple[Any, ...] = (*map(type, ({}.keys(), {}.values(), {}.items())), MappingProxyType)
_ABSENT = object()
_ITERABLE: tuple[Any, ...] = (list, set, frozenset, tuple, deque)
_BUFFERS = (np.ndarray, bytearray, memoryview, array.array)
_DATA = (
    *(decimal.Decimal, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo),
    *(GenericAlias, UnionType, CodeType),
)


def is_constant(value: Any) -> bool:
    """Whether a value is data that its guard spells in full."""
    return isinstance(value, Marker) or value is Ellipsis or value is NotImplemented or is_scalar(value)


def is_scalar(value: Any) -> bool:
    """Plain data that is no container."""
    return type(value) not in (tuple, frozenset) and is_plain(value)


def is_identified(value: Any) -> bool:
    """Whether an object is guarded by being the very one."""
    if getattr(type(value), "__wraps_original__", False):
        return True
    if isinstance(value, (functools._lru_cache_wrapper, re.Pattern, struct.Struct, *GETTERS)):
        return True
    if is_module(value) or _is_library_function(value):
        return True
    return isinstance(value, IDENTIFIED) and not isinstance(value, (FunctionType, MethodType)) and not (
        isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, (ModuleType, type(None)))
    )  # fmt: skip


def _is_library_function(value: Any) -> bool:
    """Whether a function of this library, made once: to compare it is quicker than to compare its code."""
    if type(value) is not FunctionType or value.__closure__ is not None or "<locals>" in value.__qualname__:
        return False
    return str(value.__module__).startswith(("distcompile.", "compiler_core."))


def is_registry(thing: Any) -> bool:
    """Whether a module's table of parameters, buffers, children or hooks, which stamps the module when it changes."""
    return isinstance(thing, dict) and "stamp" in (own_attributes(thing) or ())


def is_key(key: Any) -> bool:
    """Whether a dictionary's key can be guarded by itself."""
    return is_constant(key) or is_identified(key) or (type(key) in (tuple, Size) and all(map(is_key, key)))


def plain_copy(container: Any) -> Any:
    """The items of a container, in a container that is only that. Keys are not hashed again, where that can be."""
    if isinstance(container, OrderedDict):
        return dict(OrderedDict.items(container))
    if isinstance(container, dict):
        return dict.copy(container)
    if isinstance(container, set):
        return set.copy(container)
    for kind in _ITERABLE:
        if isinstance(container, kind):
            return kind(kind.__iter__(container))
    return copy.copy(container)


def shows_by_code(cls: type) -> bool:
    """Whether a container's class would run code of the program's to show what it holds."""
    return cls not in CONTAINERS and any(isinstance(getattr(cls, name, None), FunctionType) for name in _SHOWING)


_SHOWING = ("__getitem__", "__len__", "__contains__", "__iter__", "__eq__", "__bool__", "__getattribute__")


def match_content(match: re.Match[Any]) -> tuple[Any, ...]:
    """What a match has found, and where."""
    return match.string, match.re, match.regs, match.pos, match.endpos


def raw_item(container: Any, key: Any) -> Any:
    """The item that the container itself holds, whatever its class says."""
    kind: Any = next((kind for kind in (dict, list, tuple, deque) if isinstance(container, kind)), None)
    return container[key] if kind is None else kind.__getitem__(container, key)


def _key(key: Any) -> Any:
    return key if is_key(key) else ("object", id(key))


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and is_plain(a) and a == b and repr(a) == repr(b))


def is_key_of(key: object, kept: Any) -> bool:
    """Whether a key is one that was kept, itself or a weak reference to it."""
    return kept() is key if type(kept) is Mortal else _same(key, kept)


def viewed(view: Any) -> Any:
    """The dictionary that a view of keys, values or items, or a proxy, shows."""
    return next(iter(gc.get_referents(view)))


def in_cell(cell: CellType) -> Any:
    """What a closure's cell holds; None of an empty one."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def own_attributes(owner: Any) -> dict[str, Any] | None:
    """The object's `__dict__`, if it has one."""
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


def is_plain_instance(owner: Any) -> bool:
    """Whether `object` itself says how it is copied, and that by its `__dict__` alone."""
    kind = type(owner)
    inherited = all(getattr(kind, name) is getattr(object, name) for name in ("__new__", "__reduce__", "__reduce_ex__"))
    more = any(vars(base).get("__slots__") for base in kind.__mro__) or hasattr(kind, "__getnewargs__")
    return inherited and not more and not hasattr(kind, "__getnewargs_ex__") and own_attributes(owner) is not None


def key_of(owner: Any, name: str) -> tuple[int, str]:
    """Where `written` keeps an attribute: with the dictionary that holds it, which the program may write to, too."""
    own = own_attributes(owner)
    return (id(owner) if own is None else id(own), name)
