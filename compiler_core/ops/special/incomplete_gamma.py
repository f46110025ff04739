"""The regularised incomplete gamma functions, as primitives that NumPy computes by iteration to convergence.

In: a and x, two floating arrays alike. Out: P(a, x) (igamma) or Q = 1 - P (igammac), of their shape and dtype; NaN for
negative a or x. A call back: the number of steps depends on the data, which loops over elements cannot express.
Power series for x < a + 1, Lentz' continued fraction elsewhere (Press et al., "Numerical Recipes", 6.2), in float64.
From a = 1e6 on, where those take too many steps, the first term of Temme's uniform expansion (DLMF 8.12.3), good to
1e-12.
special/gamma.py adds the derivative for x; for a there is none, as in torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.ops.checks import FLOATING, infer_alike
from compiler_core.ops.primitives.erf import erfc_array
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import ALIKE, OwnCode

_STEPS = 20000
_LGAMMA = np.vectorize(math.lgamma, otypes=[np.float64])


def _series(a: Array, x: Array) -> Array:
    """P(a, x) for x < a + 1."""
    term = total = 1.0 / a
    n = a.copy()
    for _ in range(_STEPS):
        n += 1.0
        term = term * (x / n)
        total = total + term
        if np.all(np.abs(term) <= np.abs(total) * 1e-17):
            break
    return np.asarray(total * np.exp(a * np.log(x) - x - _LGAMMA(a)))


def _fraction(a: Array, x: Array) -> Array:
    """Q(a, x) for x >= a + 1."""
    b = x + 1.0 - a
    c, d = np.full_like(x, 1e300), 1.0 / b
    h = d.copy()
    for k in range(1, _STEPS):
        factor = -k * (k - a)
        b = b + 2.0
        d = factor * d + b
        d = 1.0 / np.where(np.abs(d) < 1e-300, 1e-300, d)
        c = b + factor / c
        c = np.where(np.abs(c) < 1e-300, 1e-300, c)
        h = h * (c * d)
        if np.all(np.abs(c * d - 1.0) <= 1e-16):
            break
    return np.asarray(h * np.exp(a * np.log(x) - x - _LGAMMA(a)))


def _rest_near_zero(a: Array, x: Array) -> Array:
    """Q(a, x) for a, x < 1, of which 1 - P has few digits: of P's series, x^a / gamma(1 + a) and what it is times."""
    # log gamma(1 + a), by its Taylor series (Euler's constant, zeta(2), zeta(3)) where 1 + a has few digits of a
    tiny = a < 1e-4
    log_gamma = np.where(tiny, a * (a * (0.8224670334241132 - a * 0.4006856343865314) - 0.5772156649015329), 0.0)
    log_gamma = np.where(tiny, log_gamma, _LGAMMA(1.0 + a))
    term, total = np.ones_like(x), np.zeros_like(x)
    for n in range(1, 30):
        term = term * (-x / n)
        total = total + term / (a + n)
    power = a * np.log(x) - log_gamma
    return np.asarray(-np.expm1(power) - a * np.exp(power) * total)


_LARGE = 1e6


def _asymptotic(a: Array, x: Array) -> tuple[Array, Array]:
    """(P, Q) for large a: erfc(-+eta sqrt(a/2)) / 2 -+ the remainder, with eta^2 / 2 = m - log(1 + m), m = x/a - 1."""
    m = (x - a) / a
    small = np.abs(m) < 0.01
    near, far = np.where(small, m, 0.0), np.where(small, 0.01, m)
    series = np.zeros_like(m)
    for k in range(12, 1, -1):  # (-m)^k / k
        series = (series + 1.0 / k) * -near
    half = np.where(small, series * -near, far - np.log1p(far))
    eta = np.copysign(np.sqrt(2.0 * half), m)
    # 1 / m - 1 / eta, near 0 by its series
    first = ((1.0 / 864.0 * eta - 2.0 / 135.0) * eta + 1.0 / 12.0) * eta - 1.0 / 3.0
    first = np.where(small, first, 1.0 / far - 1.0 / np.where(small, 1.0, eta))
    rest = np.exp(-a * half) / np.sqrt(2.0 * math.pi * a) * first
    z = eta * np.sqrt(a / 2.0)
    return 0.5 * erfc_array(np, -z) - rest, 0.5 * erfc_array(np, z) + rest


def _incomplete(a: Array, x: Array, *, upper: bool) -> Array:
    """P or Q in a's dtype."""
    flat_a, flat_x = (np.asarray(v, np.float64).ravel() for v in (a, x))
    with np.errstate(all="ignore"):
        low = np.full(flat_a.shape, np.nan)
        known = (flat_a >= 0) & (flat_x >= 0)
        low[known & (flat_x == 0) & (flat_a > 0)] = 0.0
        low[known & (flat_a == 0) & (flat_x > 0)] = 1.0
        low[known & np.isinf(flat_x) & np.isfinite(flat_a)] = 1.0
        low[known & np.isinf(flat_a) & np.isfinite(flat_x)] = 0.0
        high = 1.0 - low
        regular = known & (flat_a > 0) & (flat_x > 0) & np.isfinite(flat_a) & np.isfinite(flat_x)
        large = regular & (flat_a >= _LARGE)
        first = regular & ~large & (flat_x < flat_a + 1.0)
        second = regular & ~large & ~first
        if large.any():
            low[large], high[large] = _asymptotic(flat_a[large], flat_x[large])
        if first.any():
            low[first] = _series(flat_a[first], flat_x[first])
            high[first] = 1.0 - low[first]
        third = first & (flat_a < 1.0) & (flat_x < 1.0)
        if third.any():
            high[third] = _rest_near_zero(flat_a[third], flat_x[third])
        if second.any():
            high[second] = _fraction(flat_a[second], flat_x[second])
            low[second] = 1.0 - high[second]
    return (high if upper else low).reshape(a.shape).astype(a.dtype)


def _eager_igamma(xp: Any, a: Array, x: Array) -> Array:
    return _incomplete(a, x, upper=False)


def _eager_igammac(xp: Any, a: Array, x: Array) -> Array:
    return _incomplete(a, x, upper=True)


def _register(name: str, eager: Any) -> Op:
    return register(
        Op(
            name,
            infer=infer_alike(name, FLOATING),
            eager=eager,
            vjp=NotDifferentiable("its derivative for x is added by special/gamma.py; for a there is none"),
            vmap=ALIKE,
            lower=call_back(name, eager, why="its number of steps depends on the data"),
            samples=tuple(Sample((shape, shape), low=0.1, high=9.0) for shape in ((3, 4), (), (2, 1, 5))),
            dtypes=FLOATING,
            host="its number of steps depends on the data",
            engines=OwnCode("its number of steps depends on the data"),
        )
    )


IGAMMA = _register("igamma", _eager_igamma)
IGAMMAC = _register("igammac", _eager_igammac)
