"""The functions of torch.fft around the transforms: sample frequencies, and shifts of the zero frequency.

In: a size and a spacing; or values. Out: f[n]; or values of the same shape. The transforms are in
signal/transforms.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import cast, normalize_dim
from compiler_core.ops.registry import Value

Dims = int | Sequence[int] | None


def _frequencies(places: Value, n: int, d: float, dtype: DType | None) -> Value:
    return cast(F.div(cast(places, dt.float64), n * d), dtype or dt.get_default_dtype())


def fftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None) -> Value:
    """The frequencies of a transform of n samples, d apart: 0, 1, ..., -2, -1 over n d."""
    if n < 1:
        raise ShapeError("fftfreq: n must be positive", got=str(n))
    places = prims.iota((n,), 0, dt.int64)
    negative = F.ge(places, (n + 1) // 2)
    return _frequencies(F.where(negative, F.sub(places, n), places), n, d, dtype)


def rfftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None) -> Value:
    """The frequencies, none negative, of a transform of n real samples, d apart."""
    if n < 1:
        raise ShapeError("rfftfreq: n must be positive", got=str(n))
    return _frequencies(prims.iota((n // 2 + 1,), 0, dt.int64), n, d, dtype)


def _shifted(x: Value, dim: Dims, up: bool) -> Value:
    ndim = len(x.shape)
    dims = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    chosen = [normalize_dim(d, ndim) for d in dims] if ndim else []
    return F.roll(x, [(x.shape[d] + (not up)) // 2 for d in chosen], chosen) if chosen else x


def fftshift(input: Value, dim: Dims = None) -> Value:
    """The zero frequency moved to the middle of dim (of all dims by default)."""
    return _shifted(input, dim, up=True)


def ifftshift(input: Value, dim: Dims = None) -> Value:
    """The inverse of `fftshift`."""
    return _shifted(input, dim, up=False)
