"""Sizes that the call decides: integer expressions over symbols, and what was assumed of them.

    Sym      := const + sum of coefficient * Monomial       + - * with sizes; // and % by sizes
    Monomial := product of factors, each to a power
    Factor   := SizeSymbol | Quotient(Sym, Sym) | Remainder(Sym, Sym)     rounded towards minus infinity

In: hints (the sizes of the call that is captured) and ranges. Out: `Sym`, a size that is not an int, so that whoever
needs an int must ask; `SizeGuard`s: what was answered by the hint, and whose line asked.
A question (`==`, `<`, truth) is answered by structure and ranges where these decide it: then nothing is assumed.
Else by the hints, and that is a guard. Who needs the number itself (`int(s)`, `range(s)`, NumPy) gets the hint, and
the guard is that it stays: the size is a constant from there on. So nothing reads a hint in silence.
A symbol of which no hint is known (`hint=None`) answers only what its range decides: `UnknownSizeError`.
Invariant: what is a constant is an int, never a Sym; Syms are equal in structure if and only if their terms are.
Its text: size_text.py. Method: polynomials in normal form, divided by their leading terms.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np

from compiler_core.errors import UnknownSizeError
from compiler_core.location import user_location

Ends: TypeAlias = tuple[float, float]  # both included; ints, or infinite
_ROOM = str(Path(__file__).resolve().parent)
RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}
STEPS = 64  # of a division of polynomials


@dataclass(frozen=True, slots=True, eq=False)
class SizeSymbol:
    """A size that the call decides. text: what the user calls it. Compares by identity."""

    name: str
    sizes: Sizes
    hint: int | None
    text: str = ""

    @property
    def ends(self) -> Ends:
        return self.sizes.ends[self]

    def show(self, name: Callable[[SizeSymbol], str]) -> str:
        return name(self)

    def at(self, value: Callable[[SizeSymbol], int]) -> int:
        return value(self)


@dataclass(frozen=True, slots=True)
class _Division:
    dividend: SymOrInt
    divisor: SymOrInt

    def _shown(self, sign: str, name: Callable[[SizeSymbol], str]) -> str:
        return f"({_factor_text(self.dividend, name)} {sign} {_factor_text(self.divisor, name)})"

    def _parts(self, value: Callable[[SizeSymbol], int]) -> tuple[int, int]:
        return value_at(self.dividend, value), value_at(self.divisor, value)


@dataclass(frozen=True, slots=True)
class Quotient(_Division):
    """dividend // divisor, which did not simplify."""

    @property
    def ends(self) -> Ends:
        (low, high), (least, most) = ends_of(self.dividend), ends_of(self.divisor)
        if low < 0 or least < 1:
            return -math.inf, math.inf
        return _floor(low, most), _floor(high, least)

    def show(self, name: Callable[[SizeSymbol], str]) -> str:
        return self._shown("//", name)

    def at(self, value: Callable[[SizeSymbol], int]) -> int:
        dividend, divisor = self._parts(value)
        return dividend // divisor


@dataclass(frozen=True, slots=True)
class Remainder(_Division):
    """dividend % divisor, which did not simplify."""

    @property
    def ends(self) -> Ends:
        least, most = ends_of(self.divisor)
        return (0, most - 1) if least > 0 else (-math.inf, math.inf)

    def show(self, name: Callable[[SizeSymbol], str]) -> str:
        return self._shown("%", name)

    def at(self, value: Callable[[SizeSymbol], int]) -> int:
        dividend, divisor = self._parts(value)
        return dividend % divisor


Factor: TypeAlias = SizeSymbol | Quotient | Remainder
Monomial: TypeAlias = tuple[tuple[Factor, int], ...]  # by the factors' text
Terms: TypeAlias = dict[Monomial, int]
SymOrInt: TypeAlias = Union["Sym", int]


class Sym:
    """An integer over symbols: sum(coefficient * monomial); the constant's monomial is empty. Never a constant.

    Not an int: NumPy, `range` and indexing ask `__index__`, which fixes it. Comparisons and truth are answered as the
    head of this file says.
    """

    __slots__ = ("_hash", "terms")
    __array_ufunc__ = None  # NumPy's scalars leave arithmetic to this class
    terms: Terms

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._hash: int | None = None

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        if (terms := _terms_of(other)) is None:
            return NotImplemented
        total = dict(self.terms)
        for monomial, coefficient in terms.items():
            total[monomial] = total.get(monomial, 0) + coefficient
        return of_terms(total)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return of_terms({monomial: -c for monomial, c in self.terms.items()})

    def __pos__(self) -> Sym:
        return self

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else self + -other

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else -self + other

    def __mul__(self, other: Any) -> Any:
        if (terms := _terms_of(other)) is None:
            return NotImplemented if not hasattr(other, "__len__") else other * self.__index__()
        total: Terms = {}
        for a, m in self.terms.items():
            for b, n in terms.items():
                monomial = _product(a, b)
                total[monomial] = total.get(monomial, 0) + m * n
        return of_terms(total)

    __rmul__ = __mul__

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, int) or exponent < 0:
            return self.__index__() ** exponent
        return math.prod([self] * exponent)

    def __floordiv__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else divided(self, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else divided(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else divided(self, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else divided(other, self)[1]

    def __divmod__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else divided(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return NotImplemented if _terms_of(other) is None else divided(other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.__index__() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__index__()

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    # -- questions

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sym | int):
            return self.sizes.decide("==", self, other)
        return self.__index__() == other if isinstance(other, float | complex) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __lt__(self, other: Any) -> Any:
        return self._ordered("<", self, other)

    def __le__(self, other: Any) -> Any:
        return self._ordered("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._ordered("<", other, self)

    def __ge__(self, other: Any) -> Any:
        return self._ordered("<=", other, self)

    def _ordered(self, relation: str, left: Any, right: Any) -> Any:
        if isinstance(left, float) or isinstance(right, float):
            left, right = (side.__index__() if side is self else side for side in (left, right))
            return left < right if relation == "<" else left <= right
        if _terms_of(left) is None or _terms_of(right) is None:
            return NotImplemented
        return self.sizes.decide(relation, left, right)

    def __bool__(self) -> bool:
        return not self.sizes.decide("==", self, 0)

    # -- whoever needs the number itself

    def __index__(self) -> int:
        return self.sizes.fix(self)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.__index__(), dtype)

    # -- what it is

    @property
    def symbols(self) -> set[SizeSymbol]:
        """The symbols that its value depends on."""
        return {symbol for monomial in self.terms for factor, _ in monomial for symbol in _symbols_of(factor)}

    @property
    def sizes(self) -> Sizes:
        """Where its symbols are from: of one capture, or of one text."""
        return next(iter(self.symbols)).sizes

    @property
    def hint(self) -> int:
        """The value in the call that is captured. Raises UnknownSizeError where none is known."""
        return self.at(_hint_of)

    def at(self, value: Callable[[SizeSymbol], int]) -> int:
        """The value, given that of each symbol."""
        total = 0
        for monomial, coefficient in self.terms.items():
            for factor, power in monomial:
                coefficient *= factor.at(value) ** power
            total += coefficient
        return total

    @property
    def ends(self) -> Ends:
        """Inclusive (low, high); infinite where not known."""
        low: float = 0
        high: float = 0
        for monomial, coefficient in self.terms.items():
            first, last = _ends_of_monomial(monomial)
            ends = _times(coefficient, first), _times(coefficient, last)
            low, high = low + min(ends), high + max(ends)
        return low, high

    def show(self, name: Callable[[SizeSymbol], str]) -> str:
        """Its text in Python's syntax, of higher powers first. name: of a symbol."""
        shown = [(-_degree(m), _monomial_text(m, name), c) for m, c in self.terms.items()]
        text = ""
        for _, product, c in sorted(shown):
            part = str(abs(c)) if not product else product if abs(c) == 1 else f"{abs(c)}*{product}"
            sign = ("-" if c < 0 else "") if not text else " - " if c < 0 else " + "
            text += sign + part
        return text

    def __repr__(self) -> str:
        return self.show(name_of)

    def __copy__(self) -> Sym:
        return self

    def __deepcopy__(self, memo: object) -> Sym:
        return self


@dataclass(frozen=True, slots=True)
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

    def show(self, name: Callable[[SizeSymbol], str]) -> str:
        """The condition in Python's syntax."""
        text = f"{text_of(self.left, name)} {self.relation} {text_of(self.right, name)}"
        return text if self.answer else f"not {text}"

    def holds(self, value: Callable[[SizeSymbol], int]) -> bool:
        """Whether it holds for these sizes."""
        return RELATIONS[self.relation](value_at(self.left, value), value_at(self.right, value)) is self.answer

    def __str__(self) -> str:
        return self.show(lambda symbol: symbol.text or symbol.name)


@dataclass(eq=False)
class Sizes:
    """The symbols of one capture, and what is assumed of them. told: is told each guard when it is made."""

    told: Callable[[SizeGuard], None] | None = None
    symbols: list[SizeSymbol] = field(default_factory=list)
    guards: list[SizeGuard] = field(default_factory=list)
    ends: dict[SizeSymbol, Ends] = field(default_factory=dict)
    _instead: dict[SizeSymbol, SymOrInt] = field(default_factory=dict)  # by guards that say what a symbol equals

    def new(self, hint: int | None, *, low: int = 2, high: float = math.inf, text: str = "", name: str = "") -> Sym:
        """A new symbol, in [low, high]. text: what the user calls it."""
        symbol = SizeSymbol(name or f"s{len(self.symbols)}", self, hint, text)
        self.symbols.append(symbol)
        self.ends[symbol] = low, high
        return Sym({((symbol, 1),): 1})

    def decide(self, relation: str, left: SymOrInt, right: SymOrInt) -> bool:
        """`left relation right` for "==", "<", "<=": by structure and ranges, else by the hints, guarded."""
        known = self.decided(relation, left, right)
        if known is not None:
            return known
        return self._assume(relation, left, right, fixes=False)

    def decided(self, relation: str, left: SymOrInt, right: SymOrInt) -> bool | None:
        """`decide`, of what holds for all sizes in their ranges; None: that depends."""
        difference = self.normal(left - right)
        low, high = ends_of(difference)
        if relation == "==":
            if low == high:
                return low == 0
            return False if low > 0 or high < 0 or _never_zero(difference) else None
        if relation == "<":
            return True if high < 0 else False if low >= 0 else None
        return True if high <= 0 else False if low > 0 else None

    def fix(self, size: Sym) -> int:
        """The number itself: from here on a constant."""
        found = self.normal(size)
        if isinstance(found, Sym):
            self._assume("==", size, size.hint, fixes=True)
            return size.hint
        return found

    def normal(self, size: SymOrInt) -> SymOrInt:
        """The same, with what guards say that symbols equal in their place."""
        if not self._instead or isinstance(size, int) or not size.symbols & self._instead.keys():
            return size
        return replaced(size, lambda symbol: self._instead.get(symbol, Sym({((symbol, 1),): 1})))

    def _assume(self, relation: str, left: SymOrInt, right: SymOrInt, *, fixes: bool) -> bool:
        answer = RELATIONS[relation](value_at(left, _hint_of), value_at(right, _hint_of))
        guard = SizeGuard(relation, left, right, answer, user_location(), _who_asked(), fixes)
        self._learn(guard)
        self.guards.append(guard)
        if self.told is not None:
            self.told(guard)
        return answer

    def _learn(self, guard: SizeGuard) -> None:
        """What a guard says of one symbol is known from here on."""
        difference = self.normal(guard.left - guard.right)
        if isinstance(difference, int):
            return
        for monomial, coefficient in difference.terms.items():
            if len(monomial) != 1 or abs(coefficient) != 1 or monomial[0][1] != 1:
                continue
            symbol = monomial[0][0]
            rest = difference - Sym({monomial: coefficient})
            if not isinstance(symbol, SizeSymbol) or (isinstance(rest, Sym) and symbol in rest.symbols):
                continue
            if guard.relation == "==" and guard.answer:
                self._equal(symbol, rest * -coefficient)
                return
            if isinstance(rest, int) and guard.relation != "==":
                self._bound(symbol, coefficient, rest, guard)

    def _equal(self, symbol: SizeSymbol, size: SymOrInt) -> None:
        self._instead[symbol] = size
        for other, known in self._instead.items():
            if isinstance(known, Sym) and symbol in known.symbols:
                self._instead[other] = self.normal(known)

    def _bound(self, symbol: SizeSymbol, sign: int, rest: int, guard: SizeGuard) -> None:
        """sign*symbol + rest < 0 (or <= 0) is `guard.answer`."""
        low, high = self.ends[symbol]
        strict = (guard.relation == "<") is guard.answer
        # true: sign*symbol < -rest; false: sign*symbol >= -rest (or > -rest)
        if guard.answer:
            most = -rest - strict
            low, high = (low, min(high, most)) if sign > 0 else (max(low, -most), high)
        else:
            least = -rest + strict
            low, high = (max(low, least), high) if sign > 0 else (low, min(high, -least))
        self.ends[symbol] = low, high


# -- sizes of either kind


def text_of(size: SymOrInt, name: Callable[[SizeSymbol], str]) -> str:
    return size.show(name) if isinstance(size, Sym) else str(size)


def name_of(symbol: SizeSymbol) -> str:
    return symbol.name


def value_at(size: SymOrInt, value: Callable[[SizeSymbol], int]) -> int:
    """The value of a size, given that of each symbol."""
    return size.at(value) if isinstance(size, Sym) else size


def ends_of(size: SymOrInt) -> Ends:
    return size.ends if isinstance(size, Sym) else (size, size)


def symbols_in(value: Any) -> set[SizeSymbol]:
    """The symbols in an attribute of an op: a size, a tuple of such, or anything else."""
    if isinstance(value, Sym):
        return value.symbols
    if isinstance(value, tuple | list):
        return {symbol for part in value for symbol in symbols_in(part)}
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


def replaced(size: SymOrInt, by: Callable[[SizeSymbol], SymOrInt]) -> SymOrInt:
    """The size with others in the place of symbols: it simplifies again."""
    if isinstance(size, int):
        return size
    total: SymOrInt = 0
    for monomial, coefficient in size.terms.items():
        product: SymOrInt = coefficient
        for factor, power in monomial:
            product = product * math.prod([_replaced_factor(factor, by)] * power)
        total = total + product
    return total


def _replaced_factor(factor: Factor, by: Callable[[SizeSymbol], SymOrInt]) -> SymOrInt:
    if isinstance(factor, SizeSymbol):
        return by(factor)
    dividend, divisor = replaced(factor.dividend, by), replaced(factor.divisor, by)
    return dividend // divisor if isinstance(factor, Quotient) else dividend % divisor


def of_terms(terms: Terms) -> SymOrInt:
    """The size of these terms; an int where they are constant."""
    kept = {monomial: c for monomial, c in terms.items() if c}
    if not kept or kept.keys() == {()}:
        return kept.get((), 0)
    return Sym(kept)


def divided(dividend: SymOrInt, divisor: SymOrInt) -> tuple[SymOrInt, SymOrInt]:
    """(dividend // divisor, dividend % divisor), as Python rounds. A divisor that may be 0 is guarded not to be."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return divmod(dividend, divisor)
    if divisor == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    whole, rest = _divided_by_terms(_terms(dividend), _terms(divisor))
    quotient, left = of_terms(whole), of_terms(rest)
    if isinstance(left, int) and isinstance(divisor, int):
        more, left = divmod(left, divisor)
        return quotient + more, left
    if isinstance(left, int) and left == 0:
        return quotient, 0
    if ends_of(left)[0] >= 0 and ends_of(left - divisor)[1] < 0:
        return quotient, left
    coarse, fine, common = _coarse(left, divisor)
    of_quotient, of_remainder = (((kind(coarse, divisor // common), 1),) for kind in (Quotient, Remainder))
    return quotient + Sym({of_quotient: 1}), Sym({of_remainder: common}) + fine


def _coarse(dividend: SymOrInt, divisor: SymOrInt) -> tuple[SymOrInt, int, int]:
    """(a, r, g): dividend = g*a + r, g divides the divisor, 0 <= r < g: the quotient is that of a and divisor/g."""
    if isinstance(dividend, int) or not isinstance(divisor, int):
        return dividend, 0, 1
    common = math.gcd(divisor, *(c for monomial, c in dividend.terms.items() if monomial))
    if divisor == common or common == 1:
        return dividend, 0, 1
    fine = dividend.terms.get((), 0) % common
    return divided(dividend - fine, common)[0], fine, common


def _divided_by_terms(dividend: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    """(q, r): dividend = q*divisor + r, q of the terms that the divisor's leading one divides. By a divisor of several
    terms only where r is 0: else (0, dividend), which is as true and shorter."""
    leading = max(divisor, key=_rank)
    first = divisor[leading]
    whole: Terms = {}
    rest: Terms = {}
    left = dict(dividend)
    for _ in range(STEPS):
        if not left:
            return whole, rest
        monomial = max(left, key=_rank)
        coefficient = left[monomial]
        factor = _ratio(monomial, leading)
        if factor is None or coefficient % first:
            if len(divisor) > 1:
                break
            if factor is not None and not leading and not monomial:  # the constant, by a number
                whole[()] = whole.get((), 0) + coefficient // first
                coefficient %= first
            rest[monomial] = coefficient
            del left[monomial]
            continue
        times = coefficient // first
        whole[factor] = whole.get(factor, 0) + times
        for other, c in divisor.items():
            product = _product(factor, other)
            left[product] = left.get(product, 0) - times * c
            if not left[product]:
                del left[product]
    return {}, dict(dividend)


def _terms_of(value: Any) -> Terms | None:
    """A number's or a size's terms; None of anything else."""
    if isinstance(value, Sym):
        return value.terms
    return {(): int(value)} if isinstance(value, int | np.integer) else None


def _terms(value: SymOrInt) -> Terms:
    return value.terms if isinstance(value, Sym) else {(): value}


def _product(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=_factor_key))


def _ratio(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, where b divides a."""
    powers = dict(a)
    for factor, power in b:
        left = powers.get(factor, 0) - power
        if left < 0:
            return None
        powers[factor] = left
    return tuple(item for item in powers.items() if item[1])


def _factor_key(item: tuple[Factor, int]) -> tuple[int, str]:
    shown = item[0].show(name_of)
    return len(shown), shown


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _rank(monomial: Monomial) -> tuple[int, list[Any]]:
    """A monomial order: by degree, then by the factors, those of earlier names first."""
    return _degree(monomial), [((-len(name), [-ord(c) for c in name]), p) for name, p in _named(monomial)]


def _named(monomial: Monomial) -> Iterable[tuple[str, int]]:
    return [(factor.show(name_of), power) for factor, power in monomial]


def _symbols_of(factor: Factor) -> set[SizeSymbol]:
    if isinstance(factor, SizeSymbol):
        return {factor}
    return symbols_in((factor.dividend, factor.divisor))


def _ends_of_monomial(monomial: Monomial) -> Ends:
    low: float = 1
    high: float = 1
    for factor, power in monomial:
        first, last = factor.ends
        for _ in range(power):
            ends = [_times(a, b) for a in (low, high) for b in (first, last)]
            low, high = min(ends), max(ends)
    return low, high


def _never_zero(size: SymOrInt) -> bool:
    """Whether what divides all other coefficients does not divide the constant."""
    if isinstance(size, int):
        return size != 0
    common = math.gcd(*(c for monomial, c in size.terms.items() if monomial))
    return size.terms.get((), 0) % common != 0


def _times(a: float, b: float) -> float:
    return 0 if not a or not b else a * b


def _floor(a: float, b: float) -> float:
    """a // b of a >= 0 and b >= 1, either infinite."""
    if a == math.inf:
        return math.inf
    return 0 if b == math.inf else a // b


def _hint_of(symbol: SizeSymbol) -> int:
    if symbol.hint is None:
        raise UnknownSizeError(
            f"the value of {symbol.text or symbol.name} is asked for, and only the data decides it",
            where=user_location(),
            remedy="compute with it, and ask nothing that its range does not decide",
        )
    return symbol.hint


def _monomial_text(monomial: Monomial, name: Callable[[SizeSymbol], str]) -> str:
    return "*".join(factor.show(name) for factor, power in monomial for _ in range(power))


def _factor_text(size: SymOrInt, name: Callable[[SizeSymbol], str]) -> str:
    text = text_of(size, name)
    return text if isinstance(size, int) or text.isidentifier() else f"({text})"


def _who_asked() -> str:
    """`file:line in function` of whoever asked, ours or not."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_ROOM):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
