"""Rules for functions of Python's library that keep state of their own, or call the program's code from C.

In: the parts, the function and a call's arguments. Out: its result, or Enter. `BY_CODE`: id of the code of a Python
function -> rule(parts, function, args, kwargs); `HEAPS`: a function of `heapq` -> rule(parts, args, kwargs).
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import reprlib
from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import CONTAINERS, is_constant, own_attributes
from compiler_core.capture.guards.sources import Attribute, CellContents, Item
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
DEEP = 6  # levels of what an object holds


def _dispatch(parts: Parts, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`dispatch(cls)` of functools.singledispatch, which keeps what it found; what is registered counts."""
    place = function.__code__.co_freevars.index("registry")
    registry = function.__closure__[place].cell_contents
    if any(isinstance(kind, ABCMeta) for kind in registry):
        raise Break("a function is dispatched by abstract classes, to which others may be registered")
    found = function(*args, **kwargs)
    known = parts.outside.find(function)
    if known is None:
        return found
    source = CellContents(Item(Attribute(known.source, "__closure__"), place), "the registered functions")
    parts.outside.load(source, registry, fixed=known.fixed)
    parts.contents.read_whole(registry)
    return parts.items.get_item(registry, next(kind for kind, made in registry.items() if made is found))


def _text_once(parts: Parts, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The `__repr__` of a dataclass, which tells by ids whether it is within itself: of one that is not."""
    if len(args) != 1 or kwargs or _may_hold(args[0], args[0]):
        raise Break("the text of an object that may hold itself")
    return parts.call(parts.attributes.load_attr(function, "__wrapped__"), args, {})


def _may_hold(value: Any, wanted: Any, depth: int = 0) -> bool:
    """Whether `wanted` is found below `value`, or may be too deep below to be found."""
    if is_constant(value) or is_symbol(value) or isinstance(value, (Tensor, type)):
        return False
    held = list((own_attributes(value) or {}).values())
    held += [getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    if isinstance(value, dict):
        held += dict.values(value)
    elif isinstance(value, CONTAINERS):
        held += list(iter(value))
    return bool(held) and (depth > DEEP or any(part is wanted or _may_hold(part, wanted, depth + 1) for part in held))


def _wrapper(decorated: Any) -> int:
    return id(decorated.__code__)


def _empty(self: Any) -> str:
    return ""


_KEPT = [reprlib.recursive_repr()(_empty), functools.singledispatch(_empty).dispatch]
if hasattr(dataclasses, "_recursive_repr"):  # before 3.13
    _KEPT.append(dataclasses._recursive_repr(_empty))
BY_CODE: dict[int, Callable[..., Any]] = {
    _wrapper(made): _dispatch if made.__name__ == "dispatch" else _text_once for made in _KEPT
}


def _ordering(function: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for a function of heapq: it changes a list, and compares what that holds."""

    def rule(parts: Parts, args: Args, kwargs: Kwargs) -> Any:
        heap, *rest = args
        if type(heap) is not list or kwargs or _compares_by_code(parts, [*heap, *rest]):
            raise Break("objects are put in order by code of the program's")
        parts.numbers.settle(*args)
        rest = [parts.numbers.specialise(value) for value in rest]
        if not parts.outside.has(heap):
            return function(heap, *rest)
        parts.contents.read_deeply(heap)
        parts.record.before(heap)
        result = function(heap, *map(parts.segment.arrays.plain, rest))
        parts.containers.note(heap, function.__name__, function, tuple(rest), {})
        return result

    return rule


def _compares_by_code(parts: Parts, items: list[Any], depth: int = 0) -> bool:
    """Whether putting these in order runs code of the program's, or needs the data of tensors."""
    return any(
        isinstance(item, Tensor)
        or (isinstance(item, (tuple, list)) and (depth > DEEP or _compares_by_code(parts, list(item), depth + 1)))
        or any(parts.classes.method_of(item, name) is not None for name in ("__lt__", "__eq__", "__gt__"))
        for item in items
    )


_NAMES = (
    *("heappush", "heappop", "heapify", "heapreplace", "heappushpop"),
    *("_heapify_max", "_heapreplace_max", "_heappop_max"),
)
HEAPS = {function: _ordering(function) for name in _NAMES if (function := getattr(heapq, name, None)) is not None}
