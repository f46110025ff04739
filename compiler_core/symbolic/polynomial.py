"""Polynomials with integer coefficients: their arithmetic, and division by leading terms.

    Terms    := {Monomial: coefficient}      the constant's monomial is empty
    Monomial := ((Factor, power), ...)       by the factors' keys; powers are positive

In: terms over factors, whatever these are: they hash, equal in structure only, and have a `key` of their own.
Out: terms. Invariants: none of what comes out has a coefficient 0; a division is exact, or leaves a rest that says what
is missing: dividend = whole*divisor + rest.
"""

from __future__ import annotations

import math
from typing import Protocol, TypeAlias

STEPS = 64  # of a division


class Factor(Protocol):
    """What is multiplied. key: no two factors share one; shorter names come first."""

    @property
    def key(self) -> tuple[int, str]: ...


Monomial: TypeAlias = tuple[tuple[Factor, int], ...]
Terms: TypeAlias = dict[Monomial, int]


def plus(a: Terms, b: Terms, times: int = 1) -> Terms:
    """a + times*b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + times * coefficient
    return _kept(total)


def product(a: Terms, b: Terms) -> Terms:
    total: Terms = {}
    for left, m in a.items():
        for right, n in b.items():
            monomial = _joined(left, right)
            total[monomial] = total.get(monomial, 0) + m * n
    return _kept(total)


def _kept(terms: Terms) -> Terms:
    return {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}


def common_factor(terms: Terms) -> int:
    """The greatest number that divides all coefficients but the constant's; 0 of a constant."""
    return math.gcd(*(coefficient for monomial, coefficient in terms.items() if monomial))


def without_common(terms: Terms) -> tuple[Monomial, Terms]:
    """(the largest monomial that divides all terms, the terms over it)."""
    first, *others = map(dict, terms)
    shared = ((factor, min(power, *(o.get(factor, 0) for o in others))) for factor, power in first.items())
    common = tuple(item for item in shared if item[1]) if others else ()
    ratios = {_ratio(monomial, common): coefficient for monomial, coefficient in terms.items()} if common else terms
    return common, {ratio: coefficient for ratio, coefficient in ratios.items() if ratio is not None}


def leading(terms: Terms) -> Monomial:
    """The monomial of the highest rank."""
    return next(iter(terms)) if len(terms) == 1 else max(terms, key=_rank)


def divided_by(dividend: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    """(whole, rest): dividend = whole*divisor + rest, whole of the terms that the divisor's leading one divides. By a
    divisor of several terms only where the rest is 0: else ({}, dividend), which is as true and shorter."""
    return _by_one(dividend, divisor) if len(divisor) == 1 else _by_several(dividend, divisor)


def _by_one(dividend: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    ((first, number),) = divisor.items()
    whole: Terms = {}
    rest: Terms = {}
    for monomial, coefficient in dividend.items():
        ratio = _ratio(monomial, first)
        if ratio is None:
            rest[monomial] = coefficient
        elif monomial == first or coefficient % number == 0:  # 3*s // (2*s) is 1 + s // (2*s), but 3*s // 2 stays
            whole[ratio], rest[monomial] = divmod(coefficient, number)
        else:
            rest[monomial] = coefficient
    return _kept(whole), _kept(rest)


def _by_several(dividend: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    first = leading(divisor)
    whole: Terms = {}
    left = dividend
    for _ in range(STEPS):
        if not left:
            return whole, {}
        monomial = leading(left)
        ratio, (times, more) = _ratio(monomial, first), divmod(left[monomial], divisor[first])
        if ratio is None or more:
            break
        whole[ratio] = whole.get(ratio, 0) + times
        left = plus(left, product({ratio: times}, divisor), -1)
    return {}, dividend


def _joined(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].key))


def _ratio(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, where b divides a."""
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) - power
    if any(power < 0 for power in powers.values()):
        return None
    return tuple(item for item in powers.items() if item[1])


def degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _rank(monomial: Monomial) -> tuple[int, list[tuple[int, list[int], int]]]:
    """A monomial order: by degree, then by the factors, those of earlier names first."""
    return degree(monomial), [(-size, [-ord(c) for c in text], power) for (size, text), power in _keys(monomial)]


def _keys(monomial: Monomial) -> list[tuple[tuple[int, str], int]]:
    return [(factor.key, power) for factor, power in monomial]
