"""Index arithmetic during lowering: integer combinations of axes, simplified with the axes' ranges as they are built.

In: `Axis` symbols with extents, and + - * // % between them and ints. Out: `Affine`: const + sum of coefficient *
atom, where an atom is an Axis, a Div or Mod of an Affine that did not simplify, or a Data index (a value read from
memory).

    (128*b + t) // 128 -> b        for t in [0, 128)
    128*((x)//128) + x%128 -> x    so a chain of reshapes is the identity again
Method: split a dividend into the part divisible by n and a rest; the rest's range decides whether the quotient is
exact. An Affine becomes sympy once, at the very end (`SympyConverter`): sympy is a hundred times slower to build.
Limits: // and % take positive ints. A product of two non-constant Affines is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Union

if TYPE_CHECKING:
    import sympy

_FAR = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A loop variable in [0, extent). Compares by identity."""

    name: str
    extent: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.extent - 1


@dataclass(frozen=True, slots=True)
class Data:
    """An integer computed from data: `value` is whatever expression the caller of this module uses (it must hash).

    low, high: inclusive bounds. message: the error to raise when the value leaves them; empty: they are not checked.
    """

    value: object
    low: int = -_FAR
    high: int = _FAR
    message: str = ""

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Div:
    """arg // n, not simplified further."""

    arg: Affine
    n: int

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.arg.bounds
        return low // self.n, high // self.n


@dataclass(frozen=True, slots=True)
class Mod:
    """arg % n, not simplified further."""

    arg: Affine
    n: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.n - 1


Atom: TypeAlias = Axis | Data | Div | Mod
IntLike: TypeAlias = Union["Affine", int]


class Affine:
    """const + sum(coefficient * atom). Immutable; equal when terms are."""

    __slots__ = ("_bounds", "_hash", "const", "terms")

    def __init__(self, terms: Mapping[Atom, int], const: int) -> None:
        self.terms, self.const = terms, const
        self._hash: int | None = None
        self._bounds: tuple[int, int] | None = None

    @property
    def bounds(self) -> tuple[int, int]:
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

    def coefficient(self, atom: Atom) -> int:
        return self.terms.get(atom, 0)

    def __add__(self, other: IntLike) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other) if other else self
        if not other.terms:
            return self + other.const
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        if any(type(atom) is Mod for atom in terms):
            return _recombine(terms, self.const + other.const)
        return Affine(terms, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: IntLike) -> Affine:
        return self + (-other)

    def __rsub__(self, other: IntLike) -> Affine:
        return (-self) + other

    def __mul__(self, other: IntLike) -> Affine:
        factor = other if isinstance(other, int) else other._as_int()
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        return Affine({atom: c * factor for atom, c in self.terms.items()}, self.const * factor)

    def __rmul__(self, other: IntLike) -> Affine:
        return self * other

    def _as_int(self) -> int:
        if self.terms:
            raise TypeError(f"index expression {self} is not a constant: products of axes are not affine")
        return self.const

    def _split(self, n: int) -> tuple[Affine, Affine]:
        """(quotient part, rest): self = n * quotient + rest, rest holding what n does not divide."""
        divisible: dict[Atom, int] = {}
        rest: dict[Atom, int] = {}
        for atom, c in self.terms.items():
            if c % n == 0:
                divisible[atom] = c // n
            else:
                rest[atom] = c
        return Affine(divisible, self.const // n), Affine(rest, self.const % n)

    def __floordiv__(self, n: int) -> Affine:
        if n == 1:
            return self
        quotient, rest = self._split(n)
        low, high = rest.bounds
        if low // n == high // n:
            return quotient + low // n
        rest, _, common = _coarse(rest, n)
        n //= common
        if n == 1:
            return quotient + rest
        if len(rest.terms) == 1 and rest.const == 0:
            (atom, c), *_ = rest.terms.items()
            if type(atom) is Div and c == 1:
                rest, n = atom.arg, atom.n * n
        return quotient + Affine({Div(rest, n): 1}, 0)

    def __mod__(self, n: int) -> Affine:
        if n == 1:
            return ZERO
        _, rest = self._split(n)
        low, high = rest.bounds
        if low // n == high // n:
            return rest + (-(low // n) * n)
        coarse, fine, common = _coarse(rest, n)
        if common == n:
            return fine
        return Affine({Mod(coarse, n // common): common}, 0) + fine

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return not self.terms and self.const == other
        return isinstance(other, Affine) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((frozenset(self.terms.items()), self.const))
        return self._hash

    def substitute(self, table: Mapping[Axis, Affine], data: Callable[[Data], Affine]) -> Affine:
        """Replace axes by expressions; Div and Mod simplify again. data: what a Data atom becomes."""
        result = Affine({}, self.const)
        for atom, coefficient in self.terms.items():
            result = result + _substitute_atom(atom, table, data) * coefficient
        return result

    @property
    def is_linear(self) -> bool:
        """Only axes: no Div, Mod or Data."""
        return all(type(atom) is Axis for atom in self.terms)

    def __repr__(self) -> str:
        parts = [_show_term(atom, c) for atom, c in self.terms.items()]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


ZERO = Affine({}, 0)


def constant(value: int) -> Affine:
    return Affine({}, value)


def of_axis(axis: Axis) -> Affine:
    """The axis as an expression; 0 if it has one iteration."""
    return ZERO if axis.extent == 1 else Affine({axis: 1}, 0)


def of_data(data: Data) -> Affine:
    return Affine({data: 1}, 0)


def as_affine(value: IntLike) -> Affine:
    return value if isinstance(value, Affine) else Affine({}, int(value))


def _coarse(rest: Affine, n: int) -> tuple[Affine, Affine, int]:
    """(a, r, g): rest = g*a + r with g a divisor of n and 0 <= r < g, as large a g as the terms show.

    So floor(rest / n) = floor(a / (n/g)) and rest % n = g * (a % (n/g)) + r.
    """
    ordered = sorted(rest.terms.items(), key=lambda item: -abs(item[1]))
    for kept in range(1, len(ordered) + 1):
        common = math.gcd(n, *(c for _, c in ordered[:kept]))
        fine = Affine(dict(ordered[kept:]), rest.const % common)
        low, high = fine.bounds
        if low >= 0 and high < common:
            coarse = Affine({atom: c // common for atom, c in ordered[:kept]}, rest.const // common)
            return coarse, fine, common
    return rest, ZERO, 1


def _recombine(terms: dict[Atom, int], const: int) -> Affine:
    """c*n*(x//n) + c*(x%n) -> c*x, wherever both stand in `terms`."""
    for atom, c in terms.items():
        if type(atom) is Mod:
            partner = Div(atom.arg, atom.n)
            if terms.get(partner) == c * atom.n:
                rest = {a: k for a, k in terms.items() if a is not atom and a != partner}
                return Affine(rest, const) + atom.arg * c
            merged = _partial_quotient(terms, atom, c)
            if merged is not None:
                return Affine(merged[0], const) + merged[1]
    return Affine(terms, const)


def _partial_quotient(terms: dict[Atom, int], mod: Mod, c: int) -> tuple[dict[Atom, int], Affine] | None:
    """c*(x%n) + c*n*((x//n) % m) -> c*(x % (n*m)): neighbouring digits of one number."""
    for other, k in terms.items():
        if type(other) is Mod and other is not mod and k == c * mod.n and (mod.arg // mod.n) == other.arg:
            rest = {a: v for a, v in terms.items() if a is not mod and a is not other}
            return rest, (mod.arg % (mod.n * other.n)) * c
    return None


def _substitute_atom(atom: Atom, table: Mapping[Axis, Affine], data: Callable[[Data], Affine]) -> Affine:
    if isinstance(atom, Axis):
        return table[atom] if atom in table else of_axis(atom)
    if isinstance(atom, Div):
        return atom.arg.substitute(table, data) // atom.n
    if isinstance(atom, Mod):
        return atom.arg.substitute(table, data) % atom.n
    return data(atom)


def _show_term(atom: Atom, coefficient: int) -> str:
    if isinstance(atom, Axis):
        text = atom.name
    elif isinstance(atom, Data):
        text = f"[{atom.value}]"
    else:
        text = f"({atom.arg}){'//' if isinstance(atom, Div) else '%'}{atom.n}"
    return text if coefficient == 1 else f"{coefficient}*{text}"


class SympyConverter:
    """Affine -> sympy, memoised. names: what each axis and Data is called; they become integer symbols."""

    def __init__(self, names: Mapping[Atom, str]) -> None:
        self._names = names
        self._memo: dict[Affine, sympy.Expr] = {}

    def __call__(self, affine: Affine) -> sympy.Expr:
        if affine not in self._memo:
            self._memo[affine] = self._convert(affine)
        return self._memo[affine]

    def _convert(self, affine: Affine) -> sympy.Expr:
        import sympy

        terms = [sympy.Mul(sympy.Integer(c), self._atom(atom)) for atom, c in affine.terms.items()]
        return sympy.Add(*terms, sympy.Integer(affine.const))

    def _atom(self, atom: Atom) -> sympy.Expr:
        from compiler_core.symbolic.functions import FloorDiv, FloorMod, integer_symbol

        if isinstance(atom, (Axis, Data)):
            return integer_symbol(self._names[atom])
        function = FloorDiv if isinstance(atom, Div) else FloorMod
        return function(self(atom.arg), atom.n)
