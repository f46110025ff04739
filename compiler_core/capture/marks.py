"""What a program says of sizes: which dims of a tensor change from call to call, under torch._dynamo's names.

In: tensors, and what `mark_dynamic` and its like say of them. Out: `dynamic_dims`: dim -> `Asked`; a guard on the marks
of an argument (`require_class`); `check_marked`, which refuses a graph that fixes what was marked.
A mark is an attribute of the handle, as torch has it: it goes where attributes go (`copy.copy`, pickle), and not to the
results of functions, views and clones.
Precedence, torch's: dynamic, maybe dynamic, static, then what capture has seen or was told of all dims.
What torch calls unbacked is dynamic (strict) or maybe dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from compiler_core.capture.guards.guards import Guards
from compiler_core.config import config
from compiler_core.errors import ConstraintViolationError
from compiler_core.records import dataclass
from compiler_core.symbolic.ends import WHOLE, Ends
from compiler_core.symbolic.expression import Sym
from compiler_core.symbolic.size import SizeGuard, Sizes, symbols_in

DYNAMIC, RANGES = "_dynamo_dynamic_indices", "_dynamo_dynamic_range"
MAYBE, STATIC = "_dynamo_weak_dynamic_indices", "_dynamo_static_indices"
UNBACKED, STRICT = "_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices"
LEAST = 2  # 0 and 1 are sizes of their own: they broadcast, and are empty


@dataclass(frozen=True, slots=True)
class DimRange:
    """torch's record of `mark_dynamic(t, dim, min=, max=)`."""

    dim: int
    min: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A dim that is captured as a symbol. low, high: its range, both included. marked: a graph that fixes it is an
    error. bounded: so is one that narrows the range to one side. name: of the size: where
    one stands twice, both are equal."""

    low: int = LEAST
    high: float = math.inf
    marked: bool = False
    bounded: bool = False
    name: str = ""


@dataclass
class Marks:
    """How many marks were made so far, in this process."""

    count: int = 0


marks = Marks()


def add(tensor: Any, name: str, marked: Iterable[object]) -> None:
    """Note the mark `name` of these dims, or their ranges."""
    tensor.__dict__.setdefault(name, set()).update(marked)
    marks.count += 1


def dynamic_dims(tensor: Any, text: str, *, every: bool = False, seen: Collection[int] = ()) -> dict[int, Asked]:
    """The dims of a tensor from outside whose sizes are symbols. text: what the user calls it. every: all of them
    are, but those marked static. seen: those whose size was seen to change.

    Raises ConstraintViolationError where a size is not in the range that it was marked with.
    """
    found: dict[int, Asked] = {}
    marked = {name: getattr(tensor, name, ()) for name in (DYNAMIC, MAYBE, STATIC, UNBACKED, STRICT)}
    for dim, size in enumerate(tensor._cell.raw.shape):
        if dim in marked[STRICT] or dim in marked[DYNAMIC]:
            asked = _marked(tensor, dim, size, f"{text}.shape[{dim}]")
        elif dim in marked[MAYBE] or dim in marked[UNBACKED] or (dim not in marked[STATIC] and (every or dim in seen)):
            asked = Asked()
        else:
            continue
        if asked.low <= size <= asked.high:
            found[dim] = asked
    return found


def _marked(tensor: Any, dim: int, size: int, text: str) -> Asked:
    """What `mark_dynamic` says of a dim."""
    low, high = _range_of(tensor, dim)
    strict, bounded = not config.allow_ignore_mark_dynamic, (low, high) != WHOLE
    asked = Asked(int(max(low, LEAST)), high, marked=strict, bounded=strict and bounded)
    if asked.bounded and not asked.low <= size <= high:
        raise ConstraintViolationError(
            f"{text} is marked as dynamic in a range, and is {size} in this call",
            expected=f"{asked.low} to {high}" if high < math.inf else f"{asked.low} or more",
            got=str(size),
            remedy="mark it with a range that holds, or without one; 0 and 1 are constants of a graph",
        )
    return asked


def _range_of(tensor: Any, dim: int) -> Ends:
    """The range that a dim was marked with; WHOLE: none."""
    ends = [one for one in getattr(tensor, RANGES, ()) if one.dim == dim]
    low = max([-math.inf, *(one.min for one in ends if one.min is not None)])
    return low, min([math.inf, *(one.max for one in ends if one.max is not None)])


def require_class(guards: Guards, code: str, tensor: Any, text: str) -> None:
    """What is at `code` is a tensor of this class, and no more of its dims are marked as dynamic: else it is captured
    anew. One comparison for as long as nothing is marked."""
    watch = _MarkWatch(tensor, text)
    kind, known, own = (
        guards.bind(thing, stem) for thing, stem in ((type(tensor), "type"), (marks, "marks"), (watch, "watch"))
    )
    fits = f"{known}.count == {marks.count} or {own}.fits({code})"
    guards.require_explained(f"type({code}) is {kind} and ({fits})", f"{text} is a {type(tensor).__name__}", watch)


class _MarkWatch:
    """The marks of a tensor that is captured. difference: what the last tensor has more."""

    def __init__(self, tensor: Any, text: str) -> None:
        self.seen, self.text, self.difference = frozenset(getattr(tensor, DYNAMIC, ())), text, ""

    def fits(self, tensor: Any) -> bool:
        """Whether a tensor is marked as the captured one, or less: torch's rule."""
        more = sorted(set(getattr(tensor, DYNAMIC, ())) - self.seen)
        self.difference = f"dim {more[0]} of {self.text} is not marked as dynamic" if more else ""
        return not more

    def culprits(self) -> list[Any]:
        return []


def check_marked(sizes: Sizes, asked: Iterable[tuple[Sym, Asked]]) -> None:
    """Raises ConstraintViolationError if what was assumed while capturing fixes a size that the program marked, or
    narrows one that it marked with a range."""
    for size, one in asked:
        (symbol,) = size.symbols
        if one.marked and (guard := _violation(sizes, size, symbol.hint, one)) is not None:
            raise ConstraintViolationError(
                f"{symbol.text} is marked as dynamic, and the graph would be right only where {guard}",
                where=guard.where,
                remedy="take away what asks for the size, or mark the dim by maybe_mark_dynamic",
            )


def _violation(sizes: Sizes, size: Sym, hint: int | None, asked: Asked) -> SizeGuard | None:
    """The assumption that the mark of `size` does not allow."""
    own = [guard for guard in sizes.guards if symbols_in((guard.left, guard.right)) == size.symbols]
    narrows = [guard for guard in own if guard.relation != "==" or guard.answer]
    if asked.bounded and narrows:
        return narrows[0]
    if hint is None or not sizes.decided("==", size, hint):
        return None
    equations = [guard for guard in (own or sizes.guards) if guard.relation == "==" and guard.answer]
    return (equations or sizes.guards)[-1]
