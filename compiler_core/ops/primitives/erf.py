"""The error function and its complement on whole arrays, without SciPy.

In: a float32 or float64 array. Out: erf (erfc) of each element, in the array's dtype.
float64: W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969), in the three
ranges |x| <= 0.46875, <= 4, > 4; a few ulp everywhere. float32: below NEAR x + x q(x^2), q of Norbert Juffa; above
1 - p^2, where p is a minimax fit of erfc's square root about CENTRE, at which that is nearly a float. `C_TEXT` is the
same for C++, within 1 ulp; eager code calls it (the slot `HERE`), so its bits are those of compiled code. Without a
compiler NumPy takes the same steps, whose products are rounded: within 1.5 ulp, and never beyond 1. Tested against
math.erf. On a CUDA device: CUDA's own, one kernel.
A long NumPy array is computed in pieces whose dozen intermediates stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.late import Late
from compiler_core.ops.registry import Array

# float32's, highest power first
NEAR = 0.921875  # up to there x + x q(x^2)
_NEAR_Q = (-5.9910497e-4, 4.993396e-3, -2.6766734e-2, 1.12818025e-1, -3.7612486e-1, 1.2837915e-1)
CENTRE, END = 0.9467010498, 3.95  # of p; from END on erf is 1
_FAR_P = (6.549517e-6, -1.02766135e-4, 6.365323e-4, -1.735572e-3, 5.366939e-4, 7.2318236e-3, -4.653608e-3, -4.642638e-2,
          7.051861e-2, 1.67586e-1, -5.41757e-1, 4.2499834e-1)  # fmt: skip

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
HERE: Late[Callable[[Array], Array | None]] = Late("erf: on the CPU")  # of float32; None where there is no compiler


def _c_steps(coefficients: Sequence[float], variable: str, name: str) -> str:
    """The polynomial as fused steps, highest power first."""
    first, *rest = coefficients
    steps = [f"  {name} = __builtin_fmaf({name}, {variable}, {c!r}f);\n" for c in rest]
    return f"  float {name} = {first!r}f;\n" + "".join(steps)


C_TEXT = f"""\
// erf in float, within 1 unit in the last place (ops/primitives/erf.py). Both are computed: a vector has no branch.
DC_INLINE float dc_erf(float x) {{
  const float size = __builtin_fabsf(x), u = (size < {END!r}f ? size : {END!r}f) - {CENTRE!r}f;
{_c_steps(_FAR_P, "u", "p")}\
{_c_steps(_NEAR_Q, "x * x", "q")}\
  return size > {NEAR!r}f ? __builtin_copysignf(__builtin_fmaf(-p, p, 1.0f), x) : __builtin_fmaf(q, x, x);
}}
"""


def erf_array(xp: Any, x: Array) -> Array:
    """erf(x), elementwise. x: f32[...] or f64[...]."""
    if xp is not np and (kernel := cuda.special("erf")) is not None:
        return kernel(x)  # type: ignore[no-any-return]
    if x.dtype == np.float64:
        return _in_pieces(_erf_f64, xp, x)
    made = HERE.get()(x) if xp is np and type(x) is np.ndarray else None
    return _in_pieces(erf_in_float32, xp, x) if made is None else made


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


def erf_in_float32(xp: Any, x: Array) -> Array:
    """The steps of C_TEXT, products and sums rounded one after the other. x: f32[...]."""
    x = xp.atleast_1d(x)
    size = xp.abs(x)
    p = _horner(_FAR_P, xp.minimum(size, np.float32(END)) - np.float32(CENTRE))
    p *= p
    far = xp.copysign(np.float32(1) - p, x)
    small = xp.minimum(size, np.float32(1))
    small *= small
    small = _horner(_NEAR_Q, small)
    small *= x
    small += x
    bits, changed = small.view(np.int32), far.view(np.int32)  # chosen by bits: `where` takes a branch an element
    changed ^= bits
    changed *= size > np.float32(NEAR)
    bits ^= changed
    return small


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
