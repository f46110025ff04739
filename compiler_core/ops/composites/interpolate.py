"""Interpolation over any Value, with torch's names and arguments: interpolate in all its modes.

In: T[N, C, *n] with one to three spatial dims; `size` or `scale_factor`. Out: T[N, C, *o]. Each dim is resampled by
itself: element i of the result is a weighted sum of few elements of the input (its taps), whose places and weights are
computed of the sizes in float32, as torch does for float32 (in float64 for float64): here, where these are numbers, and
in the graph where they are symbols. Bytes and lanczos need numbers.
Sources: torch's area_pixel_compute_source_index; Keys 1981 (bicubic, a = -0.75; with antialias -0.5, as Pillow).
Of uint8 images every dim is rounded by itself, the last first, with weights of 16 bits, as in torch and Pillow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from operator import index

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import NoKernelError, RankError, ShapeError
from compiler_core.meta import INTEGERS
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_new, as_value, broadcast_to, cast, dtype_of, shape_of, widened
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.composites.arithmetic import add, clamp, div, mul, rsub
from compiler_core.ops.composites.logic import lt, where
from compiler_core.ops.composites.unary import floor
from compiler_core.ops.lying import as_told
from compiler_core.ops.pooling.adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Array, Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import as_like, of_sizes, quotient
from compiler_core.ops.whole import whole
from compiler_core.symbolic.size import Sym

Taps = tuple[Value, Value]  # places i64[o, L] and weights f[o, L]
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "lanczos": 2}
_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}


@remembered
@in_float32_on_cuda
def interpolate(
    input: Value,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Value:
    """input resized to `size`, or by `scale_factor`, along its spatial dims.

    mode: nearest, nearest-exact, area; linear, bilinear, trilinear, bicubic, lanczos (these by number of dims).

    Example:
        >>> F.interpolate(torch.tensor([[[1.0, 3.0]]]), size=3, mode="linear", align_corners=True)
        tensor([[[1., 2., 3.]]])
    """
    x = as_value(input)
    rank = len(x.shape) - 2
    _check(x, rank, mode, align_corners, antialias)
    sizes = shape_of(x)[2:]
    target, scales = _target(sizes, size, scale_factor, bool(recompute_scale_factor) or mode == "area")
    if mode == "area":
        return _AREA[rank](x, target)
    made = _resized(x, rank, mode, target, scales, bool(align_corners), antialias)
    made = as_new(x) if made is x else as_told("new", made, (x,))
    return as_told("images", made, (x,))


def _resized(
    x: Value,
    rank: int,
    mode: str,
    target: Sequence[int],
    scales: Sequence[float | None],
    align_corners: bool,
    antialias: bool,
) -> Value:
    sizes = shape_of(x)[2:]
    if mode in ("nearest", "nearest-exact"):
        for d in range(rank):
            x = _nearest(x, d + 2, target[d], scales[d], mode == "nearest-exact")
        return x
    bytes_ = dtype_of(x) is dt.uint8
    if bytes_ or mode == "lanczos":
        sizes, target = tuple(map(index, sizes)), tuple(map(index, target))
    wide = cast(x, dt.float64) if bytes_ else widened(x)
    number = dt.float64 if dtype_of(wide) is dt.float64 else dt.float32
    for d in reversed(range(rank)) if bytes_ else range(rank):
        n, o = sizes[d], target[d]
        taps = of_sizes(_FILTERED[mode] if antialias else _TAPS[mode], n, o, scales[d], align_corners, number)
        if bytes_ and n != o:
            wide = _to_bytes(_along(wide, d + 2, _in_16_bits(*taps)))
        elif not bytes_:
            wide = _along(wide, d + 2, taps)
    return cast(wide, dtype_of(x))


def _check(x: Value, rank: int, mode: str, align_corners: bool | None, antialias: bool) -> None:
    plain = mode in ("nearest", "nearest-exact", "area")
    if plain and align_corners is not None:
        raise ShapeError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if not 1 <= rank <= 3 or (not plain and _RANKS.get(mode) != rank):
        raise RankError(f"interpolate: mode {mode!r} does not take {rank + 2}-d input", got=str(shape_of(x)))
    if antialias and mode not in ("bilinear", "bicubic", "lanczos"):
        raise ShapeError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ShapeError("lanczos mode requires antialias=True and does not support align_corners=True")
    takes_bytes = mode in ("bilinear", "bicubic", "lanczos") and dtype_of(x) is dt.uint8
    if (not plain or mode == "area") and not dtype_of(x).is_floating_point and not takes_bytes:
        raise NoKernelError(f"interpolate: mode {mode!r} takes floating input", got=dtype_of(x).name)
    if mode in ("nearest", "nearest-exact") and dtype_of(x) is not dt.uint8:
        need_kind(f"upsample_{mode}", "f", x)
    if 0 in x.shape[1:]:
        raise ShapeError("interpolate: input with a zero size", got=str(shape_of(x)))


def _target(
    sizes: Sequence[int], size: int | Sequence[int] | None, scale: float | Sequence[float] | None, recompute: bool
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """(output sizes, the scales that give the steps; None: the ratio of sizes)."""
    rank = len(sizes)
    if (size is None) == (scale is None):
        raise ShapeError("interpolate: exactly one of size and scale_factor should be defined")
    if size is not None:
        target = (size,) * rank if isinstance(size, INTEGERS) else tuple(size)
        scales: tuple[float | None, ...] = (None,) * rank
    else:
        factors = (scale,) * rank if isinstance(scale, int | float) else tuple(scale)  # type: ignore[arg-type]
        target = tuple(map(_times, sizes, factors))
        scales = (None,) * rank if recompute else factors
    if len(target) != rank or any(n < 1 for n in target):
        raise ShapeError(f"interpolate: {rank} positive output sizes are needed", got=str(target))
    return target, scales


def _times(n: int, factor: float) -> int:
    """n * factor, rounded down: without rounding before, where that is exact."""
    over, under = float(factor).as_integer_ratio()
    return n * over // under if under <= 1024 else math.floor(n * factor)


def _step(n: int, o: int, scale: float | None, align_corners: bool, number: dt.DType) -> Value:
    """How far apart neighbouring outputs lie, in input elements: a 0-d value of dtype `number`."""
    like = prims.full((), 0.0, number)
    if align_corners:
        return as_like(like, quotient(n - 1, o - 1)) if o > 1 else like
    if scale is not None and scale > 0:
        return as_like(like, 1.0 / scale)
    return prims.div(prims.full_like(like, n), prims.full_like(like, o))


# ---- nearest


def _nearest(x: Value, d: int, o: int, scale: float | None, exact: bool) -> Value:
    if Sym in map(type, (x.shape[d], o)):
        times, rest = divmod(o, x.shape[d])
        if type(times) is int and not times & (times - 1) and (scale or times) == times and rest == 0:
            return _repeated(x, d, times)
    n = x.shape[d]
    places = of_sizes(_nearest_places, n, o, scale, exact)
    if not isinstance(places, np.ndarray):
        return _taken(x, d, places)
    if o == n and (places == np.arange(n)).all():
        return x
    if o % n == 0 and (places == np.arange(o) // (o // n)).all():  # each element repeated: no index needed
        return _repeated(x, d, o // n)
    return _taken(x, d, places)


def _nearest_places(n: int, o: int, scale: float | None, exact: bool) -> Value:
    at = add(prims.iota((o,), 0, dt.float32), 0.5 if exact else 0.0)
    return clamp(cast(floor(mul(at, _step(n, o, scale, False, dt.float32))), dt.int64), max=n - 1)


def _taken(x: Value, d: int, places: Value) -> Value:
    """The elements along dim d at `places`, i64[o]."""
    front = prims.permute(x, (d, *(k for k in range(len(x.shape)) if k != d)))
    return prims.permute(prims.take(front, places), (*range(1, d + 1), 0, *range(d + 1, len(x.shape))))


def _repeated(x: Value, d: int, times: int) -> Value:
    """Each element of dim d so many times."""
    shape = shape_of(x)
    lead, rest = shape[: d + 1], shape[d + 1 :]
    repeated = broadcast_to(prims.reshape(x, (*lead, 1, *rest)), (*lead, times, *rest))
    return prims.reshape(repeated, (*shape[:d], times * shape[d], *rest))


# ---- weighted taps


def _along(x: Value, dim: int, taps: Taps) -> Value:
    places, weights = taps
    return _resample(x, places, cast(weights, dtype_of(x)), dim=dim)


@whole
def _resample(x: Value, places: Value, weights: Value, *, dim: int) -> Value:
    """Dim `dim` of x: f[..., n, ...] -> the weighted sums of its taps, f[..., o, ...]."""
    ndim = len(x.shape)
    front = prims.permute(x, (dim, *(k for k in range(ndim) if k != dim)))
    read = prims.take(front, places)  # (o, L, ...)
    scale = prims.reshape(weights, (*weights.shape, *(1,) * (ndim - 1)))
    total = prims.sum(prims.mul(read, broadcast_to(scale, shape_of(read))), (1,))
    return prims.permute(total, (*range(1, dim + 1), 0, *range(dim + 1, ndim)))


def _in_16_bits(places: Array, weights: Array) -> Taps:
    """Taps whose weights are multiples of the power of two with which the largest of them needs 15 bits; those of one
    place (at an edge) are one."""
    weights = weights.copy()
    for k in range(1, weights.shape[1]):
        same = places[:, k] == places[:, k - 1]
        weights[:, k] += np.where(same, weights[:, k - 1], 0)
        weights[:, k - 1] = np.where(same, 0, weights[:, k - 1])
    bits, largest = 0, float(weights.max())
    while bits < 22 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    scaled = weights * (1 << bits)
    return places, np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)) / (1 << bits)


def _to_bytes(x: Value) -> Value:
    """x rounded to whole numbers from 0 to 255, halves up."""
    return clamp(floor(prims.add(x, prims.full_like(x, 0.5))), 0, 255)


def _positions(n: int, o: int, scale: float | None, align_corners: bool, number: dt.DType) -> Value:
    """Where each output lies, in input elements."""
    step = _step(n, o, scale, align_corners, number)
    at = prims.iota((o,), 0, number)
    return mul(at, step) if align_corners else add(mul(step, add(at, 0.5)), -0.5)


def _linear(n: int, o: int, scale: float | None, align_corners: bool, number: dt.DType) -> Taps:
    at = clamp(_positions(n, o, scale, align_corners, number), 0.0)
    first = clamp(cast(floor(at), dt.int64), max=n - 1)
    right = clamp(add(at, cast(first, number), alpha=-1), 0.0, 1.0)
    return _side_by_side(first, clamp(add(first, 1), max=n - 1)), _side_by_side(rsub(right, 1.0), right)


def _side_by_side(*columns: Value) -> Value:
    """T[o], so many times -> T[o, L]."""
    return prims.cat(list(map(_column, columns)), 1)


def _near(s: Value, a: float) -> Value:
    """The cubic weight of a place s in [0, 1] away (Keys 1981)."""
    return add(mul(mul(add(mul(s, a + 2), -(a + 3)), s), s), 1.0)


def _far(s: Value, a: float) -> Value:
    """The same of one s in [1, 2] away."""
    return add(mul(add(mul(add(mul(s, a), -5 * a), s), 8 * a), s), -4 * a)


def cubic_weights(t: Value, a: float = -0.75) -> list[Value]:
    """The weights of the elements at -1, 0, 1, 2 for a place t in [0, 1] (Keys 1981)."""
    return [_far(add(t, 1.0), a), _near(t, a), _near(rsub(t, 1.0), a), _far(rsub(t, 2.0), a)]


def _cubic(n: int, o: int, scale: float | None, align_corners: bool, number: dt.DType) -> Taps:
    at = _positions(n, o, scale, align_corners, number)
    first = floor(at)
    weights = cubic_weights(clamp(add(at, first, alpha=-1), 0.0, 1.0))
    places = [clamp(add(cast(first, dt.int64), k), 0, n - 1) for k in range(-1, 3)]
    return _side_by_side(*places), _side_by_side(*weights)


_TAPS: dict[str, Callable[..., Taps]] = {
    "linear": _linear,
    "bilinear": _linear,
    "trilinear": _linear,
    "bicubic": _cubic,
}


# ---- antialiased


def _triangle(x: Value) -> Value:
    return clamp(rsub(prims.abs(x), 1.0), 0.0)


def _keys(x: Value) -> Value:
    s = prims.abs(x)
    return where(lt(s, 1.0), _near(s, -0.5), where(lt(s, 2.0), _far(s, -0.5), 0.0))


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


_FILTERS: dict[str, tuple[int, Callable[[Value], Value]]] = {
    "bilinear": (2, _triangle),
    "bicubic": (4, _keys),
    "lanczos": (6, _lanczos),
}


def _filtered(mode: str, n: int, o: int, scale: float | None, align_corners: bool, number: dt.DType) -> Taps:
    """The filter of `mode`, as wide as a step is when that is more than one element; weights sum to 1 (Pillow's)."""
    width, kernel = _FILTERS[mode]
    step = _step(n, o, scale, align_corners, number)
    reach = clamp(step, 1.0)
    support = mul(reach, width / 2)
    center = mul(step, add(prims.iota((o,), 0, number), 0.5))
    low = clamp(cast(add(add(center, support, alpha=-1), 0.5), dt.int64), 0)
    high = clamp(cast(add(add(center, support), 0.5), dt.int64), max=n)
    most = _most_reached(width, n, o, scale, align_corners)
    places = add(_column(low), prims.iota((1, most + 1), 1, dt.int64))
    away = div(add(add(cast(places, number), _column(center), alpha=-1), 0.5), reach)
    weights = where(lt(places, _column(high)), kernel(away), 0.0)
    total = prims.sum(weights, (1,))
    return clamp(places, max=n - 1), div(weights, _column(total))


def _most_reached(width: int, n: int, o: int, scale: float | None, align_corners: bool) -> int:
    """How many elements a filter spans at most: its width times the step, if that is more than one."""
    if align_corners:
        n, o = (n - 1, o - 1) if o > 1 else (0, 1)
    elif scale is not None and scale > 0:
        return math.ceil(width * max(1.0, 1.0 / scale))
    return (width * n + o - 1) // o if n > o else width


def _column(x: Value) -> Value:
    """T[o] -> T[o, 1]."""
    return prims.reshape(x, (*x.shape, 1))


_FILTERED = {mode: functools.partial(_filtered, mode) for mode in _FILTERS}
