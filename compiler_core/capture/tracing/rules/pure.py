"""Whether what is written in C only computes: same arguments, same result, and nothing changes.

In: a callable, its owner, a class, an operand. Out: whether the tables of `pure_table.py` say so: they list what is
known, so that what nobody has looked at ends the graph. What `operator`'s getters read is not theirs alone: `getting`
says how.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from math import isfinite
from types import BuiltinFunctionType, SimpleNamespace
from typing import Any

import numpy as np

from compiler_core.capture.guards.kinds import is_constant
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.rules.pure_table import (
    BY_CONTEXT,
    FUNCTIONS,
    HELD,
    MADE,
    METHODS,
    OF_CLASSES,
    SLOTS,
    named,
)

_FUNCTIONS = named(FUNCTIONS)
_METHODS = {kind: frozenset(names.split()) for kind, names in METHODS.items()}
_OF_CLASSES = {kind: frozenset(names.split()) for kind, names in OF_CLASSES.items()}
_ZONES = (type(None), datetime.timezone)
_ASKS_MORE = (decimal.Decimal, datetime.datetime, datetime.time)  # than their own content
# that keep their arguments and ask nothing of them
KEEPS = frozenset(
    {
        *(list, tuple, dict, set, frozenset, deque, zip, enumerate, reversed, object, super, property, staticmethod),
        *(classmethod, functools.partial, itertools.chain, itertools.cycle, itertools.repeat, dict.fromkeys, callable),
        *(isinstance, issubclass, defaultdict, OrderedDict, SimpleNamespace, operator.methodcaller),
    }
)
# what C code asks of an object of the program's; and by what it reads one that is written in C itself
ASKED = dict.fromkeys((int, float), ("__int__", "__float__", "__index__", "__trunc__"))
OPERATED = (
    *("__index__", "__float__", "__int__", "__complex__", "__abs__", "__round__", "__trunc__", "__floor__", "__ceil__"),
    *("__bool__", "__neg__", "__pos__", "__invert__", "__getitem__", "__contains__", "__divmod__", "__rdivmod__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__add__", "__radd__", "__sub__", "__rsub__"),
    *("__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__"),
    *("__pow__", "__rpow__", "__matmul__", "__rmatmul__", "__and__", "__rand__", "__or__", "__ror__", "__xor__"),
    *("__rxor__", "__lshift__", "__rlshift__", "__rshift__", "__rrshift__", "__format__", "__call__", "__bytes__"),
    *("__str__", "__repr__", "__hash__", "__length_hint__", "__reversed__", "__fspath__", "__buffer__"),
)
READ = ("__iter__", "__len__", "__getitem__", "__index__", "__float__", "__int__", "__buffer__")


def is_pure(function: Any) -> bool:
    """Whether a callable written in C only computes: a function, a method of a class, a class that makes objects."""
    if isinstance(function, type):
        return is_pure_class(function)
    if type(function) is not BuiltinFunctionType:
        return False
    owner = function.__self__
    return is_pure_of_class(owner, function.__name__) if isinstance(owner, type) else function in _FUNCTIONS


def is_pure_of_class(cls: type, name: str) -> bool:
    """Whether a method of a class itself, written in C, only computes: `dict.fromkeys`, `int.from_bytes` ..."""
    return any(name in _OF_CLASSES.get(base, ()) for base in cls.__mro__)


def is_pure_method(owner: Any, name: str) -> bool:
    """Whether a method of an object, written in C, only computes, of what that holds and its arguments."""
    kind = type(owner)
    if kind not in _METHODS and not is_constant(owner) and not isinstance(owner, (tuple, frozenset)):
        return False
    names = [_METHODS[base] for base in kind.__mro__ if base in _METHODS]
    known = bool(names) and (name in SLOTS or any(name in some for some in names))
    return known and not (kind is decimal.Decimal and name in BY_CONTEXT) and has_known_zone(owner)


def is_pure_method_of(cls: type, name: str) -> bool:
    """The same of the instances of a class that this method is defined by: `str.upper`."""
    return cls in _METHODS and (name in SLOTS or name in _METHODS[cls]) and cls not in _ASKS_MORE


def has_known_zone(value: Any) -> bool:
    """Whether a time's zone, if it is one that has a zone, is told without code of the program's."""
    return not isinstance(value, (datetime.datetime, datetime.time)) or type(value.tzinfo) in _ZONES


def is_known_slot(cls: type, base: type, name: str) -> bool:
    """Whether an operator of `cls`, defined by its base `base` in C, only computes of what is guarded otherwise."""
    if base in HELD or is_ours_class(base) or issubclass(base, BaseException):
        return True
    known = base in _METHODS or issubclass(base, np.generic)
    return known and not (base is decimal.Decimal and name in BY_CONTEXT)


def uses_up(function: Any) -> bool:
    """Whether a function that only computes asks the iterators that it is given for all that they have, at once."""
    owner = getattr(function, "__self__", None)
    return function in _USING_UP or (isinstance(owner, (str, bytes)) and function.__name__ == "join")


_USING_UP = frozenset(
    {
        *(deque, OrderedDict, defaultdict, bytes, bytearray, math.prod, math.fsum, dict.fromkeys),
        *(itertools.product, itertools.permutations, itertools.combinations),
    }
)


def getting(getter: Any, owner: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """operator.attrgetter, itemgetter or methodcaller, called: what reads as the program would, and its arguments."""
    made, parts = getter.__reduce__()
    if type(getter) is operator.attrgetter:
        return polyfills.attributes, (owner, parts)
    if type(getter) is operator.itemgetter:
        return polyfills.items, (owner, parts)
    if isinstance(made, functools.partial):
        return polyfills.call_method, (owner, *made.args, parts, made.keywords)
    return polyfills.call_method, (owner, parts[0], parts[1:], {})


def is_numbers(items: Any) -> bool:
    """Whether a list or tuple of finite numbers."""
    return type(items) in (list, tuple) and all(type(item) in (int, float) and isfinite(item) for item in items)


def makes_only(new: Any) -> bool:
    """Whether a `__new__` written in C only makes the object."""
    owner = getattr(new, "__self__", None)
    if getattr(new, "__name__", "") != "__new__" or not isinstance(owner, type):
        return False
    return owner in MADE or issubclass(owner, BaseException) or is_ours_class(owner)


def is_pure_class(cls: type) -> bool:
    """Whether a class written in C whose making only computes."""
    return cls in MADE


def is_plain_class(cls: type) -> bool:
    """Whether making an instance of a class without an `__init__` in Python only computes."""
    if is_ours_class(cls):
        return True
    known = (object.__init__, *(base.__init__ for base in (list, dict, set, deque, OrderedDict, defaultdict)))
    return makes_only(cls.__new__) and (issubclass(cls, BaseException) or cls.__init__ in known)


def is_ours_class(cls: type) -> bool:
    return cls.__module__.split(".")[0] in ("compiler_core", "distcompile")


def is_seeding(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a generator of random numbers is made, or seeded again, by chance."""
    if function.__name__ not in ("__init__", "seed"):
        return False
    return all(value is None for value in (*args[1:2], *(kwargs[name] for name in "ax" if name in kwargs)))
