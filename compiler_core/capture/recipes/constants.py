"""Objects that a later call may use as they are, because nothing about them changes or because identity is what counts.

In: any object. Out: `is_constant`; `literal`, the source text of a value that Python spells exactly and shortly.
Classes, modules, enum members, dtypes, devices and C functions are constants by identity; so is a function that its
module holds under its own name, which captured code cannot have made.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import re
import sys
import types
import weakref
from typing import Any

import numpy as np

from compiler_core.bytecode.frame import Marker
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.memory_format import memory_format

SCALARS = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
LONGEST_LITERAL = 60  # characters

_EXACT = SCALARS | {
    decimal.Decimal,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    re.Pattern,
    re.Match,
    types.CodeType,
    types.GenericAlias,
    types.UnionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
}
_INSTANCES = (
    type,
    types.ModuleType,
    enum.Enum,
    DType,
    Device,
    memory_format,
    Marker,
    np.generic,
    np.dtype,
    np.ufunc,
    type(np.sum),  # a function of NumPy's that classes may override
)


def is_constant(thing: Any) -> bool:
    """Whether every call may use this very object."""
    kind = type(thing)
    if kind in _EXACT or issubclass(kind, _INSTANCES):
        return True
    if kind is types.BuiltinFunctionType:
        return thing.__self__ is None or isinstance(thing.__self__, type | types.ModuleType)
    if kind is types.FunctionType:
        return is_in_its_module(thing)
    if kind is types.MappingProxyType:
        return "__dict__" in thing or "__weakref__" in thing  # a class's
    if kind is weakref.ref:
        return thing() is None
    if kind is object:
        return is_sentinel(thing)
    return kind.__module__ in ("typing", "typing_extensions")


_sentinels: tuple[tuple[int, int], dict[int, object]] = (0, 0), {}  # how many modules and names, and what they hold


def is_sentinel(thing: object) -> bool:
    """Whether a module holds this object, which means nothing but itself.

    Modules have 100,000 names and more: they are looked through when there are more or fewer of them than before.
    """
    global _sentinels
    tables = [vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    size = len(tables), sum(map(len, tables))
    if size != _sentinels[0]:
        held = (value for table in tables for value in list(table.values()))
        _sentinels = size, {id(value): value for value in held if type(value) is object}
    return id(thing) in _sentinels[1]


def is_in_its_module(thing: Any) -> bool:
    """Whether a module holds the function under the name that it bears."""
    found: Any = sys.modules.get(thing.__module__)
    if found is None or "<" in thing.__qualname__:
        return False
    for name in thing.__qualname__.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return getattr(found, "__func__", found) is thing


def literal(thing: Any) -> str | None:
    """Source text that evaluates to an equal value of the same type; None if there is none, or a long one."""
    kind = type(thing)
    if kind is float and not math.isfinite(thing):
        return None
    if kind in (bool, int, float, type(None)) or (kind in (str, bytes) and len(thing) <= LONGEST_LITERAL):
        text = repr(thing)
        return text if len(text) <= LONGEST_LITERAL else None
    return "..." if thing is ... else None
