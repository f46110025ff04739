"""Functions that run as they are, under the trace: a tensor's, a container's, a builtin.

In: a segment; a function and its arguments. Out: what it gives; or Break, with nothing done, where it cannot be run so.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.capture.guards.arguments import IDENTIFIED
from compiler_core.capture.numbers.selections import NEEDS_DATA, REMEDY, Refused, is_selection
from compiler_core.capture.trace import TraceEnded
from compiler_core.capture.tracing.part import Part
from compiler_core.errors import GraphBreak, GraphSeam
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor

Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # (function, args, kwargs) -> what it gives, or `Enter`
OPAQUE = "an array that is not traced is used"
SHOWING = frozenset({"__repr__", "__str__", "__format__", "__hash__"})  # methods by which sizes would show as symbols


class Again(Break):
    """Not a graph break: the instruction is captured, as the first of the next segment."""


class Seam(Break):
    """Not a graph break: the instruction runs between two graphs by design, and no Python of the program's in it."""


@dataclass(eq=False, repr=False)
class Native(Part):
    """See the head of this file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.in_method = False  # of a tensor

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)` as it is, under the trace. Raises Break, with nothing done, if it cannot."""
        if any(map(is_opaque, args)) or any(map(is_opaque, kwargs.values())):
            raise Break(OPAQUE)
        if any(map(drives_program, args)) or any(map(drives_program, kwargs.values())):
            raise Break(f"{getattr(function, '__name__', function)}() of an iterator that runs the program's code")
        if self.numbers.selections.made and (any(map(is_selection, args)) or any(map(is_selection, kwargs.values()))):
            return self.of_selections(function, args, kwargs)
        return self.hand_on(function, *args, **kwargs)

    def of_selections(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`run`, of a function that is given what masks select."""
        trace, told = self.segment.trace, list(self.segment.trace.operations)
        mark, body = trace.mark(), trace.body
        result = self.hand_on(self.numbers.selections.apply, body, function, args, kwargs)
        if isinstance(result, Refused):
            trace.rollback(mark)
            raise Break(NEEDS_DATA, REMEDY)
        self.segment.trace.operations[:] = [*told, getattr(function, "__name__", "masked")]
        return result

    def hand_on(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`run`, of a function that keeps its arguments, and looks into none."""
        trace = self.segment.trace
        before = len(trace.body)
        mark, breaks = trace.mark(), GraphBreak.made()
        try:
            result = function(*args, **kwargs)
        except GraphBreak as why:
            trace.rollback(mark)
            kind = Again if isinstance(why, TraceEnded) else Seam if isinstance(why, GraphSeam) else Break
            raise kind(why.what, why.remedy) from why
        if GraphBreak.made() != breaks and not isinstance(result, Refused):
            trace.rollback(mark)
            raise Break("a graph break was caught by what was called")
        if len(trace.body) > before and not self.in_method:
            self.segment.trace.operations.append(getattr(function, "__name__", type(function).__name__))
        return result


def drives_program(value: Any, depth: int = 0) -> bool:
    """Whether C code that advances an iterator runs frames of the machine's: a break in these would lose its items."""
    kind = type(value)
    if kind is InterpretedGenerator:
        return True
    if not hasattr(kind, "__next__") or kind in PLAIN_ITERATORS or depth > 4:
        return False
    if isinstance(vars(kind).get("__next__"), FunctionType):
        return True
    parts = gc.get_referents(value)
    if kind is not enumerate:  # whose tuple is what it gave last; others keep iterators in theirs
        # zip_longest's own tuple has empty places, which nothing but the collector may pass over
        parts += [item for part in parts if type(part) is tuple for item in gc.get_referents(part)]
    return any(drives_program(part, depth + 1) for part in parts)


PLAIN_ITERATORS = frozenset(
    {
        *map(type, (iter([]), iter(()), iter({}), iter({}.values()), iter({}.items()), iter(set()), iter(range(1)))),
        *map(type, (iter(""), iter("\u0100"), iter(b""), iter(range(2**70)), reversed([]), reversed({}))),
    }
)


def is_shared(result: Any) -> bool:
    """Whether the result of a native call is an object of some class that was there before: nobody guards it."""
    if (
        not hasattr(result, "__dict__")
        or hasattr(result, "__next__")
        or isinstance(result, (Tensor, Sym, *IDENTIFIED, BaseException))
    ):
        return False
    return sys.getrefcount(result) > _held_by_a_caller()


def _held_by_a_caller() -> int:
    """What an argument's count is if only the caller holds it: one more where a debugger or torch evaluates frames."""
    made = _Made()
    return _count(made)


def _count(value: Any) -> int:
    return sys.getrefcount(value)


class _Made:
    pass
