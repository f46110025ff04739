"""Copies by Python's `copy`: entered, so what `__deepcopy__` and `__reduce__` of the program do is seen.

In: the parts, and what is copied. Out: the copy, or a call of what makes it. A deep copy's memo is keyed by ids,
true only while the copy is made: a segment that breaks within one is not kept (see points.py).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.capture.guards.kinds import is_constant, is_plain_instance
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.polyfills import builtins as polyfills

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts


def is_copying(frame: Frame) -> bool:
    """Whether a frame of Python's `copy`."""
    return frame.code.co_filename == copy.__file__


def deepcopy(parts: Parts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy.deepcopy: of plain data natively."""
    if len(args) == 1 and not kwargs and is_symbol(args[0]):
        return args[0]
    if len(args) == 1 and not kwargs and _is_plain_data(args[0]):
        parts.contents.read_deeply(args[0])
        return copy.deepcopy(parts.numbers.specialise(args[0]))
    return Enter(parts.entering.enter(copy.deepcopy, args, kwargs))  # type: ignore[arg-type]


def reduced(parts: Parts, owner: Any) -> Any:
    """`object.__reduce_ex__` of an instance; None where it is C's own."""
    if parts.classes.method_of(owner, "__reduce__") is not None:
        return parts.call(parts.attributes.load_attr(owner, "__reduce__"), (), {})
    if not is_plain_instance(owner):
        return None
    own = parts.classes.method_of(owner, "__getstate__") and parts.attributes.load_attr(owner, "__getstate__")
    return parts.call(polyfills.reduce_object, (owner, own), {})


def _is_plain_data(value: Any, depth: int = 0) -> bool:
    """Whether constants, in containers of Python's own."""
    if type(value) in (list, tuple, set, frozenset):
        return depth < 8 and all(_is_plain_data(item, depth + 1) for item in value)
    if type(value) is dict:
        return depth < 8 and all(_is_plain_data(item, depth + 1) for pair in value.items() for item in pair)
    return is_constant(value)
