"""The regularised incomplete gamma functions, as primitives that NumPy computes by iteration to convergence.

In: a and x, two floating arrays alike. Out: P(a, x) (igamma) or Q = 1 - P (igammac), of their shape and dtype; NaN for
negative a or x. A call back: the number of steps depends on the data, which loops over elements cannot express.
Power series for x < a + 1, Lentz' continued fraction elsewhere (Press et al., "Numerical Recipes", 6.2), in float64.
special/gamma.py adds the derivative for x; for a there is none, as in torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.ops.checks import FLOATING, infer_alike
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
        first = regular & (flat_x < flat_a + 1.0)
        second = regular & ~first
        if first.any():
            low[first] = _series(flat_a[first], flat_x[first])
            high[first] = 1.0 - low[first]
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
