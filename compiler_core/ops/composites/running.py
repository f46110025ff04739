"""Running reductions and sums along a dim: cummax, logcumsumexp, cumulative_trapezoid, trapezoid, gradient, diff.

In: values, torch's arguments. Out: values, or (values, indices).
Running values come from the primitives of scans.py, products and logarithms of sums from its linear recurrence. Of
equal elements cummax and cummin name the last, and NaN wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    Scalar,
    as_new,
    as_value,
    cast,
    dtype_of,
    floating,
    normalize_dim,
    shape_of,
    widened,
)
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.composites.arithmetic import over, times
from compiler_core.ops.composites.reduction import ValuesAndIndices, named
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.primitives.scans import nothing, shifted
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.special.elementary import logaddexp


def _extremum(name: str, input: Value, dim: int) -> ValuesAndIndices:
    x = F.reshape(input, 1) if not input.shape else as_value(input)
    d = normalize_dim(dim, len(x.shape))
    places = (prims.cummax_places if name == "cummax" else prims.cummin_places)(prims.detach(x), d)
    values = prims.gather(x, places, d) if x.shape[d] else x
    return named(name)(F.reshape(values, shape_of(input)), F.reshape(places, shape_of(input)))


@numpy_names
def cummax(input: Value, dim: int) -> ValuesAndIndices:
    """(running maximum, where it stands: i64) along `dim`."""
    return _extremum("cummax", input, dim)


@numpy_names
def cummin(input: Value, dim: int) -> ValuesAndIndices:
    """(running minimum, where it stands: i64) along `dim`."""
    return _extremum("cummin", input, dim)


@numpy_names
def logcumsumexp(input: Value, dim: int) -> Value:
    """log(cumsum(exp(input))) along `dim`, without overflow: of the distances from the running maximum."""
    need_kind("logcumsumexp", "fc", input)
    if not input.shape:
        return F.reshape(logcumsumexp(F.reshape(input, 1), 0), ())
    x = floating(input)
    d = normalize_dim(dim, len(x.shape))
    if dtype_of(x).is_complex:
        return _doubling(x, d, logaddexp)
    wide = widened(x)
    if not x.shape[d]:
        return x
    peak = cummax(prims.detach(wide), d).values
    before = shifted(peak, d, towards_end=True)
    total = prims.linear_scan(F.exp(_distance(before, peak)), F.exp(_distance(wide, peak)), d)
    return cast(F.add(F.log(total), peak), dtype_of(x))


def _distance(x: Value, peak: Value) -> Value:
    """x - peak, and 0 between equal infinities."""
    endless = F.logical_and(F.isinf(peak), F.eq(x, peak))
    return F.where(endless, prims.full_like(x, 0.0), prims.sub(x, peak))


def _doubling(x: Value, d: int, combine: Callable[[Value, Value], Value]) -> Value:
    """Running combinations, log2(n) steps over the whole line (Hillis and Steele, 1986)."""
    length, step = x.shape[d], 1
    while step < length:
        tail = combine(F.narrow(x, d, step, length - step), F.narrow(x, d, 0, length - step))
        x = F.cat([F.narrow(x, d, 0, step), tail], d)
        step *= 2
    return x


# ---- the trapezoidal rule


def _strips(y: Value, x: Value | None, dx: Scalar, dim: int) -> tuple[Value, int]:
    """Areas between neighbours along dim."""
    d = normalize_dim(dim, len(y.shape))
    n = y.shape[d]
    if n == 0:
        return F.narrow(y, d, 0, 0), d
    mean = F.add(F.narrow(y, d, 1, n - 1), F.narrow(y, d, 0, n - 1))
    if x is None:
        return times(times(mean, 0.5), dx), d
    if len(x.shape) == 1:
        x = F.reshape(x, tuple(-1 if k == d else 1 for k in range(len(y.shape))))
    width = normalize_dim(d - len(y.shape), len(x.shape))
    m = x.shape[width]
    if m != n:
        raise ShapeError("trapezoid: There must be one `x` value for each sample point", expected=str(n), got=str(m))
    steps = F.sub(F.narrow(x, width, 1, m - 1), F.narrow(x, width, 0, m - 1))
    return times(F.mul(mean, steps), 0.5), d


def trapezoid(y: Value, x: Value | None = None, *, dx: Scalar = 1, dim: int = -1) -> Value:
    """The integral of y along `dim` by trapezoids, at points x or dx apart."""
    strips, d = _strips(y, x, dx, dim)
    return F.sum(strips, max(len(strips.shape), len(y.shape)) - len(y.shape) + d)


def cumulative_trapezoid(y: Value, x: Value | None = None, *, dx: Scalar = 1, dim: int = -1) -> Value:
    """The running integral of y along `dim` by trapezoids: one element fewer."""
    strips, d = _strips(y, x, dx, dim)
    return F.cumsum(strips, max(len(strips.shape), len(y.shape)) - len(y.shape) + d)


# ---- differences


@numpy_names
def diff(input: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None) -> Value:
    """Differences of neighbours along `dim`, n times, after joining `prepend` and `append`. Of bools: exclusive or."""
    if not input.shape:
        raise ShapeError("diff needs at least one dim", got="()")
    d = normalize_dim(dim, len(input.shape))
    if n < 0:
        raise ShapeError("diff: order must be non-negative", got=str(n))
    if n == 0:
        return as_new(input)
    parts = [p for p in (prepend, input, append) if p is not None]
    x = F.cat(parts, d) if len(parts) > 1 else as_value(input)
    for _ in range(n):
        length = max(x.shape[d] - 1, 0)
        if not length:
            return F.narrow(x, d, 0, 0)
        a, b = F.narrow(x, d, 1, length), F.narrow(x, d, 0, length)
        x = F.bitwise_xor(a, b) if dtype_of(x) is dt.bool_ else F.sub(a, b)
    return x


class _Line(NamedTuple):
    """The values along one dim: x with that dim last, and its length."""

    x: Value
    d: int
    n: int

    def part(self, start: int, length: int) -> Value:
        return F.narrow(self.x, self.d, start, length)


def gradient(
    input: Value,
    *,
    spacing: Scalar | Sequence[Scalar] | Sequence[Value] | Value | None = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> list[Value]:
    """Estimates of the derivative along each dim: second order inside, of edge_order (1 or 2) at the ends.

    spacing: the step, one a dim, or the coordinates along each dim. After numpy.gradient.
    """
    x = floating(input)
    dims = [dim] if isinstance(dim, int) else list(range(len(x.shape))) if dim is None else list(dim)
    if len({normalize_dim(d, len(x.shape)) for d in dims}) != len(dims):
        raise ShapeError("gradient: a dim appears multiple times in the list of dims", got=str(dims))
    if edge_order not in (1, 2):
        raise ShapeError("gradient: edge_order is 1 or 2", got=str(edge_order))
    spacing = 1 if spacing is None else spacing
    single = isinstance(spacing, (int, float)) or (hasattr(spacing, "shape") and not spacing.shape)
    steps = [spacing] * len(dims) if single else list(spacing)  # type: ignore[arg-type]
    if len(steps) != len(dims):
        raise ShapeError("gradient: one spacing for each dim", expected=str(len(dims)), got=str(len(steps)))
    return [_derivative(x, normalize_dim(d, len(x.shape)), step, edge_order) for d, step in zip(dims, steps)]


def _derivative(x: Value, d: int, spacing: Value | Scalar, edge_order: int) -> Value:
    n = x.shape[d]
    if n < edge_order + 1:
        raise ShapeError("gradient: too few elements", expected=f"at least {edge_order + 1}", got=str(n))
    line = _Line(x, d, n)
    is_even = isinstance(spacing, (int, float)) or not spacing.shape
    shape = tuple(n - 1 if k == d else 1 for k in range(len(x.shape)))
    if is_even:
        widths = times(F.ones(shape, dtype=dtype_of(x)), spacing)
    else:
        widths = F.reshape(F.sub(F.narrow(spacing, 0, 1, n - 1), F.narrow(spacing, 0, 0, n - 1)), shape)
    h = _Line(cast(widths, dtype_of(x)), d, n - 1)
    slopes = _Line(over(F.sub(line.part(1, n - 1), line.part(0, n - 1)), h.x), d, n - 1)
    pieces = [_end(slopes, h, 0, 1, edge_order)]
    if n > 2 and is_even:  # the element between does not count
        ends = F.sub(line.part(2, n - 2), line.part(0, n - 2))
        pieces.append(over(ends, F.add(h.part(0, n - 2), h.part(1, n - 2))))
    elif n > 2:
        left, right = h.part(0, n - 2), h.part(1, n - 2)
        weighted = F.add(times(slopes.part(0, n - 2), right), times(slopes.part(1, n - 2), left))
        pieces.append(over(weighted, F.add(left, right)))
    pieces.append(_end(slopes, h, n - 2, n - 3, edge_order))
    return F.cat(pieces, d)


def _end(slopes: _Line, h: _Line, near: int, far: int, edge_order: int) -> Value:
    """The derivative at an end: the slope beside it, or the parabola's through three points."""
    first = slopes.part(near, 1)
    if edge_order == 1:
        return first
    bend = over(F.sub(slopes.part(far, 1), first), F.add(h.part(near, 1), h.part(far, 1)))
    return F.sub(first, times(bend, h.part(near, 1)))


@remembered
@numpy_names
@in_float32_on_cuda
def cumprod(input: Value, dim: int, *, dtype: DType | None = None) -> Value:
    """Running products along `dim`."""
    x = cast(as_value(input), dtype)
    x = x if dtype_of(x).is_inexact or dtype is not None else cast(x, dt.int64)
    d = normalize_dim(dim, len(x.shape))
    if not x.shape or x.shape[d] <= 1:
        return prims.cast(x, dtype_of(x))
    place = prims.iota(shape_of(x), d, dt.int64)
    is_first = prims.eq(place, prims.full_like(place, 0))
    return prims.linear_scan(x, prims.where(is_first, x, prims.full_like(x, nothing(x))), d)
