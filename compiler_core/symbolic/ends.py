"""Intervals of integers, as what is known of a size: both ends are included, and may be infinite."""

from __future__ import annotations

import math
from typing import TypeAlias

Ends: TypeAlias = tuple[float, float]  # ints, or infinite
WHOLE: Ends = (-math.inf, math.inf)


def both(a: Ends, b: Ends) -> Ends:
    """What is in both."""
    return max(a[0], b[0]), min(a[1], b[1])


def product(a: Ends, b: Ends) -> Ends:
    ends = [_times(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _times(a: float, b: float) -> float:
    return 0 if not a or not b else a * b


def quotient(a: Ends, b: Ends) -> Ends:
    """Of a // b; of positive divisors alone."""
    (low, high), (least, most) = a, b
    if least < 1:
        return WHOLE
    return _floor(low, least if low < 0 else most), _floor(high, most if high < 0 else least)


def remainder(a: Ends, b: Ends) -> Ends:
    """Of a % b; of positive divisors alone."""
    (low, high), (least, most) = a, b
    if least < 1:
        return WHOLE
    return 0, min(most - 1, high) if low >= 0 else most - 1


def _floor(a: float, b: float) -> float:
    """a // b of b >= 1, either infinite."""
    if math.isinf(a):
        return a
    return (-1 if a < 0 else 0) if b == math.inf else a // b
