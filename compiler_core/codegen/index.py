"""Indices as integer arithmetic of a target: what C++ and Triton share.

In: indices. Out: text in the syntax that C++ and Python have in common (symbolic/index_text.py). A target says how it
divides: both round towards zero, while an index rounds towards minus infinity; they agree where its range shows that
nothing is negative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from compiler_core.loop_ir.expr import CompareOp
from compiler_core.meta import Size
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Data, Div, Index, Mod
from compiler_core.symbolic.index_text import show_index

_COMPARE: dict[CompareOp, str] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@dataclass(frozen=True, slots=True)
class IndexPrinter(ABC):
    """Prints indices. helpers: names of helper functions used, added to."""

    helpers: set[str]

    def text(self, index: Index) -> str:
        """`index` as text; sums are not parenthesised."""
        return show_index(index, self._spelt)

    def _spelt(self, atom: Data | Div | Mod, coefficient: Size) -> str:
        assert not isinstance(atom, Data), "what a kernel reads has a name"
        return self._division(atom)

    def compare(self, op: CompareOp, left: Index, right: Index) -> str:
        """`left OP right`. Where a stride hides the fast axis (64*i + j < 256, j in [0, 64)) it says i < 4 instead.

        The test is then the same for a whole vector loop, and the compiler moves it out of it.
        """
        reduced = _without_rest(left - right) if op in ("lt", "ge") else None
        if reduced is not None:
            left, right = _sides(reduced)
        return f"({self.text(left)} {_COMPARE[op]} {self.text(right)})"

    @abstractmethod
    def _division(self, atom: Div | Mod) -> str:
        """A quotient or remainder in the target language, as a factor."""


def _without_rest(difference: Index) -> Index | None:
    """E, if difference = g*E + r with 0 <= r < g and g > 1: then difference < 0 exactly if E < 0."""
    for g in sorted({abs(c) for c in difference.terms.values()} - {1}, reverse=True):
        const = difference.const
        rest = Index({atom: c for atom, c in difference.terms.items() if c % g}, const if const % g else 0)
        low, high = rest.bounds
        if low >= 0 and high < g:
            whole = {atom: c // g for atom, c in difference.terms.items() if c % g == 0}
            return Index(whole, 0 if const % g else const // g)
    return None


def _sides(difference: Index) -> tuple[Index, Index]:
    """(left, right) with left - right = difference and no minus signs."""
    left = Index({atom: c for atom, c in difference.terms.items() if c > 0}, max(difference.const, 0))
    right = Index({atom: -c for atom, c in difference.terms.items() if c < 0}, max(-difference.const, 0))
    return left, right
