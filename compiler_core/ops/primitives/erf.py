"""The error function and its complement on whole arrays, without SciPy.

In: a float32 or float64 array. Out: erf (erfc) of each element, in the array's dtype.
float64: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969), in the three
ranges |x| <= 0.46875, <= 4, > 4; a few ulp everywhere. float32: one odd rational function of degree 13/8 on [-4, 4]
(the minimax fit used by Eigen and XLA); a few ulp. Tested against math.erf. On a CUDA device: CUDA's own, one kernel.
A long NumPy array is computed in pieces whose dozen intermediates stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.ops.registry import Array

_F32_ODD = (-1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04, -5.69250639462346e-05,
            -2.10102402082508e-06, 2.77068142495902e-08, -2.72614225801306e-10)  # fmt: skip
_F32_EVEN = (-1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03, -2.13374055278905e-04,
             -1.45660718464996e-05)  # fmt: skip

# Cody's coefficients, highest power first: numerators and denominators of the three ranges.
SMALL_P = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
            3.20937758913846947e3)  # fmt: skip
SMALL_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
MIDDLE_P = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
             2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
             1.23033935479799725e3)  # fmt: skip
MIDDLE_Q = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
             3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip
LARGE_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
            1.60837851487422766e-2, 6.58749161529837803e-4)  # fmt: skip
LARGE_Q = (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
            2.33520497626869185e-3)  # fmt: skip
INV_SQRT_PI = 5.6418958354775628695e-1
PIECE = 1 << 14  # elements


def erf_array(xp: Any, x: Array) -> Array:
    """erf(x), elementwise. x: f32[...] or f64[...]."""
    if xp is not np and (kernel := cuda.special("erf")) is not None:
        return kernel(x)  # type: ignore[no-any-return]
    return _in_pieces(_erf_f64 if x.dtype == np.float64 else _erf_f32, xp, x)


def _in_pieces(function: Callable[[Any, Array], Array], xp: Any, x: Array) -> Array:
    """function(xp, x), an elementwise one that keeps the dtype."""
    if xp is not np or x.size <= PIECE:
        return function(xp, x).reshape(x.shape)
    flat = x.ravel()
    result: Array = np.empty_like(flat)
    for start in range(0, flat.size, PIECE):
        result[start : start + PIECE] = function(np, flat[start : start + PIECE])
    return result.reshape(x.shape)


def _horner(coefficients: Sequence[float], z: Array) -> Array:
    """The polynomial with `coefficients`, highest power first, at z."""
    total: Array = z * z.dtype.type(coefficients[0])
    for c in coefficients[1:-1]:
        total += z.dtype.type(c)
        total *= z
    total += z.dtype.type(coefficients[-1])
    return total


def _erf_f32(xp: Any, x: Array) -> Array:
    y: Array = xp.atleast_1d(xp.clip(x, -4.0, 4.0))
    z = y * y
    return y * _horner(_F32_ODD[::-1], z) / _horner(_F32_EVEN[::-1], z)


def erfc_array(xp: Any, x: Array) -> Array:
    """erfc(x) = 1 - erf(x) without cancellation, elementwise, by way of float64. x: f32[...] or f64[...]."""
    if xp is not np and (kernel := cuda.special("erfc")) is not None:
        return kernel(x)  # type: ignore[no-any-return]
    return _in_pieces(_erfc, xp, x)


def _erfc(xp: Any, x: Array) -> Array:
    wide = xp.atleast_1d(x).astype(np.float64)
    y = xp.abs(wide)
    tail = _upper_tail(xp, y)
    value = xp.where(y <= 0.46875, 1.0 - _near_zero(xp.clip(wide, -0.5, 0.5)), xp.where(wide < 0, 2.0 - tail, tail))
    return xp.where(xp.isnan(wide), wide, value).astype(x.dtype)  # type: ignore[no-any-return]


def _near_zero(y: Array) -> Array:
    """erf(y) where |y| <= 0.46875."""
    z = y * y
    return y * _horner(SMALL_P, z) / _horner(SMALL_Q, z)


def _upper_tail(xp: Any, y: Array) -> Array:
    """erfc(y) where y >= 0.46875. exp(-y^2) is taken in two parts, as y^2 is large beside what its rounding loses."""
    y = xp.minimum(y, 40.0)  # where all is 0
    coarse = xp.trunc(y * 16.0) / 16.0
    gauss = xp.exp(-coarse * coarse) * xp.exp(-(y - coarse) * (y + coarse))
    mid = xp.clip(y, 0.46875, 4.0)
    far = xp.maximum(y, 4.0)
    w = 1.0 / (far * far)
    near = _horner(MIDDLE_P, mid) / _horner(MIDDLE_Q, mid)
    away = (INV_SQRT_PI - w * _horner(LARGE_P, w) / _horner(LARGE_Q, w)) / far
    return xp.where(gauss == 0.0, 0.0, gauss * xp.where(y <= 4.0, near, away))  # type: ignore[no-any-return]


def _erf_f64(xp: Any, x: Array) -> Array:
    y = xp.atleast_1d(xp.abs(x))
    value = xp.where(y <= 0.46875, _near_zero(xp.minimum(y, 0.5)), 1.0 - _upper_tail(xp, xp.clip(y, 0.46875, 6.0)))
    value = xp.where(xp.isnan(y), y, value)
    return xp.copysign(value, xp.atleast_1d(x))  # type: ignore[no-any-return]
