"""Rules for builtins and functions of itertools that are given iterables, or a function to call on their items.

In: the parts and a call's arguments. Out: its result, natively where nothing of the program's runs; else Enter of a
polyfill, which is Python that does the same. `RULES`: callable -> rule.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from collections.abc import Callable
from types import MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.kinds import CONTAINERS, is_constant
from compiler_core.capture.numbers.functions import computed, is_computed, is_computed_of
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.polyfills import of_itertools as polyfills_itertools
from compiler_core.capture.tracing.containers import drained
from compiler_core.capture.tracing.rules.pure import is_pure, is_pure_method_of
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_NATIVE_ITERABLES = (*CONTAINERS, dict, str, bytes, range)
_HASHING = (set, frozenset)
_KEEPING = (list, tuple, zip, enumerate)  # the items of a list that these are given, they hand on as they are
_COMPARING = (builtins.max, builtins.min, builtins.sorted, builtins.sum, builtins.any, builtins.all)


def _by_polyfill(function: Any, polyfill: Callable[..., Any], *, takes_function: bool = False) -> Any:
    """A rule: natively where nothing of the program's runs, else the polyfill. takes_function: its first argument."""

    def rule(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
        if not kwargs and is_computed(function, args):
            return computed(parts.numbers, function, args)
        if function in (sum, min, max) and len(args) == 1 and not kwargs and is_computed_of(args[0]):
            return computed(parts.numbers, function, tuple(args[0]), "{}(({},))")
        given = list(kwargs.values())
        iterables = args[1:] if takes_function else args
        called = any(map(_may_be_called, (*args, *given)))
        compared = function in (max, min) and len(args) > 1 and _holds_program_objects(parts, args)
        takes_parts = takes_function and not all(map(_holds_constants, iterables))
        if called or compared or takes_parts or any(_runs(parts, value) for value in iterables):
            return parts.call(polyfill, args, kwargs)
        if function in _HASHING and args and parts.numbers.any_change:
            args = iterables = (parts.numbers.specialise(drained(args[0])), *args[1:])
        for value in iterables:
            _read(parts, function, value)
        if function in _KEEPING or function in _COMPARING:
            kept = [value if isinstance(value, (list, tuple)) else parts.numbers.specialise(value) for value in args]
            return parts.native.run(function, *kept, **parts.numbers.named(kwargs))
        return parts.native.run(function, *map(parts.numbers.specialise, args), **parts.numbers.named(kwargs))

    def _runs(parts: Parts, value: Any) -> bool:
        if isinstance(value, _NATIVE_ITERABLES):
            return _holds_program_objects(parts, value) and function in _COMPARING
        if is_constant(value):
            return False
        iterates = hasattr(value, "__next__") or parts.classes.method_of(value, "__iter__") is not None
        return iterates and parts.containers.runs_python(value)

    return rule


def _read(parts: Parts, function: Any, value: Any) -> None:
    """What a function that is given `value` reads of it counts."""
    if not isinstance(value, Tensor) and not hasattr(type(value), "__next__"):
        parts.classes.vouch(value, "__iter__", "__len__")
        parts.contents.read_data(value)
    if function in _COMPARING or function in _HASHING:
        parts.numbers.settle(value, compared=function in _COMPARING)
        if function in _HASHING and isinstance(value, (*CONTAINERS, dict)):
            parts.keys.check_members(value)
        parts.contents.read_deeply(value)
    elif isinstance(value, (*CONTAINERS, dict)) and parts.outside.has(value):
        parts.contents.read_whole(value)
    parts.contents.read_view(value)


def _holds_constants(items: Any) -> bool:
    """Whether a function that is given items one by one reads no more than the items themselves."""
    if isinstance(items, dict):
        items = list(items)
    plain = isinstance(items, CONTAINERS) and all(is_constant(item) or isinstance(item, Tensor) for item in items)
    return plain or isinstance(items, (str, bytes, range))


def _holds_program_objects(parts: Parts, items: Any) -> bool:
    names = ("__lt__", "__gt__", "__add__", "__radd__", "__bool__")
    return not isinstance(items, (str, bytes, range)) and any(
        parts.classes.program_method(item, name) is not None for item in items for name in names
    )


def _may_be_called(value: Any) -> bool:
    """Whether an argument is a function that C code must not call by itself: any but those that only compute."""
    if isinstance(value, (MethodDescriptorType, WrapperDescriptorType)):
        return not is_pure_method_of(value.__objclass__, value.__name__)
    return callable(value) and not is_pure(value)


RULES: dict[Any, Any] = {
    itertools.accumulate: _by_polyfill(itertools.accumulate, polyfills_itertools.accumulate),
    itertools.takewhile: _by_polyfill(itertools.takewhile, polyfills_itertools.takewhile, takes_function=True),
    itertools.dropwhile: _by_polyfill(itertools.dropwhile, polyfills_itertools.dropwhile, takes_function=True),
    itertools.filterfalse: _by_polyfill(itertools.filterfalse, polyfills_itertools.filterfalse, takes_function=True),
    itertools.groupby: _by_polyfill(itertools.groupby, polyfills_itertools.groupby),
    itertools.chain: _by_polyfill(itertools.chain, polyfills_itertools.chain),
    itertools.islice: _by_polyfill(itertools.islice, polyfills_itertools.islice),
    any: _by_polyfill(any, polyfills.any_),
    all: _by_polyfill(all, polyfills.all_),
    sum: _by_polyfill(sum, polyfills.sum_),
    max: _by_polyfill(max, polyfills.max_),
    min: _by_polyfill(min, polyfills.min_),
    sorted: _by_polyfill(sorted, polyfills.sorted_),
    enumerate: _by_polyfill(enumerate, polyfills.enumerate_),
    zip: _by_polyfill(zip, polyfills.zip_),
    map: _by_polyfill(map, polyfills.map_, takes_function=True),
    filter: _by_polyfill(filter, polyfills.filter_, takes_function=True),
    list: _by_polyfill(list, polyfills.list_),
    tuple: _by_polyfill(tuple, polyfills.tuple_),
    set: _by_polyfill(set, polyfills.set_),
    frozenset: _by_polyfill(frozenset, polyfills.frozenset_),
    functools.reduce: _by_polyfill(functools.reduce, polyfills.reduce_, takes_function=True),
    itertools.starmap: _by_polyfill(itertools.starmap, polyfills_itertools.starmap, takes_function=True),
}
