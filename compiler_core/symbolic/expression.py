"""Integer expressions over sizes that the call decides.

    Sym    := const + sum of coefficient * product of factors       + - * with sizes; // and % by sizes
    Factor := SizeSymbol | Quotient(Sym, Sym) | Remainder(Sym, Sym)     rounded towards minus infinity

In: symbols (`Sizes.new`). Out: `Sym`, a size that is not an int, so that whoever needs an int must ask. Who compares,
or needs the number, asks the symbols' `Sizes` (size.py).
Invariants: what is a constant is an int, never a Sym; Syms hash, and factors equal, by structure: the sum of terms in
normal form. It simplifies by the ranges that symbols were declared for, so what is assumed later changes no structure.
Syms of two captures do not meet: GraphError.
Method: polynomials (polynomial.py); what a division leaves is a factor of its own. Its text: size_text.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union

import numpy as np

from compiler_core.errors import GraphError
from compiler_core.records import dataclass
from compiler_core.symbolic import ends as intervals
from compiler_core.symbolic import polynomial
from compiler_core.symbolic.ends import Ends
from compiler_core.symbolic.polynomial import Monomial, Terms

if TYPE_CHECKING:
    from compiler_core.symbolic.size import Sizes

Spell: TypeAlias = Callable[["SizeSymbol"], str]
ValueOf: TypeAlias = Callable[["SizeSymbol"], int]
KnownEnds: TypeAlias = Callable[["SizeSymbol"], Ends]
SymOrInt: TypeAlias = Union["Sym", int]


@dataclass(frozen=True, eq=False)
class SizeSymbol:
    """A size that the call decides. text: what the user calls it; declared: the range that it was made for. Compares by
    identity."""

    name: str
    sizes: Sizes = field(repr=False)
    hint: int | None
    text: str = ""
    declared: Ends = (2, math.inf)

    @cached_property
    def key(self) -> tuple[int, str]:
        return len(self.name), self.name

    @property
    def symbols(self) -> frozenset[SizeSymbol]:
        return frozenset((self,))

    def ends(self, known: KnownEnds) -> Ends:
        return known(self)

    def show(self, name: Spell) -> str:
        return name(self)

    def at(self, value: ValueOf) -> int:
        return value(self)


class _Division:
    """What a division leaves that does not simplify. Immutable; equal by structure."""

    sign: str

    def __init__(self, dividend: SymOrInt, divisor: SymOrInt) -> None:
        self.dividend, self.divisor = dividend, divisor

    def __eq__(self, other: object) -> bool:
        if self is other or type(self) is not type(other):
            return self is other
        assert isinstance(other, _Division)
        return is_same(self.dividend, other.dividend) and is_same(self.divisor, other.divisor)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.sign, self.dividend, self.divisor))

    @cached_property
    def key(self) -> tuple[int, str]:
        text = self.show(name_of)
        return len(text), text

    @cached_property
    def symbols(self) -> frozenset[SizeSymbol]:
        return _symbols_of(self.dividend) | _symbols_of(self.divisor)

    def show(self, name: Spell) -> str:
        return f"({_operand_text(self.dividend, name)} {self.sign} {_operand_text(self.divisor, name)})"


class Quotient(_Division):
    """dividend // divisor."""

    sign = "//"

    def ends(self, known: KnownEnds) -> Ends:
        return intervals.quotient(ends_of(self.dividend, known), ends_of(self.divisor, known))

    def at(self, value: ValueOf) -> int:
        return value_at(self.dividend, value) // value_at(self.divisor, value)


class Remainder(_Division):
    """dividend % divisor."""

    sign = "%"

    def ends(self, known: KnownEnds) -> Ends:
        return intervals.remainder(ends_of(self.dividend, known), ends_of(self.divisor, known))

    def at(self, value: ValueOf) -> int:
        return value_at(self.dividend, value) % value_at(self.divisor, value)


SizeFactor: TypeAlias = SizeSymbol | Quotient | Remainder


class Sym:
    """An integer over symbols: sum(coefficient * monomial); the constant's monomial is empty. Never a constant.

    Not an int: NumPy, `range`, indexing and arithmetic with other numbers ask `__index__`, which fixes it. Comparisons
    and truth are answered by `Sizes.decide`.
    """

    __array_ufunc__ = None  # NumPy leaves arithmetic to this class

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    # -- arithmetic

    def __add__(self, other: Any) -> Any:
        return self._with(other, operator.add, lambda terms: of_terms(polynomial.plus(self.terms, terms)))

    def __radd__(self, other: Any) -> Any:
        return self + other if is_size(other) else self._from(other, operator.add)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, operator.sub, lambda terms: of_terms(polynomial.plus(self.terms, terms, -1)))

    def __rsub__(self, other: Any) -> Any:
        return -self + other if is_size(other) else self._from(other, operator.sub)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, operator.mul, lambda terms: of_terms(polynomial.product(self.terms, terms)))

    def __rmul__(self, other: Any) -> Any:
        return self * other if is_size(other) else self._from(other, operator.mul)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, operator.floordiv, lambda terms: divided(self, of_terms(terms))[0])

    def __rfloordiv__(self, other: Any) -> Any:
        return divided(int(other), self)[0] if is_size(other) else self._from(other, operator.floordiv)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, operator.mod, lambda terms: divided(self, of_terms(terms))[1])

    def __rmod__(self, other: Any) -> Any:
        return divided(int(other), self)[1] if is_size(other) else self._from(other, operator.mod)

    def __divmod__(self, other: Any) -> Any:
        return self._with(other, divmod, lambda terms: divided(self, of_terms(terms)))

    def __rdivmod__(self, other: Any) -> Any:
        return divided(int(other), self) if is_size(other) else self._from(other, divmod)

    def __pow__(self, exponent: Any) -> Any:
        if isinstance(exponent, int) and exponent >= 0:
            return math.prod([self] * exponent)
        return self._as_number(operator.pow, exponent)

    def __rpow__(self, other: Any) -> Any:
        return self._from(other, operator.pow)

    def __truediv__(self, other: Any) -> Any:
        return self._as_number(operator.truediv, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._from(other, operator.truediv)

    def __neg__(self) -> Sym:
        return Sym({monomial: -c for monomial, c in self.terms.items()})

    def __pos__(self) -> Sym:
        return self

    def __abs__(self) -> Sym:
        return self if self >= 0 else -self

    def _with(self, other: Any, by_number: Callable[[Any, Any], Any], by_terms: Callable[[Terms], Any]) -> Any:
        """The result with a size on the right, or with another number or array, which needs the number itself."""
        if is_size(other):
            return by_terms(_terms_of(other))
        return self._as_number(by_number, other)

    def _as_number(self, operation: Callable[[Any, Any], Any], other: Any) -> Any:
        """The result with the number itself, which it is from here on, unless `other` is to be asked: a tensor."""
        return operation(self.__index__(), other) if is_size(other) or _is_numeric(other) else NotImplemented

    def _from(self, other: Any, by_number: Callable[[Any, Any], Any]) -> Any:
        return by_number(other, self.__index__()) if is_size(other) or _is_numeric(other) else NotImplemented

    # -- questions

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Sym) and is_same(self, other):  # as tables ask: no question to Sizes, which has one
            return True
        return self.sizes.decide("==", self, other) if is_size(other) else self._by_number(operator.eq, other)

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Any) -> Any:
        return self.sizes.decide("<", self, other) if is_size(other) else self._by_number(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self.sizes.decide("<=", self, other) if is_size(other) else self._by_number(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self.sizes.decide("<", other, self) if is_size(other) else self._by_number(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self.sizes.decide("<=", other, self) if is_size(other) else self._by_number(operator.ge, other)

    def _by_number(self, relation: Callable[[Any, Any], Any], other: object) -> Any:
        return relation(self.__index__(), other) if _is_numeric(other) else NotImplemented

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

    @cached_property
    def symbols(self) -> frozenset[SizeSymbol]:
        """The symbols that its value depends on."""
        return frozenset(
            symbol for monomial in self.terms for factor, _ in _factors(monomial) for symbol in factor.symbols
        )

    @cached_property
    def sizes(self) -> Sizes:
        """Where its symbols are from: of one capture, or of one text. Raises GraphError where they are of several."""
        first, *others = {symbol.sizes for symbol in self.symbols}
        if others:
            raise GraphError(f"{self} mixes sizes of two captures", remedy="compute with sizes of one graph")
        return first

    def at(self, value: ValueOf) -> int:
        """The value, given that of each symbol."""
        total = 0
        for monomial, coefficient in self.terms.items():
            for factor, power in _factors(monomial):
                coefficient *= factor.at(value) ** power
            total += coefficient
        return total

    @cached_property
    def declared(self) -> Ends:
        """Its ends by what symbols were declared to be."""
        return self.ends(lambda symbol: symbol.declared)

    def ends(self, known: KnownEnds) -> Ends:
        """Inclusive (low, high), given those of each symbol; infinite where not known. Those of b*t - b are those of b
        times those of t - 1."""
        common, terms = polynomial.without_common(self.terms)
        low: float = 0
        high: float = 0
        for monomial, coefficient in terms.items():
            first, last = intervals.product((coefficient, coefficient), _ends_of_monomial(monomial, known))
            low, high = low + first, high + last
        return intervals.product(_ends_of_monomial(common, known), (low, high))

    def show(self, name: Spell) -> str:
        """Its text in Python's syntax, of higher powers first. name: of a symbol."""
        shown = [(-polynomial.degree(m), _monomial_text(m, name), c) for m, c in self.terms.items()]
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


# -- sizes of either kind


def known_ends(symbol: SizeSymbol) -> Ends:
    return symbol.sizes.ends[symbol]


def is_size(value: object) -> TypeGuard[SymOrInt]:
    """Whether it is a whole number of any kind, or a Sym."""
    return isinstance(value, Sym | int | np.integer)


def is_symbol(value: object) -> bool:
    """Whether it is a Sym. Types say int where sizes are computed with, so type checkers are told nothing."""
    return type(value) is Sym


def _is_numeric(value: object) -> bool:
    return isinstance(value, float | complex | np.number | np.ndarray)


def is_same(a: SymOrInt, b: SymOrInt) -> bool:
    """Whether they are equal in structure: nothing is asked."""
    if isinstance(a, Sym):
        return isinstance(b, Sym) and (a is b or a.terms == b.terms)
    return not isinstance(b, Sym) and a == b


def of_terms(terms: Terms) -> SymOrInt:
    """The size of these terms, none of which is 0; an int where they are constant."""
    return terms.get((), 0) if not terms or terms.keys() == {()} else Sym(terms)


def of_factor(factor: SizeFactor) -> Sym:
    return Sym({((factor, 1),): 1})


def _terms_of(value: SymOrInt) -> Terms:
    if isinstance(value, Sym):
        return value.terms
    return {(): int(value)} if value else {}


def value_at(size: SymOrInt, value: ValueOf) -> int:
    """The value of a size, given that of each symbol."""
    return size.at(value) if isinstance(size, Sym) else size


def ends_of(size: SymOrInt, known: KnownEnds = known_ends) -> Ends:
    """Inclusive (low, high), given those of each symbol: by default what is known of it by now."""
    return size.ends(known) if isinstance(size, Sym) else (size, size)


def declared_ends(size: SymOrInt) -> Ends:
    return size.declared if isinstance(size, Sym) else (size, size)


def text_of(size: SymOrInt, name: Spell) -> str:
    return size.show(name) if isinstance(size, Sym) else str(size)


def name_of(symbol: SizeSymbol) -> str:
    return symbol.name


def replaced(size: SymOrInt, by: Callable[[SizeSymbol], SymOrInt]) -> SymOrInt:
    """The size with others in the place of symbols: it simplifies again. Nothing is asked."""
    if not isinstance(size, Sym):
        return size
    total: SymOrInt = 0
    for monomial, coefficient in size.terms.items():
        product: SymOrInt = coefficient
        for factor, power in _factors(monomial):
            product = product * math.prod([_replaced_factor(factor, by)] * power)
        total = total + product
    return total


def _replaced_factor(factor: SizeFactor, by: Callable[[SizeSymbol], SymOrInt]) -> SymOrInt:
    if isinstance(factor, SizeSymbol):
        return by(factor)
    whole, rest = simplified(replaced(factor.dividend, by), replaced(factor.divisor, by))
    return whole if isinstance(factor, Quotient) else rest


# -- division


def divided(dividend: SymOrInt, divisor: SymOrInt) -> tuple[SymOrInt, SymOrInt]:
    """(dividend // divisor, dividend % divisor), as Python rounds. A divisor that may be 0 is guarded not to be."""
    if divisor == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    return simplified(dividend, divisor)


def simplified(dividend: SymOrInt, divisor: SymOrInt) -> tuple[SymOrInt, SymOrInt]:
    """`divided`, by what is not 0."""
    if not isinstance(divisor, Sym) and not isinstance(dividend, Sym):
        return divmod(dividend, divisor)
    if _is_negative(divisor):
        quotient, remainder = simplified(-dividend, -divisor)
        return quotient, -remainder
    whole, rest = polynomial.divided_by(_terms_of(dividend), _terms_of(divisor))
    quotient, left = of_terms(whole), of_terms(rest)
    if declared_ends(left)[0] >= 0 and declared_ends(left - divisor)[1] < 0:
        return quotient, left
    coarse, fine, common = _coarse(left, divisor)
    by = divisor // common
    return quotient + of_factor(Quotient(coarse, by)), common * of_factor(Remainder(coarse, by)) + fine


def _is_negative(divisor: SymOrInt) -> bool:
    """Whether its first coefficient is."""
    return divisor.terms[polynomial.leading(divisor.terms)] < 0 if isinstance(divisor, Sym) else divisor < 0


def _coarse(dividend: SymOrInt, divisor: SymOrInt) -> tuple[SymOrInt, int, int]:
    """(a, r, g): dividend = g*a + r, g divides the divisor, 0 <= r < g: the quotient is that of a and divisor/g."""
    if not isinstance(dividend, Sym) or isinstance(divisor, Sym):
        return dividend, 0, 1
    common = math.gcd(divisor, polynomial.common_factor(dividend.terms))
    fine = dividend.terms.get((), 0) % common
    whole, _ = polynomial.divided_by(_terms_of(dividend - fine), {(): common})
    return of_terms(whole), fine, common


# -- parts of terms


def _factors(monomial: Monomial) -> tuple[tuple[SizeFactor, int], ...]:
    return monomial  # type: ignore[return-value]  # a Sym's terms are over SizeFactors


def _symbols_of(size: SymOrInt) -> frozenset[SizeSymbol]:
    return size.symbols if isinstance(size, Sym) else frozenset()


def _ends_of_monomial(monomial: Monomial, known: KnownEnds) -> Ends:
    ends: Ends = (1, 1)
    for factor, power in _factors(monomial):
        its = factor.ends(known)
        for _ in range(power):
            ends = intervals.product(ends, its)
    return ends


def _monomial_text(monomial: Monomial, name: Spell) -> str:
    return "*".join(factor.show(name) for factor, power in _factors(monomial) for _ in range(power))


def _operand_text(size: SymOrInt, name: Spell) -> str:
    text = text_of(size, name)
    match [*size.terms.items()] if isinstance(size, Sym) else []:
        case [(((_Division(), 1),), 1)]:  # which stands in parentheses
            return text
    return text if text.isidentifier() or text.isdigit() else f"({text})"
