"""Index expressions (sympy) as integer arithmetic, and the interval in which an index lies: what all targets share.

In: sympy integer expressions over axes and integer Lets, with FloorDiv and FloorMod; the range of each axis.
Out: text in the syntax that C++ and Python have in common. A target says how it divides: both round towards zero, while
`FloorDiv` rounds towards minus infinity; they agree where the interval shows that nothing is negative.
Intervals come from interval arithmetic: sound, not tight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import sympy

from compiler_core.errors import LoweringError
from compiler_core.loop_ir.expr import Index
from compiler_core.symbolic.functions import FloorDiv, FloorMod

Interval = tuple[int, int]  # both ends included
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@dataclass(frozen=True, slots=True)
class IndexPrinter(ABC):
    """Prints and bounds indices. axes: axis name -> its interval. helpers: names of helper functions used, added to."""

    axes: Mapping[str, Interval]
    helpers: set[str]

    def bounds(self, index: Index) -> Interval | None:
        """An interval that holds every value of `index`; None if one of its names is not an axis."""
        if index.is_Integer:
            return int(index), int(index)
        if index.is_Symbol:
            return self.axes.get(index.name)
        parts = [self.bounds(arg) for arg in index.args]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return self._bounds_of_modulo(index)
        if index.is_Add:
            return sum(low for low, _ in known), sum(high for _, high in known)
        if index.is_Mul:
            return reduce(_times, known)
        return self._bounds_of_division(index, known[0])

    def _bounds_of_modulo(self, index: Index) -> Interval | None:
        if isinstance(index, FloorMod) and index.args[1].is_Integer:
            return 0, int(index.args[1]) - 1
        return None

    def _bounds_of_division(self, index: Index, of: Interval) -> Interval | None:
        if not isinstance(index, FloorDiv | FloorMod) or not index.args[1].is_Integer:
            return None
        divisor = int(index.args[1])
        if isinstance(index, FloorDiv):
            return of[0] // divisor, of[1] // divisor
        return (of[0], of[1]) if of[0] >= 0 and of[1] < divisor else (0, divisor - 1)

    def text(self, index: Index) -> str:
        """`index` as text; sums are not parenthesised."""
        if index.is_Integer:
            return str(int(index))
        if index.is_Symbol:
            return str(index.name)
        if index.is_Add:
            return self._sum(sorted(index.args, key=_weight))
        if index.is_Mul:
            return self._product(index.args)
        if isinstance(index, FloorDiv | FloorMod):
            return self._division(index)
        raise LoweringError(f"no text for the index expression {index}", got=type(index).__name__)

    def compare(self, op: str, left: Index, right: Index) -> str:
        """`left OP right`. Where a stride hides the fast axis (64*i + j < 256, j in [0, 64)) it says i < 4 instead.

        The test is then the same for a whole vector loop, and the compiler moves it out of it.
        """
        reduced = self._without_rest(left - right) if op in ("lt", "ge") else None
        if reduced is not None:
            left, right = _sides(reduced)
        return f"({self.text(left)} {_COMPARE[op]} {self.text(right)})"

    def _without_rest(self, difference: Index) -> Index | None:
        """E, if difference = g*E + r with 0 <= r < g and g > 1: then difference < 0 exactly if E < 0."""
        terms = difference.as_coefficients_dict()
        for g in sorted({abs(int(c)) for atom, c in terms.items() if atom != 1 and c.is_Integer}, reverse=True):
            rest = sum((atom * c for atom, c in terms.items() if c % g), sympy.Integer(0))
            bounds = self.bounds(rest)
            if g > 1 and bounds is not None and bounds[0] >= 0 and bounds[1] < g:
                return sum((atom * (c // g) for atom, c in terms.items() if c % g == 0), sympy.Integer(0))
        return None

    def _sum(self, terms: Iterable[Index]) -> str:
        text = ""
        for term in terms:
            part = self.text(term)
            if not text:
                text = part
            else:
                text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
        return text

    def _product(self, factors: Sequence[Index]) -> str:
        if factors[0] == -1:
            return "-" + "*".join(map(self._factor, factors[1:]))
        return "*".join(map(self._factor, factors))

    def _factor(self, index: Index) -> str:
        text = self.text(index)
        return f"({text})" if index.is_Add or (text.startswith("-") and not index.is_Integer) else text

    @abstractmethod
    def _division(self, index: Index) -> str:
        """FloorDiv or FloorMod in the target language."""


def _weight(index: Index) -> int:
    """Order of terms for people: large strides first, constants last."""
    return 1 if index.is_Integer else -abs(int(index.args[0])) if index.is_Mul and index.args[0].is_Integer else -1


def _sides(difference: Index) -> tuple[Index, Index]:
    """(left, right) with left - right = difference and no minus signs."""
    terms = difference.as_coefficients_dict().items()
    left = sum((atom * c for atom, c in terms if c > 0), sympy.Integer(0))
    return left, left - difference


def _times(a: Interval, b: Interval) -> Interval:
    products = [x * y for x in a for y in b]
    return min(products), max(products)
