"""Bessel functions of orders 0 and 1 and the Airy function Ai, by trapezoidal sums of integral representations.

In: one value; integers become the default dtype first. Out: one value, computed in float64, rounded once.
Method: the integrands are analytic and periodic, or fall off double-exponentially, so the trapezoidal rule converges
geometrically (Trefethen and Weideman, SIAM Review 56, 2014): a few tens of points give all digits. J and Y beyond 25
by Hankel's expansion; Y and small K by Neumann's series (Abramowitz and Stegun 9.1.88, 9.6.53), whose sums over orders
become weights of the same points; K1 from the Wronskian. Ai: Maclaurin's series between -8 and 1, its expansion and
K_(1/3) outside; float64 keeps ten digits near -8. Gradients are those of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import cast, dtype_of, floating
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.special.elementary import in_float64, polynomial

_POINTS = 80  # on the whole circle, for I and small K
_NODES = 18  # of a peak
_FAR = 25.0
_ANGLES = np.pi * (np.arange(_POINTS // 2) + 0.5) / (_POINTS // 2)  # midpoints of [0, pi]
_WAVE_POINTS = 120  # for J and Y up to 25: Y's sum goes to order 57, and orders above 120 - 57 alias into it
_QUARTER = 2.0 * np.pi * (np.arange(_WAVE_POINTS // 4) + 0.5) / _WAVE_POINTS  # sin t takes each value twice in [0, pi]


def _weighted(functions: Sequence[Value], weights: Iterable[float]) -> Value:
    first, *rest = weights
    total = F.mul(functions[0], float(first))
    for function, weight in zip(functions[1:], rest):
        total = prims.add(total, F.mul(function, float(weight)))
    return total


def _peak(x: Value, top: Value, order: int, *, hyperbolic: bool) -> Value:
    """The trapezoidal integral over t in [0, top] of exp(-x |cosh t - 1|) cosh(order t), or of cos in place of cosh."""
    step = F.mul(prims.detach(top), 1.0 / _NODES)
    total = prims.full_like(x, 0.5)
    for k in range(1, _NODES + 1):
        t = F.mul(step, float(k))
        half = F.mul(t, 0.5)
        sine = F.mul(prims.sub(F.exp(half), F.exp(prims.neg(half))), 0.5) if hyperbolic else F.sin(half)
        falls = F.exp(F.mul(prims.mul(x, prims.mul(sine, sine)), -2.0))
        if order:
            wave = F.mul(prims.add(F.exp(t), F.exp(prims.neg(t))), 0.5) if hyperbolic else F.cos(t)
            falls = prims.mul(falls, wave)
        total = prims.add(total, falls)
    return prims.mul(total, step)


def _series_i(x: Value, order: int) -> Value:
    """I_order(x) for |x| <= 1, by its series."""
    square = F.mul(prims.mul(x, x), 0.25)
    value = polynomial([1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(9, -1, -1)], square)
    return prims.mul(F.mul(x, 0.5), value) if order else value


def _near_i(x: Value, order: int) -> tuple[Value, Value, Value]:
    """(whether |x| < 1, I_order(x) there, x elsewhere)."""
    near = F.lt(prims.abs(x), 1.0)
    series = _series_i(prims.where(near, x, prims.full_like(x, 0.0)), order)
    return near, series, prims.where(near, prims.full_like(x, 1.0), x)


def _scaled_i(x: Value, order: int) -> Value:
    """exp(-|x|) I_order(x)."""
    near, series, beyond = _near_i(x, order)
    return prims.where(near, prims.mul(series, F.exp(prims.neg(prims.abs(x)))), _scaled_beyond(beyond, order))


def _scaled_beyond(wide: Value, order: int) -> Value:
    """The same for |wide| >= 1."""
    endless = F.isinf(wide)
    x = prims.where(endless, prims.full_like(wide, 1.0), wide)
    size = prims.abs(x)
    far = F.gt(size, 20.0)
    near = prims.where(far, prims.full_like(x, 1.0), x)
    fall = prims.where(far, prims.full_like(x, 1.0), size)
    waves = [F.exp(prims.sub(F.mul(near, math.cos(t)), fall)) for t in _ANGLES]
    by_circle = _weighted(waves, np.cos(order * _ANGLES) / len(_ANGLES))
    big = prims.where(far, size, prims.full_like(x, 40.0))
    top = F.mul(prims.asin(F.sqrt(F.clamp(F.div(20.0, big), max=1.0))), 2.0)  # where big * (1 - cos t) is 40
    by_peak = F.mul(_peak(big, top, order, hyperbolic=False), 1.0 / math.pi)
    by_peak = prims.mul(prims.copysign(prims.full_like(x, 1.0), x), by_peak) if order else by_peak
    value = prims.where(far, by_peak, by_circle)
    at_end = prims.full_like(wide, 0.0)
    return prims.where(endless, prims.copysign(at_end, wide) if order else at_end, value)


def _of(input: Value, function: object) -> Value:
    need_kind("special", "biuf", input)
    x = floating(input)
    return cast(function(in_float64(x)), dtype_of(x))  # type: ignore[operator]


def i0e(input: Value) -> Value:
    """exp(-|input|) I0(input)."""
    return _of(input, lambda x: _scaled_i(x, 0))


def _odd(x: Value, value: Value) -> Value:
    return prims.mul(prims.copysign(prims.full_like(x, 1.0), x), value)


def i1e(input: Value) -> Value:
    """exp(-|input|) I1(input)."""
    return _of(input, lambda x: _scaled_i(x, 1))


def _unscaled(wide: Value, order: int) -> Value:
    """I_order, by exp(|x|) in two steps, so that what fits does not overflow between."""
    near, series, x = _near_i(wide, order)
    beyond = F.gt(prims.abs(x), 714.0)  # what float64 holds
    large = prims.where(beyond, x, prims.full_like(x, 1.0))
    endless = F.mul(large if order else prims.abs(large), math.inf)
    x = prims.where(beyond, prims.full_like(x, 1.0), x)
    half = F.exp(F.mul(prims.abs(x), 0.5))
    value = prims.mul(prims.mul(_scaled_beyond(x, order), half), half)
    return prims.where(near, series, prims.where(beyond, endless, value))


def i0(input: Value) -> Value:
    """The modified Bessel function I0."""
    return _of(input, lambda x: _unscaled(x, 0))


def i1(input: Value) -> Value:
    """The modified Bessel function I1."""
    return _of(input, lambda x: _unscaled(x, 1))


# ---- K


def _k_near(x: Value, order: int) -> Value:
    """K0 or K1 for 0 < x <= 2."""
    waves = [F.exp(F.mul(x, math.cos(t))) for t in _ANGLES]
    mean = 1.0 / len(_ANGLES)
    first = _weighted(waves, [mean] * len(_ANGLES))
    orders = np.arange(1, 20)
    weights = [2.0 * mean * float(np.sum(np.cos(2 * orders * t) / orders)) for t in _ANGLES]
    logarithm = F.add(F.log(F.mul(x, 0.5)), float(np.euler_gamma))
    k0 = prims.sub(_weighted(waves, weights), prims.mul(logarithm, first))
    if order == 0:
        return k0
    second = _weighted(waves, np.cos(_ANGLES) * mean)
    return prims.div(prims.sub(prims.div(prims.full_like(x, 1.0), x), prims.mul(second, k0)), first)


def _scaled_k(x: Value, order: int) -> Value:
    """exp(x) K_order(x); inf at 0, NaN below."""
    near = F.le(x, 2.0)
    inside = F.logical_and(near, F.gt(x, 0.0))
    small = prims.where(inside, x, prims.full_like(x, 1.0))
    by_series = prims.mul(_k_near(small, order), F.exp(small))
    big = prims.where(F.logical_or(near, F.isinf(x)), prims.full_like(x, 4.0), x)
    by_peak = _peak(big, F.mul(prims.asinh(F.sqrt(F.div(20.0, big))), 2.0), order, hyperbolic=True)
    ends = F.where(F.eq(x, 0.0), math.inf, F.where(F.eq(x, math.inf), 0.0, math.nan))
    value = prims.where(near, by_series, by_peak)
    regular = F.logical_and(F.gt(x, 0.0), F.lt(x, math.inf))
    return F.where(regular, value, ends)


def scaled_modified_bessel_k0(input: Value) -> Value:
    """exp(input) K0(input)."""
    return _of(input, lambda x: _scaled_k(x, 0))


def scaled_modified_bessel_k1(input: Value) -> Value:
    """exp(input) K1(input)."""
    return _of(input, lambda x: _scaled_k(x, 1))


def modified_bessel_k0(input: Value) -> Value:
    """The modified Bessel function K0."""
    return _of(input, lambda x: prims.mul(_scaled_k(x, 0), F.exp(prims.neg(x))))


def modified_bessel_k1(input: Value) -> Value:
    """The modified Bessel function K1."""
    return _of(input, lambda x: prims.mul(_scaled_k(x, 1), F.exp(prims.neg(x))))


# ---- J and Y


def _hankel(order: float, x: Value) -> tuple[Value, Value]:
    """P and Q of Hankel's expansion (A&S 9.2.9, 9.2.10) at x > 0 large."""
    terms, mu = [1.0], 4.0 * order * order
    for k in range(1, 16):
        terms.append(terms[-1] * (mu - (2 * k - 1) ** 2) / (8.0 * k))
    inverse = prims.div(prims.full_like(x, 1.0), x)
    square = prims.mul(inverse, inverse)
    even = [(-1.0) ** k * term for k, term in enumerate(terms[0::2])]
    odd = [(-1.0) ** k * term for k, term in enumerate(terms[1::2])]
    return polynomial(even[::-1], square), prims.mul(polynomial(odd[::-1], square), inverse)


def _oscillating(order: float, x: Value, *, second: bool) -> Value:
    """J_order, or Y_order, at x > 25."""
    p, q = _hankel(order, x)
    shift = (0.5 * order + 0.25) * math.pi
    cosine, sine = F.cos(x), F.sin(x)
    c = prims.add(F.mul(cosine, math.cos(shift)), F.mul(sine, math.sin(shift)))  # cos(x - shift)
    s = prims.sub(F.mul(sine, math.cos(shift)), F.mul(cosine, math.sin(shift)))
    wave = prims.add(prims.mul(p, s), prims.mul(q, c)) if second else prims.sub(prims.mul(p, c), prims.mul(q, s))
    return F.mul(prims.mul(wave, F.rsqrt(x)), math.sqrt(2.0 / math.pi))


def _split(x: Value) -> tuple[Value, Value, Value]:
    """(is far, x where near or 1, x where far or 30)."""
    far = F.gt(x, _FAR)
    usable = F.logical_and(far, F.lt(x, math.inf))
    return far, prims.where(far, prims.full_like(x, 1.0), x), prims.where(usable, x, prims.full_like(x, 30.0))


def _near_waves(x: Value, order: int) -> list[Value]:
    function = F.sin if order else F.cos
    return [function(F.mul(x, math.sin(t))) for t in _QUARTER]


_MEAN = 1.0 / len(_QUARTER)
_MEANS = (np.full_like(_QUARTER, _MEAN), np.sin(_QUARTER) * _MEAN)  # J0 and J1 as weights of their waves


def _j(wide: Value, order: int) -> Value:
    x = prims.abs(wide)
    far, near, big = _split(x)
    by_circle = _weighted(_near_waves(near, order), _MEANS[order])
    value = prims.where(far, _oscillating(order, big, second=False), by_circle)
    return F.where(F.isinf(x), 0.0, value)


def bessel_j0(input: Value) -> Value:
    """The Bessel function J0."""
    return _of(input, lambda x: _j(x, 0))


def bessel_j1(input: Value) -> Value:
    """The Bessel function J1."""
    return _of(input, lambda x: _odd(x, _j(x, 1)))


def _y_near(x: Value, order: int) -> Value:
    """Neumann's series for Y0, and its derivative for Y1, at 0 < x <= 25."""
    k = np.arange(1, 29)
    cosines = _near_waves(x, 0)
    logarithm = F.add(F.log(F.mul(x, 0.5)), float(np.euler_gamma) - order)
    if order == 0:
        weights = [4.0 / math.pi * _MEAN * float(np.sum(np.cos(2 * k * t) * -((-1.0) ** k) / k)) for t in _QUARTER]
        j0 = _weighted(cosines, _MEANS[0])
        return prims.add(F.mul(prims.mul(logarithm, j0), 2.0 / math.pi), _weighted(cosines, weights))
    sines = _near_waves(x, 1)
    terms = -((-1.0) ** k) * (2 * k + 1) / (k * (k + 1))
    weights = [_MEAN * float(np.sum(np.sin((2 * k + 1) * t) * terms)) for t in _QUARTER]
    total = prims.add(prims.mul(logarithm, _weighted(sines, _MEANS[1])), _weighted(sines, weights))
    return F.mul(prims.sub(total, prims.div(_weighted(cosines, _MEANS[0]), x)), 2.0 / math.pi)


def _y(x: Value, order: int) -> Value:
    far, near, big = _split(x)
    near = prims.where(F.gt(near, 0.0), near, prims.full_like(x, 1.0))
    value = prims.where(far, _oscillating(order, big, second=True), _y_near(near, order))
    value = F.where(F.eq(x, 0.0), -math.inf, F.where(F.lt(x, 0.0), math.nan, value))
    value = F.where(F.isinf(x), F.where(F.gt(x, 0.0), 0.0, math.nan), value)
    return prims.where(prims.isnan(x), x, value)


def bessel_y0(input: Value) -> Value:
    """The Bessel function Y0: -inf at 0, NaN below."""
    return _of(input, lambda x: _y(x, 0))


def bessel_y1(input: Value) -> Value:
    """The Bessel function Y1: -inf at 0, NaN below."""
    return _of(input, lambda x: _y(x, 1))


def spherical_bessel_j0(input: Value) -> Value:
    """sin(input) / input, 1 at 0, 0 at infinity."""

    def wide(x: Value) -> Value:
        ordinary = F.logical_and(F.ne(x, 0.0), F.logical_not(F.isinf(x)))
        safe = prims.where(ordinary, x, prims.full_like(x, 1.0))
        return F.where(ordinary, prims.div(F.sin(safe), safe), F.where(F.isinf(x), 0.0, 1.0))

    return _of(input, wide)


# ---- Ai


def _airy_series(x: Value) -> Value:
    """Maclaurin's series (A&S 10.4.2)."""
    cube = prims.mul(x, prims.mul(x, x))
    f, g = [1.0], [1.0]
    for k in range(1, 40):
        f.append(f[-1] / ((3 * k - 1) * (3 * k)))
        g.append(g[-1] / ((3 * k) * (3 * k + 1)))
    at_zero, slope = 0.355028053887817239, 0.258819403792806798
    return prims.sub(F.mul(polynomial(f[::-1], cube), at_zero), F.mul(prims.mul(x, polynomial(g[::-1], cube)), slope))


def _airy_terms(zeta: Value) -> tuple[Value, Value]:
    """The even and odd sums of Ai's expansion in 1/zeta, with alternating signs (A&S 10.4.58, 10.4.60)."""
    terms = [1.0]
    for k in range(1, 16):
        terms.append(terms[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / ((2 * k - 1) * 216.0 * k))
    inverse = prims.div(prims.full_like(zeta, 1.0), zeta)
    square = prims.mul(inverse, inverse)
    even = [(-1.0) ** k * t for k, t in enumerate(terms[0::2])]
    odd = [(-1.0) ** k * t for k, t in enumerate(terms[1::2])]
    return polynomial(even[::-1], square), prims.mul(polynomial(odd[::-1], square), inverse)


def _airy_wide(x: Value) -> Value:
    size = prims.abs(x)
    right, left = F.gt(x, 1.0), F.lt(x, -8.0)
    series = _airy_series(F.where(F.logical_or(right, left), 0.0, x))
    y = F.where(F.logical_and(F.logical_or(right, left), F.lt(size, math.inf)), size, 9.0)
    zeta = F.mul(prims.mul(y, F.sqrt(y)), 2.0 / 3.0)
    top = F.mul(prims.asinh(F.sqrt(F.div(20.0, zeta))), 2.0)
    thirds = _third_order(zeta, top)
    decays = F.mul(prims.mul(prims.mul(F.sqrt(y), thirds), F.exp(prims.neg(zeta))), 1.0 / (math.pi * math.sqrt(3.0)))
    even, odd = _airy_terms(zeta)
    phase = F.add(zeta, math.pi / 4.0)
    wave = prims.sub(prims.mul(F.sin(phase), even), prims.mul(F.cos(phase), odd))
    waves = F.mul(prims.mul(wave, F.rsqrt(F.sqrt(y))), 1.0 / math.sqrt(math.pi))
    value = prims.where(right, decays, prims.where(left, waves, series))
    return F.where(F.isinf(x), 0.0, F.where(prims.isnan(x), x, value))


def _third_order(x: Value, top: Value) -> Value:
    """exp(x) K_(1/3)(x) for x above 2/3."""
    nodes = 24
    step = F.mul(prims.detach(top), 1.0 / nodes)
    total = prims.full_like(x, 0.5)
    for k in range(1, nodes + 1):
        t = F.mul(step, float(k))
        half, third = F.mul(t, 0.5), F.mul(t, 1.0 / 3.0)
        sine = F.mul(prims.sub(F.exp(half), F.exp(prims.neg(half))), 0.5)
        falls = F.exp(F.mul(prims.mul(x, prims.mul(sine, sine)), -2.0))
        wave = F.mul(prims.add(F.exp(third), F.exp(prims.neg(third))), 0.5)
        total = prims.add(total, prims.mul(falls, wave))
    return prims.mul(total, step)


def airy_ai(input: Value) -> Value:
    """The Airy function Ai."""
    return _of(input, _airy_wide)
