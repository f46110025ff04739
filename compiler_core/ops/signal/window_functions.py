"""Window functions: torch.signal.windows, and torch.hann_window and its kin.

In: M, the number of points; sym: symmetric (for filters) or periodic (for spectra: the symmetric one of M + 1 points
without its last). Out: f[M] in the default dtype unless another is given. Formulas: Harris, "On the use of windows for
harmonic analysis", Proc. IEEE 66 (1978); Kaiser's with I0 of special/bessel.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError, UnsuitableDTypeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import cast
from compiler_core.ops.registry import Value
from compiler_core.ops.special.bessel import i0

WIDE = (dt.float32, dt.float64)  # dtypes of torch.signal's windows; its older names make others too


def _window(
    size: int, sym: bool, dtype: DType | None, shape: Callable[[Value, int], Value], dtypes: Sequence[DType] = WIDE
) -> Value:
    """shape(k, n) at k = 0..size-1 in float64, n the last place of the symmetric window."""
    target = dtype or dt.get_default_dtype()
    if size < 0:
        raise ShapeError("a window of a negative length", got=str(size))
    if target not in dtypes:
        raise UnsuitableDTypeError("windows are floating", expected=", ".join(d.name for d in dtypes), got=target.name)
    if size <= 1:
        return F.ones((size,), dtype=target)
    places = prims.iota((size,), 0, dt.float64)
    return cast(shape(places, size - 1 if sym else size), target)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: DType | None = None) -> Value:
    """The sum of (-1)^j a_j cos(2 pi j k / n)."""
    weights = list(a)
    if not weights:
        raise ShapeError("general_cosine: no coefficients", expected="at least one")

    def shape(k: Value, n: int) -> Value:
        total = prims.full_like(k, weights[0])
        for j, weight in enumerate(weights[1:], 1):
            total = F.add(total, F.mul(F.cos(F.mul(k, 2.0 * math.pi * j / n)), (-1.0) ** j * weight))
        return total

    return _window(M, sym, dtype, shape)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DType | None = None) -> Value:
    """alpha - (1 - alpha) cos(2 pi k / n)."""
    return general_cosine(M, a=(alpha, 1.0 - alpha), sym=sym, dtype=dtype)


def hamming(M: int, *, sym: bool = True, dtype: DType | None = None) -> Value:
    """Hamming's window."""
    return general_hamming(M, sym=sym, dtype=dtype)


def hann(M: int, *, sym: bool = True, dtype: DType | None = None) -> Value:
    """Von Hann's window."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype)


def blackman(M: int, *, sym: bool = True, dtype: DType | None = None) -> Value:
    """Blackman's window."""
    return general_cosine(M, a=(0.42, 0.5, 0.08), sym=sym, dtype=dtype)


def nuttall(M: int, *, sym: bool = True, dtype: DType | None = None) -> Value:
    """Nuttall's minimum four-term window."""
    return general_cosine(M, a=(0.3635819, 0.4891775, 0.1365995, 0.0106411), sym=sym, dtype=dtype)


def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None) -> Value:
    """A triangle with zeros at its ends."""
    return _window(M, sym, dtype, lambda k, n: F.sub(1.0, F.abs(F.sub(F.mul(k, 2.0 / n), 1.0))))


def cosine(M: int, *, sym: bool = True, dtype: DType | None = None) -> Value:
    """sin(pi (k + 1/2) / points)."""
    return _window(M, sym, dtype, lambda k, n: F.sin(F.mul(F.add(k, 0.5), math.pi / (n + 1))))


def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DType | None = None
) -> Value:
    """exp(-|k - center| / tau)."""
    if tau <= 0 or (sym and center is not None):
        raise ShapeError("exponential: tau > 0, and no center of a symmetric window", got=f"{tau}, {center}")

    def shape(k: Value, n: int) -> Value:
        middle = n / 2.0 if center is None else center
        return F.exp(F.mul(F.abs(F.sub(k, middle)), -1.0 / tau))

    return _window(M, sym, dtype, shape)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: DType | None = None) -> Value:
    """exp(-(k - n/2)^2 / (2 std^2))."""
    if std <= 0:
        raise ShapeError("gaussian: std must be positive", got=str(std))
    return _window(M, sym, dtype, lambda k, n: F.exp(F.mul(F.square(F.sub(k, n / 2.0)), -0.5 / std**2)))


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: DType | None = None) -> Value:
    """I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta)."""
    if beta < 0:
        raise ShapeError("kaiser: beta must not be negative", got=str(beta))

    def shape(k: Value, n: int) -> Value:
        inside = F.sub(1.0, F.square(F.sub(F.mul(k, 2.0 / n), 1.0)))
        height = F.mul(F.sqrt(F.clamp(inside, min=0.0)), beta)
        return F.div(i0(height), i0(prims.full_like(k, beta)))

    return _window(M, sym, dtype, shape)


# ---- torch's older names: periodic unless told otherwise


def _older(window: Callable[..., Value]) -> Callable[..., Value]:
    def older(window_length: int, periodic: bool = True, *, dtype: DType | None = None) -> Value:
        if dtype is None or dtype in WIDE or not dtype.is_floating_point:
            return window(window_length, sym=not periodic, dtype=dtype)
        return cast(window(window_length, sym=not periodic, dtype=dt.float32), dtype)

    return older


hann_window, blackman_window, bartlett_window = _older(hann), _older(blackman), _older(bartlett)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: DType | None = None
) -> Value:
    """alpha - beta cos(2 pi k / n)."""
    return general_cosine(window_length, a=(alpha, beta), sym=not periodic, dtype=dtype)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DType | None = None
) -> Value:
    """Kaiser's window."""
    return kaiser(window_length, beta=beta, sym=not periodic, dtype=dtype)
