"""Sizes that the call decides, and what was assumed of them.

In: hints (the sizes of the call that is captured) and ranges. Out: symbols, as `Sym`s (expression.py); `SizeGuard`s:
what was answered by the hint, and whose line asked.
A question (`==`, `<`, truth) is answered by structure and ranges where these decide it: then nothing is assumed.
Else by the hints, and that is a guard. Who needs the number itself (`int(s)`, `range(s)`, NumPy) gets the hint, and
the guard is that it stays: the size is a constant from there on. So nothing reads a hint in silence.
A symbol of which no hint is known (`hint=None`) answers only what its range decides: `UnknownSizeError`.
When capture is over, its sizes are closed: what is not known by then is an error, `ClosedSizesError`.
Invariants: a question that was answered once is decided from there on, so it makes one guard; guards that hold, checked
in their order, imply all answers, also those that ranges decided after earlier guards had made them narrower.
Method: of each polynomial without its constant and common factor, the interval that it is in and values that it does
not take; symbols that equal others are replaced.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from compiler_core.errors import ClosedSizesError, GraphError, UnknownSizeError
from compiler_core.location import user_location
from compiler_core.records import dataclass
from compiler_core.symbolic import polynomial
from compiler_core.symbolic.ends import WHOLE, Ends, both
from compiler_core.symbolic.expression import (
    SizeSymbol,
    Spell,
    Sym,
    SymOrInt,
    ValueOf,
    ends_of,
    is_size,
    name_of,
    of_factor,
    replaced,
    text_of,
    value_at,
)

__all__ = [
    "Ends",
    "SizeGuard",
    "SizeSymbol",
    "Sizes",
    "Sym",
    "SymOrInt",
    "at_sizes",
    "ends_of",
    "hint_of",
    "is_size",
    "name_of",
    "replaced",
    "symbols_in",
    "text_of",
    "value_at",
]

_ROOM = str(Path(__file__).resolve().parent)
_OF_LAYOUT = tuple(str(Path(_ROOM).parent / file) for file in ("ops/aliasing.py", "tensor/memory/layout.py"))
_MEMORY_OF = (" in _strides_", " in repeat.<locals>", " in repeat_interleave")  # functions that ask where a result lies
RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


@dataclass(frozen=True, slots=True, eq=False)
class SizeGuard:
    """`left relation right` is `answer`: assumed, for the hint says so. where: the user's line that asked, and `asked`
    ours. fixes: whether somebody needed the number itself."""

    relation: str
    left: SymOrInt
    right: SymOrInt
    answer: bool
    where: str = ""
    asked: str = ""
    fixes: bool = False

    @property
    def symbols(self) -> set[SizeSymbol]:
        return symbols_in((self.left, self.right))

    def show(self, name: Spell) -> str:
        """The condition in Python's syntax."""
        text = f"{text_of(self.left, name)} {self.relation} {text_of(self.right, name)}"
        return text if self.answer else f"not {text}"

    def holds(self, value: ValueOf) -> bool:
        """Whether it holds for these sizes, for which the guards before it do."""
        return RELATIONS[self.relation](value_at(self.left, value), value_at(self.right, value)) is self.answer

    def __str__(self) -> str:
        return self.show(lambda symbol: symbol.text or symbol.name)


@dataclass(frozen=True, slots=True)
class _Form:
    """scale * (terms without constant and common factor, the leading one positive) + constant."""

    key: frozenset[tuple[polynomial.Monomial, int]]
    scale: int
    constant: int

    @staticmethod
    def of(size: Sym) -> _Form:
        scale = polynomial.common_factor(size.terms)
        if size.terms[polynomial.leading(size.terms)] < 0:
            scale = -scale
        terms = frozenset((monomial, c // scale) for monomial, c in size.terms.items() if monomial)
        return _Form(terms, scale, size.terms.get((), 0))

    @property
    def primitive(self) -> Sym:
        return Sym(dict(self.key))

    def ends(self, known: Ends) -> Ends:
        """Of the whole, given those of the terms."""
        ends = [self.scale * end + self.constant for end in known]
        return min(ends), max(ends)


@dataclass(eq=False)
class Sizes:
    """The symbols of one capture, and what is assumed of them. told: is told each guard when it is made.

    are_numbers_to_program: whether code of the program's that runs as it is sees numbers where these are sizes.
    ignores_layout: how elements lie is no part of what the graph is for (an export): who asks for that assumes nothing.
    """

    are_numbers_to_program: ClassVar[bool] = False
    ignores_layout: bool = False
    told: Callable[[SizeGuard], None] | None = None
    symbols: list[SizeSymbol] = field(default_factory=list)
    guards: list[SizeGuard] = field(default_factory=list)
    ends: dict[SizeSymbol, Ends] = field(default_factory=dict)
    closed: bool = False
    _answers: dict[tuple[str, SymOrInt, SymOrInt], bool] = field(default_factory=dict)  # once and for all
    _instead: dict[SizeSymbol, SymOrInt] = field(default_factory=dict)  # by guards that say what a symbol equals
    _between: dict[Any, Ends] = field(default_factory=dict)  # of forms, by their keys
    _never: dict[Any, set[int]] = field(default_factory=dict)  # values that a form does not take

    def new(self, hint: int | None, *, low: int = 2, high: float = math.inf, text: str = "", name: str = "") -> Sym:
        """A new symbol, in [low, high]. text: what the user calls it. Raises GraphError if its name is taken."""
        taken = {other.name for other in self.symbols}
        free = (f"s{k}" for k in itertools.count(len(self.symbols)))
        symbol = SizeSymbol(name or next(word for word in free if word not in taken), self, hint, text, (low, high))
        if symbol.name in taken:
            raise GraphError(f"the name {symbol.name} of a size is taken")
        self.symbols.append(symbol)
        self.ends[symbol] = low, high
        return of_factor(symbol)

    def close(self) -> None:
        """From here on nothing is assumed: what is not decided is an error."""
        self.closed = True

    @contextmanager
    def heeding_layout(self) -> Iterator[None]:
        """Within the block what is asked of how elements lie is assumed, in an export too: the code goes by it."""
        before, self.ignores_layout = self.ignores_layout, False
        try:
            yield
        finally:
            self.ignores_layout = before

    @contextmanager
    def assuming_nothing(self) -> Iterator[None]:
        """Closed within the block."""
        before, self.closed = self.closed, True
        try:
            yield
        finally:
            self.closed = before

    # -- questions

    def decide(self, relation: str, left: SymOrInt, right: SymOrInt) -> bool:
        """`left relation right` for "==", "<", "<=": by structure and ranges, else by the hints, guarded."""
        question = (relation, left, right)
        answer = self._answers.get(question)
        if answer is None:
            left, right = (side if isinstance(side, Sym) else int(side) for side in (left, right))  # of NumPy
            answer = self.decided(relation, left, right)
            if answer is None and self.ignores_layout and _is_of_layout(_who_asked()):
                return RELATIONS[relation](value_at(left, hint_of), value_at(right, hint_of))  # not remembered
            if answer is None:
                answer = self._assume(relation, left, right, fixes=False)
            self._answers[question] = answer
        return answer

    def decided(self, relation: str, left: SymOrInt, right: SymOrInt) -> bool | None:
        """`decide`, of what is known; None: that depends."""
        asked = left - right
        difference = self.normal(asked)
        if not isinstance(difference, Sym):
            return RELATIONS[relation](difference, 0)
        assert isinstance(asked, Sym)
        low, high = self._ends_of(difference)
        if difference is not asked:  # a symbol's own ends may be narrower than those of what stands in its place
            low, high = both((low, high), self._ends_of(asked))
        if relation == "==":
            if low == high:
                return low == 0
            never = low > 0 or high < 0 or self._is_never_zero(difference) or self._is_never_zero(asked)
            return False if never else None
        if relation == "<":
            return True if high < 0 else False if low >= 0 else None
        return True if high <= 0 else False if low > 0 else None

    def ends_now(self, size: Sym) -> Ends:
        """What a size may be, by all that is known."""
        found = self.normal(size)
        own = self._ends_of(size)
        return both(self._ends_of(found), own) if isinstance(found, Sym) else (found, found)

    def fix(self, size: Sym) -> int:
        """The number itself: from here on a constant."""
        found = self.normal(size)
        if not isinstance(found, Sym):
            return found
        low, high = self._ends_of(found)
        if low == high:
            return int(low)
        self._assume("==", size, size.at(hint_of), fixes=True)
        return size.at(hint_of)

    def normal(self, size: SymOrInt) -> SymOrInt:
        """The same, with what guards say that symbols equal in their place."""
        if isinstance(size, Sym) and size.sizes is not self:
            raise GraphError(f"{size} is of another capture")
        if not self._instead or not isinstance(size, Sym) or size.symbols.isdisjoint(self._instead):
            return size
        return replaced(size, lambda symbol: self._instead.get(symbol, of_factor(symbol)))

    def _ends_of(self, size: Sym) -> Ends:
        form = _Form.of(size)
        known = self._between.get(form.key)
        ends = ends_of(size)
        return ends if known is None else both(ends, form.ends(known))

    def _is_never_zero(self, size: Sym) -> bool:
        """Whether its primitive form is known not to take the value that makes it 0, or that is no whole number."""
        form = _Form.of(size)
        if form.constant % form.scale:
            return True
        return -form.constant // form.scale in self._never.get(form.key, ())

    # -- assumptions

    def _assume(self, relation: str, left: SymOrInt, right: SymOrInt, *, fixes: bool) -> bool:
        if self.closed:
            raise ClosedSizesError(
                f"{text_of(left, name_of)} {relation} {text_of(right, name_of)} is asked for, and nothing decides it",
                where=user_location(),
                remedy="ask while code is captured, or give the sizes: graph_at",
            )
        answer = RELATIONS[relation](value_at(left, hint_of), value_at(right, hint_of))
        guard = SizeGuard(relation, left, right, answer, user_location(), _who_asked(), fixes)
        self.add(guard)
        if self.told is not None:
            self.told(guard)
        return answer

    def add(self, guard: SizeGuard) -> None:
        """A guard holds from here on."""
        self.guards.append(guard)
        difference = self.normal(guard.left - guard.right)
        if not isinstance(difference, Sym):
            return
        form = _Form.of(difference)
        if guard.relation == "==" and form.constant % form.scale == 0:
            value = -form.constant // form.scale
            if guard.answer:
                self._equal(form.primitive, value)
            else:
                self._differs(form.primitive, value)
        elif guard.relation != "==" and guard.answer:
            self._at_most(difference, -1 if guard.relation == "<" else 0)
        elif guard.relation != "==":
            self._at_most(-difference, 0 if guard.relation == "<" else -1)

    def _at_most(self, size: Sym, most: int) -> None:
        form = _Form.of(size)
        end = (most - form.constant) // abs(form.scale)
        self._narrow(form.primitive, (-math.inf, end) if form.scale > 0 else (-end, math.inf))

    def _narrow(self, size: SymOrInt, ends: Ends) -> None:
        """A primitive form, without a constant, is in these ends."""
        if not isinstance(size, Sym):
            return
        symbol, key = _only_symbol(size), frozenset(size.terms.items())
        if symbol is None:
            self._between[key] = both(self._between.get(key, WHOLE), ends)
        else:
            self.ends[symbol] = both(self.ends[symbol], ends)

    def _differs(self, size: Sym, value: int) -> None:
        """A primitive form is not this value."""
        low, high = self._ends_of(size)
        if value in (low, high):
            self._narrow(size, (low + (value == low), high - (value == high)))
        else:
            self._never.setdefault(frozenset(size.terms.items()), set()).add(value)

    def _equal(self, size: Sym, value: int) -> None:
        """A primitive form is this value: of a symbol that stands alone in it, its size is known."""
        for monomial, coefficient in size.terms.items():
            if len(monomial) != 1 or abs(coefficient) != 1 or monomial[0][1] != 1:
                continue
            symbol = monomial[0][0]
            rest = size - Sym({monomial: coefficient}) - value
            if isinstance(symbol, SizeSymbol) and symbol not in symbols_in(rest):
                self._replace(symbol, rest * -coefficient)
                return
        self._narrow(size, (value, value))

    def _replace(self, symbol: SizeSymbol, size: SymOrInt) -> None:
        """A symbol equals a size: what is known of it, and of forms with it, is known of what stands in its place."""
        self._instead[symbol] = size
        for other, known in self._instead.items():
            self._instead[other] = self.normal(known)
        self._restate(self.normal(of_factor(symbol)), self.ends[symbol], set())
        for key in [*self._between, *self._never]:
            form = Sym(dict(key))
            if symbol in form.symbols:
                self._restate(self.normal(form), self._between.get(key, WHOLE), self._never.get(key, set()))

    def _restate(self, size: SymOrInt, ends: Ends, never: set[int]) -> None:
        """A size is in these ends, both included, and is none of these values."""
        if not isinstance(size, Sym):
            return
        for sign, end in ((1, ends[1]), (-1, -ends[0])):
            if math.isfinite(end):
                self._at_most(sign * size, int(end))
        form = _Form.of(size)
        for value in (value - form.constant for value in never):
            if value % form.scale == 0:
                self._differs(form.primitive, value // form.scale)


def _only_symbol(size: Sym) -> SizeSymbol | None:
    """The symbol that it is, once; None if it is more."""
    match list(size.terms.items()):
        case [(((SizeSymbol() as symbol, 1),), 1)]:
            return symbol
    return None


# -- attributes of ops


def symbols_in(value: Any) -> set[SizeSymbol]:
    """The symbols in an attribute of an op: a size, a tuple of such, or anything else."""
    if isinstance(value, Sym):
        return set(value.symbols)
    if isinstance(value, tuple | list):
        return {symbol for part in value if type(part) is not int for symbol in symbols_in(part)}
    return symbols_in((value.start, value.stop, value.step)) if isinstance(value, slice) else set()


def at_sizes(value: Any, sizes: Mapping[SizeSymbol, int]) -> Any:
    """An attribute of an op with numbers in the place of sizes: a size, a tuple of such, or anything else."""
    if isinstance(value, Sym):
        return value.at(sizes.__getitem__)
    if isinstance(value, tuple | list):
        parts = [at_sizes(part, sizes) for part in value]
        if all(a is b for a, b in zip(parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, slice) and symbols_in(value):
        return slice(*(at_sizes(part, sizes) for part in (value.start, value.stop, value.step)))
    return value


# -- who asks


def hint_of(symbol: SizeSymbol) -> int:
    if symbol.hint is None:
        raise UnknownSizeError(
            f"the value of {symbol.text or symbol.name} is asked for, and only the data decides it",
            where=user_location(),
            remedy="compute with it, and ask nothing that its range does not decide",
        )
    return symbol.hint


def _is_of_layout(asked: str) -> bool:
    """Whether who asked wants to know how elements lie."""
    return asked.startswith(_OF_LAYOUT) or any(word in asked for word in _MEMORY_OF)


def _who_asked() -> str:
    """`file:line in function` of whoever asked, ours or not."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ROOM):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
