"""Rules of order, of statistics and of functions given by samples: sort, median, quantile, interp, diff, convolve.

In: NumPy's arguments. Out: Tensors. Sorting is stable, which NumPy's is only when asked: where equal elements are told
apart (argsort), the answer is one of those that NumPy may give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import TracedArray, not_traced
from compiler_core.numpy_trace.dispatch import answers
from compiler_core.numpy_trace.operands import (
    axes_of,
    axis_of,
    cast,
    dtype_of,
    filled,
    flat,
    floats,
    holds_traced,
    is_number,
    is_traced,
    shape_of,
    tensor_of,
    together,
)
from compiler_core.numpy_trace.reductions import given
from compiler_core.ops import functional as F
from compiler_core.ops.composites.statistics import quantile as tensor_quantile
from compiler_core.ops.composites.statistics import searchsorted as tensor_searchsorted
from compiler_core.ops.sorting import composite as order_ops
from compiler_core.tensor.tensor import Tensor


def _line(a: Any, axis: Any) -> tuple[Tensor, int]:
    tensor = tensor_of(a)
    if tensor.dtype.is_complex:
        raise not_traced("sorting complex numbers")
    return (flat(tensor), 0) if axis is None else (tensor, axis_of(axis, tensor.ndim))


@answers(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return order_ops.sort(*_line(a, axis))[0]


@answers(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return order_ops.sort(*_line(a, axis), stable=True)[1]


@answers(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    return sort(a, axis)


@answers(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None) -> Any:
    return argsort(a, axis)


@answers(np.searchsorted)
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    x, values = together(a, v)
    if sorter is not None:
        x = F.index_select(x, 0, tensor_of(sorter))
    found = tensor_searchsorted(x, flat(values), right=side == "right")
    return F.reshape(found, shape_of(values))


@answers(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    if is_traced(bins):
        raise not_traced("np.digitize with traced bins")
    edges = np.asarray(bins)
    if edges.size > 1 and (np.diff(edges) < 0).any():
        return F.sub(len(edges), searchsorted(edges[::-1], x, "left" if right else "right"))
    return searchsorted(edges, x, "left" if right else "right")


# ---- statistics


def _reduced_line(a: Any, axis: Any, keepdims: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The array with the reduced axes as the last one, and how the result gets its shape."""
    tensor = tensor_of(a)
    shape = shape_of(tensor)
    axes = axes_of(axis, len(shape))
    rest = [d for d in range(len(shape)) if d not in axes]
    line = (
        F.reshape(F.permute(tensor, (*rest, *axes)), [*(shape[d] for d in rest), -1])
        if shape
        else F.reshape(tensor, (1,))
    )
    kept = [1 if d in axes else n for d, n in enumerate(shape)]
    return (
        line,
        lambda result: F.reshape(result, [*shape_of(result)[: result.ndim - len(rest)], *kept]) if keepdims else result,
    )


@answers(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    tensor, shaped = _reduced_line(floats(a), axis, keepdims)
    size = shape_of(tensor)[-1]
    in_order = order_ops.sort(tensor, -1)[0]
    middle = in_order[..., (size - 1) // 2 : size // 2 + 1]
    result = F.mean(middle, -1)
    return shaped(F.where(F.any(F.isnan(tensor), -1), math.nan, result))


@answers(np.quantile)
def quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: Any = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    if method not in ("linear", "lower", "higher", "midpoint", "nearest") or weights is not None:
        raise not_traced(f"np.quantile(method={method!r}) with such arguments")
    array, wanted = floats(a), floats(q)
    if not is_number(q):
        array, wanted = together(array, wanted)
    tensor, shaped = _reduced_line(array, axis, keepdims)
    lines = tensor_quantile(tensor, cast(flat(wanted), tensor.dtype.numpy), -1, interpolation=method)
    return shaped(F.reshape(lines, (*shape_of(wanted), *shape_of(tensor)[:-1])))


@answers(np.percentile)
def percentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: Any = False, *, weights: Any = None,
) -> Any:  # fmt: skip
    share = q / 100.0 if is_number(q) else F.true_divide(floats(q), 100.0)
    return quantile(a, share, axis, None, False, method, keepdims, weights=weights)


@answers(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    if fweights is not None or aweights is not None:
        raise not_traced("np.cov with weights")
    kind = (
        np.dtype(dtype)
        if dtype is not None
        else np.result_type(dtype_of(m), np.float64, *([] if y is None else [dtype_of(y)]))
    )
    rows = _rows(m, kind, rowvar)
    if y is not None:
        rows = F.cat([rows, _rows(y, kind, rowvar)], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    away = F.sub(rows, F.mean(rows, 1, True))
    product = F.matmul(away, away.mH if away.dtype.is_complex else away.transpose(0, 1))
    product = F.true_divide(product, float(max(shape_of(rows)[1] - ddof, 0)))
    return F.reshape(product, ()) if shape_of(product) == (1, 1) else product


def _rows(x: Any, kind: np.dtype[Any], rowvar: bool) -> Tensor:
    tensor = cast(tensor_of(x), kind)
    if tensor.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    tensor = tensor.reshape((1,) * (2 - tensor.ndim) + shape_of(tensor))
    return tensor if rowvar or shape_of(tensor)[0] == 1 else tensor.transpose(0, 1)


@answers(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return F.true_divide(c, c)
    deviation = F.sqrt(F.diag(c))
    return F.clamp(F.true_divide(F.true_divide(c, deviation[:, None]), deviation[None, :]), -1, 1)


@answers(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    if holds_traced(bins) or isinstance(bins, str) or (isinstance(bins, int) and range is None):
        raise not_traced("np.histogram whose edges come from the data", remedy="give bins and range")
    edges = np.histogram_bin_edges(np.empty(0, dtype_of(a)), bins, range)
    x = flat(tensor_of(a))
    place = F.sub(searchsorted(edges, x, "right"), 1)
    place = F.where(F.eq(cast(x, np.float64), float(edges[-1])), len(edges) - 2, place)
    inside = F.logical_and(F.ge(place, 0), F.lt(place, len(edges) - 1))
    place = F.clamp(place, 0, len(edges) - 2)
    each = (
        cast(inside, np.int64) if weights is None else F.mul(flat(tensor_of(weights)), cast(inside, dtype_of(weights)))
    )
    counts = F.scatter_add(filled((len(edges) - 1,), 0, each.dtype.numpy), 0, place, each)
    if density:
        counts = F.true_divide(
            F.true_divide(cast(counts, np.float64), tensor_of(np.diff(edges))), F.sum(cast(counts, np.float64))
        )
    return counts, tensor_of(edges)


@answers(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    if not is_traced(x):
        size = max(int(np.max(x, initial=-1)) + 1, minlength)
        return F.scatter_add(
            filled((size,), 0, np.float64), 0, tensor_of(np.asarray(x, np.int64)), cast(tensor_of(weights), np.float64)
        )
    raise not_traced(
        "np.bincount of traced numbers, whose greatest decides on the size,",
        remedy="use np.histogram with bins and range, or np.add.at",
    )


# ---- functions given by samples


@answers(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    if period is not None:
        raise not_traced("np.interp(period=...)")
    at, places, values = (cast(tensor_of(v), np.float64) for v in (x, xp, fp))
    line = flat(at)
    last = shape_of(places)[0] - 1
    low = F.clamp(F.sub(searchsorted(places, line, "right"), 1), 0, max(last - 1, 0))
    x0, y0 = F.index_select(places, 0, low), F.index_select(values, 0, low)
    high = F.clamp(F.add(low, 1), 0, last)
    x1, y1 = F.index_select(places, 0, high), F.index_select(values, 0, high)
    width = F.sub(x1, x0)
    share = F.where(F.eq(width, 0), 0.0, F.true_divide(F.sub(line, x0), F.masked_fill(width, F.eq(width, 0), 1.0)))
    result = F.add(F.mul(F.sub(y1, y0), share), y0)
    result = F.where(F.eq(line, x1), y1, result)
    result = F.where(F.lt(line, places[0]), values[0] if left is None else left, result)
    result = F.where(F.gt(line, places[last]), values[last] if right is None else right, result)
    return F.reshape(F.where(F.isnan(line), line, result), shape_of(at))


@answers(np.diff)
def diff(a: Any, n: int = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Any:
    tensor = tensor_of(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    axis = axis_of(axis, tensor.ndim)
    ends = [_end(end, tensor, axis) if given(end) else None for end in (prepend, append)]
    parts = [part for part in (ends[0], tensor, ends[1]) if part is not None]
    tensor = F.cat(together(*parts), axis) if len(parts) > 1 else tensor
    before = (slice(None),) * axis
    for _ in range(n):
        later, earlier = tensor[(*before, slice(1, None))], tensor[(*before, slice(0, -1))]
        tensor = F.ne(later, earlier) if tensor.dtype.kind == "b" else F.sub(later, earlier)
    return tensor


def _end(value: Any, tensor: Tensor, axis: int) -> Tensor:
    end = tensor_of(value)
    return end if end.ndim else F.expand(end, [1 if d == axis else n for d, n in enumerate(shape_of(tensor))])


@answers(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    if to_end is not None or to_begin is not None:
        raise not_traced("np.ediff1d with ends")
    return diff(flat(tensor_of(ary)))


@answers(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    tensor = floats(f)
    axes = axes_of(axis, tensor.ndim)
    steps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    if edge_order != 1 or any(np.ndim(step) for step in steps):
        raise not_traced("np.gradient(edge_order=2), or with places")
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    found = [_slope(tensor, step, one) for step, one in zip(steps, axes)]
    return found[0] if len(axes) == 1 else tuple(found)


def _slope(tensor: Tensor, step: Any, axis: int) -> Tensor:
    if shape_of(tensor)[axis] < 2:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, "
            "at least (edge_order + 1) elements are required."
        )
    step = step if isinstance(step, (int, float)) else tensor_of(step)

    def part(*at: Any) -> Tensor:
        return tensor[(slice(None),) * axis + (slice(*at),)]

    first = F.true_divide(F.sub(part(1, 2), part(0, 1)), step)
    last = F.true_divide(F.sub(part(-1, None), part(-2, -1)), step)
    middle = F.true_divide(
        F.sub(part(2, None), part(0, -2)), F.mul(step, 2.0) if isinstance(step, Tensor) else 2.0 * step
    )
    return F.cat([first, middle, last], axis)  # type: ignore[no-any-return]


@answers(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    heights = TracedArray(tensor_of(y))
    axis = axis_of(axis, heights.ndim)
    if x is None:
        width: Any = dx
    else:
        width = TracedArray(diff(x, axis=-1 if tensor_of(x).ndim == 1 else axis))
        width = width.reshape([-1 if d == axis else 1 for d in range(heights.ndim)]) if width.ndim == 1 else width
    before = (slice(None),) * axis
    both = heights[(*before, slice(1, None))] + heights[(*before, slice(0, -1))]
    return (width * both / 2.0).sum(axis).tensor


@answers(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    x, y = together(flat(tensor_of(a)), flat(tensor_of(v)))
    if not len(x) or not len(y):
        raise ValueError("a cannot be empty" if not len(x) else "v cannot be empty")
    x, y = (x, y) if len(x) >= len(y) else (y, x)
    return _slid(x, F.flip(y, (0,)), mode)


@answers(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    x, y = together(flat(tensor_of(a)), flat(tensor_of(v)))
    if y.dtype.is_complex:
        raise not_traced("np.correlate of complex numbers")
    return _slid(x, y, mode) if len(x) >= len(y) else F.flip(_slid(y, x, mode), (0,))


def _slid(x: Tensor, y: Tensor, mode: str) -> Tensor:
    """sum over k of x[i + k] y[k]: for all i where they meet ("full"), as many as x has ("same"), where y is in x."""
    m = len(y)
    before = {"full": m - 1, "same": m // 2, "valid": 0}[mode]
    after = {"full": m - 1, "same": m - 1 - before, "valid": 0}[mode]
    zeros = [filled((k,), 0, x.dtype.numpy) for k in (before, after)]
    wide = F.cat([zeros[0], x, zeros[1]], 0) if before or after else x
    result = F.matmul(wide.unfold(0, m, 1), y) if x.dtype.is_inexact else F.sum(F.mul(wide.unfold(0, m, 1), y), -1)
    return cast(result, x.dtype.numpy)


@answers(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    result: Any = np.zeros_like(x)
    for coefficient in p if holds_traced(p) else np.asarray(p):
        result = result * x + coefficient
    return tensor_of(result)


@answers(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    tensor = tensor_of(x)
    kind = np.promote_types(dtype_of(x), np.int64)
    n = len(tensor) if N is None else N
    powers = []
    column = filled(shape_of(tensor), 1, kind)
    for _ in range(n):
        powers.append(column)
        column = F.mul(column, cast(tensor, kind))
    return F.stack(powers if increasing else powers[::-1], 1)
