"""The index language: integer combinations of loop variables, simplified with their ranges as they are built.

    Index := const + sum of coefficient * Atom              + - * between indices and sizes, // and % by sizes
    Atom  := Axis                                           a loop variable in [0, extent)
           | Scalar                                         an integer that a kernel has named
           | Data                                           an integer read from memory, before it has a name
           | Div(Index, n) | Mod(Index, n)                  rounded towards minus infinity; what did not simplify

In: axes, sizes. Out: `Index`: the one form of an index, from the rules of ops (ops/rules.py) to both code generators;
its range (`bounds`), its value (`evaluate`). Its text: index_text.py.

    (128*b + t) // 128 -> b        for t in [0, 128)
    128*((x)//128) + x%128 -> x    so a chain of reshapes is the identity again
Method: split a dividend into the part divisible by n and a rest; the rest's range decides whether the quotient is
exact. In a kernel an axis has a name, and axes of one name and extent are one object (`named_axis`), so that equal
kernels are equal; elsewhere axes compare by identity.
Sizes (coefficients, constants, extents, divisors, ends of ranges) are of type `Size`: ints today. Where they become
polynomials over symbols, what must learn of it is here: `*` and `bounds` multiply them, `_split` and `_coarse` ask
whether one divides another, and with `_quotient` they compare ends of ranges. An int stays an int, on the same way.
Limits: // and % take positive sizes. A product of two indices that are no sizes is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, Union

from compiler_core.meta import Size
from compiler_core.records import dataclass

_FAR = 1 << 62
Bounds: TypeAlias = tuple[Size, Size]  # both ends included


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A loop variable in [0, extent). Compares by identity."""

    name: str
    extent: Size

    @property
    def bounds(self) -> Bounds:
        return 0, max(self.extent - 1, 0)


@cache
def named_axis(name: str, extent: Size) -> Axis:
    """The axis of a kernel that is called `name`: one object for each name and extent."""
    return Axis(name, extent)


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer that a kernel has named (loop_ir's Let). low, high: inclusive bounds, where they are known."""

    name: str
    low: Size = -_FAR
    high: Size = _FAR

    @property
    def bounds(self) -> Bounds:
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Data:
    """An integer computed from data: `value` is whatever expression the caller of this module uses (it must hash).

    low, high: inclusive bounds. message: the error to raise when the value leaves them; empty: they are not checked.
    """

    value: Any
    low: Size = -_FAR
    high: Size = _FAR
    message: str = ""

    @property
    def bounds(self) -> Bounds:
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Div:
    """arg // n, not simplified further."""

    arg: Index
    n: Size

    @property
    def bounds(self) -> Bounds:
        low, high = self.arg.bounds
        return low // self.n, high // self.n


@dataclass(frozen=True, slots=True)
class Mod:
    """arg % n, not simplified further."""

    arg: Index
    n: Size

    @property
    def bounds(self) -> Bounds:
        return 0, self.n - 1


Variable: TypeAlias = Axis | Scalar
Atom: TypeAlias = Axis | Scalar | Data | Div | Mod
IntLike: TypeAlias = Union["Index", Size]


class Index:
    """const + sum(coefficient * atom). Immutable; equal when terms are."""

    __slots__ = ("_bounds", "_hash", "_is_linear", "const", "terms")

    def __init__(self, terms: Mapping[Atom, Size], const: Size) -> None:
        self.terms, self.const = terms, const
        self._hash: int | None = None
        self._bounds: Bounds | None = None
        self._is_linear: bool | None = None

    @property
    def bounds(self) -> Bounds:
        """Inclusive (low, high)."""
        if self._bounds is None:
            low = high = self.const
            for atom, coefficient in self.terms.items():
                ends = [coefficient * end for end in atom.bounds]
                low, high = low + min(ends), high + max(ends)
            self._bounds = low, high
        return self._bounds

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, atom: Atom) -> Size:
        return self.terms.get(atom, 0)

    @property
    def variables(self) -> set[Variable]:
        """The axes and scalars that its value depends on, also inside // and %, but not inside Data."""
        found: set[Variable] = set()
        for atom in self.terms:
            if isinstance(atom, Div | Mod):
                found |= atom.arg.variables
            elif not isinstance(atom, Data):
                found.add(atom)
        return found

    @property
    def names(self) -> set[str]:
        """The names of `variables`."""
        return {variable.name for variable in self.variables}

    def evaluate(self, value: Callable[[Axis | Scalar | Data], Any]) -> Any:
        """The value, given that of every variable and Data: ints, or integer arrays side by side."""
        total: Any = self.const
        for atom, coefficient in self.terms.items():
            if isinstance(atom, Div):
                part = atom.arg.evaluate(value) // atom.n
            elif isinstance(atom, Mod):
                part = atom.arg.evaluate(value) % atom.n
            else:
                part = value(atom)
            total = total + part * coefficient
        return total

    def __add__(self, other: IntLike) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        if not other.terms:
            return self + other.const
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        for atom in terms:
            if type(atom) is Mod:
                return _recombine(terms, self.const + other.const)
        return Index(terms, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: IntLike) -> Index:
        return self + (-other)

    def __rsub__(self, other: IntLike) -> Index:
        return (-self) + other

    def __mul__(self, other: IntLike) -> Index:
        factor = other if isinstance(other, int) else other._as_int()
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        return Index({atom: c * factor for atom, c in self.terms.items()}, self.const * factor)

    def __rmul__(self, other: IntLike) -> Index:
        return self * other

    def _as_int(self) -> int:
        if self.terms:
            raise TypeError(f"index expression {self} is not a constant: products of axes are not affine")
        return self.const

    def _split(self, n: Size) -> tuple[Index, Index]:
        """(quotient part, rest): self = n * quotient + rest, rest holding what n does not divide."""
        divisible: dict[Atom, Size] = {}
        rest: dict[Atom, Size] = {}
        for atom, c in self.terms.items():
            if c % n == 0:
                divisible[atom] = c // n
            else:
                rest[atom] = c
        return Index(divisible, self.const // n), Index(rest, self.const % n)

    def __floordiv__(self, n: Size) -> Index:
        if n == 1:
            return self
        quotient, rest = self._split(n)
        exact = _quotient(rest, n)
        if exact is not None:
            return quotient + exact
        rest, _, common = _coarse(rest, n)
        n //= common
        if n == 1:
            return quotient + rest
        if len(rest.terms) == 1 and rest.const == 0:
            (atom, c), *_ = rest.terms.items()
            if type(atom) is Div and c == 1:
                rest, n = atom.arg, atom.n * n
        return quotient + Index({Div(rest, n): 1}, 0)

    def __mod__(self, n: Size) -> Index:
        if n == 1:
            return ZERO
        _, rest = self._split(n)
        exact = _quotient(rest, n)
        if exact is not None:
            return rest + -exact * n
        coarse, fine, common = _coarse(rest, n)
        if common == n:
            return fine
        return Index({Mod(coarse, n // common): common}, 0) + fine

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return not self.terms and self.const == other
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((frozenset(self.terms.items()), self.const))
        return self._hash

    def substitute(self, table: Mapping[Axis, Index], data: Callable[[Data], Index]) -> Index:
        """Replace axes by expressions; Div and Mod simplify again. data: what a Data atom becomes."""
        result = Index({}, self.const)
        for atom, coefficient in self.terms.items():
            result = result + _substitute_atom(atom, table, data) * coefficient
        return result

    @property
    def is_linear(self) -> bool:
        """Only variables: no Div, Mod or Data."""
        if self._is_linear is None:
            self._is_linear = all(type(atom) is Axis or type(atom) is Scalar for atom in self.terms)
        return self._is_linear

    def renamed(self, rename: Callable[[Variable], Variable]) -> Index:
        """With other variables, which take the same values: nothing simplifies."""
        return Index({_renamed(atom, rename): c for atom, c in self.terms.items()}, self.const)

    def __repr__(self) -> str:
        from compiler_core.symbolic.index_text import show_index

        return show_index(self)


ZERO = Index({}, 0)


def constant(value: Size) -> Index:
    return Index({}, value)


def of_axis(axis: Axis) -> Index:
    """The axis as an expression; 0 if it has one iteration."""
    return ZERO if axis.extent == 1 else Index({axis: 1}, 0)


def of_data(data: Data) -> Index:
    return Index({data: 1}, 0)


def of_scalar(scalar: Scalar) -> Index:
    return Index({scalar: 1}, 0)


def as_index(value: IntLike) -> Index:
    return value if isinstance(value, Index) else Index({}, int(value))


def _quotient(rest: Index, n: Size) -> Size | None:
    """rest // n, if the range of `rest` decides it."""
    low, high = rest.bounds
    first = low // n
    return first if first == high // n else None


def _coarse(rest: Index, n: Size) -> tuple[Index, Index, Size]:
    """(a, r, g): rest = g*a + r with g a divisor of n and 0 <= r < g, as large a g as the terms show.

    So floor(rest / n) = floor(a / (n/g)) and rest % n = g * (a % (n/g)) + r.
    """
    ordered = sorted(rest.terms.items(), key=lambda item: -abs(item[1]))
    for kept in range(1, len(ordered) + 1):
        common = math.gcd(n, *(c for _, c in ordered[:kept]))
        fine = Index(dict(ordered[kept:]), rest.const % common)
        low, high = fine.bounds
        if low >= 0 and high < common:
            coarse = Index({atom: c // common for atom, c in ordered[:kept]}, rest.const // common)
            return coarse, fine, common
    return rest, ZERO, 1


def _recombine(terms: dict[Atom, Size], const: Size) -> Index:
    """c*n*(x//n) + c*(x%n) -> c*x, wherever both stand in `terms`."""
    for atom, c in terms.items():
        if type(atom) is Mod:
            partner = Div(atom.arg, atom.n)
            if terms.get(partner) == c * atom.n:
                rest = {a: k for a, k in terms.items() if a is not atom and a != partner}
                return Index(rest, const) + atom.arg * c
            merged = _partial_quotient(terms, atom, c)
            if merged is not None:
                return Index(merged[0], const) + merged[1]
    return Index(terms, const)


def _partial_quotient(terms: dict[Atom, Size], mod: Mod, c: Size) -> tuple[dict[Atom, Size], Index] | None:
    """c*(x%n) + c*n*((x//n) % m) -> c*(x % (n*m)): neighbouring digits of one number."""
    for other, k in terms.items():
        if type(other) is Mod and other is not mod and k == c * mod.n and (mod.arg // mod.n) == other.arg:
            rest = {a: v for a, v in terms.items() if a is not mod and a is not other}
            return rest, (mod.arg % (mod.n * other.n)) * c
    return None


def _substitute_atom(atom: Atom, table: Mapping[Axis, Index], data: Callable[[Data], Index]) -> Index:
    if isinstance(atom, Axis):
        return table[atom] if atom in table else of_axis(atom)
    if isinstance(atom, Div):
        return atom.arg.substitute(table, data) // atom.n
    if isinstance(atom, Mod):
        return atom.arg.substitute(table, data) % atom.n
    if isinstance(atom, Scalar):
        return of_scalar(atom)
    return data(atom)


def _renamed(atom: Atom, rename: Callable[[Variable], Variable]) -> Atom:
    if isinstance(atom, Div | Mod):
        return type(atom)(atom.arg.renamed(rename), atom.n)
    return atom if isinstance(atom, Data) else rename(atom)
