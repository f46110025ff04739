"""C functions and classes of Python's library that only compute: same arguments, same result, and nothing changes.

In: a callable, or its owner. Out: whether it is one of these. What `operator`'s getters read is not theirs alone:
`getting` says how.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from math import isfinite
from types import ModuleType
from typing import Any

from compiler_core.capture import polyfills
from compiler_core.capture.guards.module_protocol import is_module

_MODULES = frozenset(
    {
        *("math", "cmath", "operator", "_operator", "itertools", "_functools", "_collections", "_bisect", "_heapq"),
        *("_struct", "binascii", "zlib", "_statistics", "re", "_sre", "unicodedata", "_string", "_json", "_datetime"),
    }
)
_BUILTINS = frozenset(
    {
        *("abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "hash", "hex", "isinstance"),
        *("issubclass", "len", "max", "min", "oct", "ord", "pow", "repr", "round", "sorted", "sum", "iter"),
    }
)
_CHANGES = frozenset(
    {"heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right"}
    | {"_heapify_max", "_heapreplace_max", "_heappop_max", "pack_into", "_count_elements", "cmp_to_key"}
)
_CHANGES |= {"setitem", "delitem", "iadd", "iconcat", "ior", "iand", "isub", "imul", "length_hint"}
_CHANGES |= {"itruediv", "ifloordiv", "imod", "ipow", "imatmul", "ixor", "ilshift", "irshift"}


def is_pure(function: Any) -> bool:
    """Whether a callable written in C only computes."""
    name = getattr(function, "__name__", "")
    module = getattr(function, "__module__", None)
    owner = getattr(function, "__self__", None)
    if owner is builtins:
        return name in _BUILTINS
    return module in _MODULES and name not in _CHANGES and function is not functools.reduce


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


def function_is_new(function: Any) -> bool:
    """Whether a `__new__` of a class written in C whose making only computes."""
    owner = getattr(function, "__self__", None)
    return function.__name__ == "__new__" and isinstance(owner, type) and is_plain_class(owner)


PURE_CLASSES = frozenset(
    {
        *(int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range, slice, object, deque),
        *(functools.partial, operator.itemgetter, operator.attrgetter, operator.methodcaller),
        *(bytearray, memoryview, type, super, property, staticmethod, classmethod, enumerate, zip, reversed),
    }
)


PURE_MODULES = frozenset({"itertools", "types", "collections", "decimal", "fractions", "datetime"})


def is_heap_type(cls: type) -> bool:
    """Whether a class was made by a class statement."""
    return bool(cls.__flags__ & (1 << 9)) and not cls.__flags__ & (1 << 8)  # a heap type, and not an immutable one


def is_pure_class(cls: type) -> bool:
    """Whether a builtin class whose making only computes."""
    return cls in PURE_CLASSES or (cls.__module__ in PURE_MODULES and not is_heap_type(cls))


def is_plain_class(cls: type) -> bool:
    """Whether making an instance of a class without an `__init__` in Python only computes."""
    return (
        issubclass(cls, (BaseException, list, dict, set, tuple, int, float, str, deque))
        or cls.__new__ is object.__new__
        or is_pure_class(cls)
        or is_ours_class(cls)
    )


def is_ours_class(cls: type) -> bool:
    return cls.__module__.split(".")[0] in ("compiler_core", "distcompile")


def is_pure_object(owner: Any) -> bool:
    """Whether an object's C methods only compute: patterns, ranges, dates, keys of dictionaries ..."""
    module = type(owner).__module__
    if module not in PURE_MODULES and module not in ("re", "builtins", "operator"):
        return False
    return not (isinstance(owner, (ModuleType, type)) or hasattr(owner, "fileno") or is_module(owner))
