"""Calls of functions that cache their results (`functools.lru_cache`).

In: a cached function and its arguments. Out: its answer. The call is made for real, since its cache is; the guards of
later calls ask what the cache has kept, and fail where it would have to run its function. Given a size that is a symbol
it has no answer for all calls: the function itself is run, as one that computes and changes nothing; else Break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.completions import COMPLETIONS, chain
from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import is_key
from compiler_core.capture.guards.sources import Answer, Bound
from compiler_core.ops.registry import use_trace
from compiler_core.symbolic.expression import Sym
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine
    from compiler_core.capture.record import Record
    from compiler_core.capture.tracing.parts import Parts


def call_cached(parts: Parts, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of a cached function. Raises Break for one whose cache, or arguments, no guard can ask."""
    known = parts.outside.find(function)
    if known is None or not known.fixed:
        raise Break("a function that caches its results is made and called")
    if function.cache_parameters()["maxsize"] == 0:
        raise Break("a function is called whose cache keeps nothing")
    if any(map(_holds_size, (*args, *kwargs.values()))):
        for value in (*args, *kwargs.values()):
            if not _holds_size(value):
                _asked(parts, value)
        answer = parts.call(parts.attributes.load_attr(function, "__wrapped__"), args, kwargs)
        return chain(answer, "CACHED", (parts.record, len(parts.record.changes))) if type(answer) is Enter else answer
    parts.keys.check_members((*args, *kwargs.values()))
    given = tuple(_asked(parts, value) for value in args)
    named = {name: _asked(parts, value) for name, value in kwargs.items()}
    args, kwargs = tuple(map(parts.numbers.specialise, args)), parts.numbers.named(kwargs)
    with use_trace(None):
        value = function(*args, **kwargs)
    return parts.outside.load(Answer(Bound(function, known.source.text), given, named), value)


def _computed(machine: Machine, frame: Frame, value: Any, record: Record, changes: int) -> Any:
    """The function itself returned, which its cache was not asked for."""
    if len(record.changes) != changes:
        raise Break("a function that caches its results, and is given a size, changes something")
    return value


COMPLETIONS["CACHED"] = _computed


def _holds_size(value: Any) -> bool:
    return type(value) is Sym or (isinstance(value, tuple) and any(map(_holds_size, value)))


def _asked(parts: Parts, value: Any) -> Any:
    """An argument of a cached function: its source, or a constant."""
    value = parts.numbers.specialise(value)
    known = parts.outside.find(value)
    if known is not None and not isinstance(value, Tensor):
        return known.source
    if not is_key(value):
        raise Break(f"a function that caches its results is given a {type(value).__name__}")
    return value
