"""Calls of functions written in C that only compute: natively, after all that they may read was guarded.

In: a function of `pure_table.py` and its arguments. Out: its result. What would run the program's code on the way (an
iterator of its, a function handed over, its `__eq__`), unseen by the trace, breaks the graph.
"""

from __future__ import annotations

import bisect
import math
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import CONTAINERS, is_constant
from compiler_core.capture.numbers.functions import computed, is_computed, is_computed_of, place_among
from compiler_core.capture.numbers.symbols import as_sizes, is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.rules.pure import ASKED, KEEPS, OPERATED, READ, is_numbers, uses_up
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

BISECTIONS = frozenset({bisect.bisect_left, bisect.bisect_right})
OF_TENSORS: dict[Any, str] = {
    abs: "__abs__",
    round: "__round__",
    reversed: "__reversed__",
}  # a program may replace these
HASHING = (set, frozenset, dict, dict.fromkeys)
HASHED = (*HASHING, OrderedDict, defaultdict)  # by what is given to these


def call_pure(parts: Parts, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function that only computes: natively, after everything that it may read was guarded."""
    found = NotImplemented if kwargs else of_numbers(parts, function, args)
    if found is not NotImplemented:
        return found
    if function in OF_TENSORS and args and isinstance(args[0], Tensor):
        own = parts.classes.program_method(args[0], OF_TENSORS[function])
        if own is not None:
            return parts.call(own, args, kwargs)
    keeps = function in KEEPS
    hands_on = (keeps and function not in HASHED) or function is slice
    parts.numbers.settle(args, kwargs, compared=hands_on)
    if not hands_on:
        args, kwargs = tuple(map(parts.numbers.specialise, args)), parts.numbers.named(kwargs)
    for value in (*args, *kwargs.values()):
        if isinstance(value, (*CONTAINERS, dict)) or is_constant(value) or isinstance(value, (type, Tensor)):
            continue
        if callable(value) and not keeps:
            raise Break(f"{getattr(function, '__name__', function)}() calls a function that it is given")
        is_iterator = hasattr(type(value), "__next__")
        if (is_iterator and parts.outside.has(value)) or hides_program(parts, value):
            if is_iterator and uses_up(function):
                return parts.call(polyfills.call_with_lists, (function, args, kwargs), {})
            raise Break(f"{getattr(function, '__name__', function)}() of an iterator that runs the program's code")
        if not keeps:
            parts.classes.vouch(value, *READ)
        if not keeps and any(parts.classes.program_method(value, name) for name in ASKED.get(function, OPERATED)):
            raise Break(f"{getattr(function, '__name__', function)}() runs the program's code")
    parts.keys.check_keys(*args)
    if function in HASHING:
        for value in args:
            if isinstance(value, CONTAINERS):
                parts.keys.check_members(value)
    parts.contents.read_all(args, kwargs)
    return parts.native.run(function, *args, **kwargs)


def of_numbers(parts: Parts, function: Any, args: tuple[Any, ...]) -> Any:
    """What a function gives of numbers that change, as one; NotImplemented where it is not known to."""
    if is_computed(function, args):
        return computed(parts.numbers, function, args)
    if function is math.prod and len(args) == 1 and is_computed_of(args[0]):
        return computed(parts.numbers, function, tuple(args[0]), "{}(({},))")
    if len(args) != 2 or not any(map(is_symbol, args)):
        return NotImplemented
    if function is pow:
        return parts.operators.binary("**", *args)
    if function is divmod and (sizes := as_sizes(parts.numbers, *args)) is not None:
        return divmod(sizes[0], sizes[1])
    if function in BISECTIONS and is_symbol(args[1]) and is_numbers(args[0]):
        parts.contents.read_deeply(args[0])
        return place_among(parts.numbers, function, *args)
    return NotImplemented


def hides_program(parts: Parts, value: Any) -> bool:
    """Whether a C function that is given `value` may run the program's code."""
    if hasattr(type(value), "__next__"):
        return parts.containers.runs_python(value)
    return not isinstance(value, (int, float)) and (
        parts.classes.program_method(value, "__iter__") is not None
        or parts.classes.program_method(value, "__len__") is not None
    )
