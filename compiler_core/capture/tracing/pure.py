"""C functions of Python's library that only compute: the same arguments give the same result, and nothing changes.

In: a callable. Out: whether it is one of these. What `operator`'s getters read is not theirs alone: `getting` says how.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from typing import Any

from compiler_core.capture import polyfills

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
