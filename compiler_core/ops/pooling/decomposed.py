"""The ops of windows.py in terms of the core set: windows taken from, and added to, places in a flat array.

In, out, attributes: as those ops. Method: a window's element (i, k) is element i*stride + k*dilation of each dim, so
windows are what strides count out of a row-major array, and their places are sums of ramps.
"""

from __future__ import annotations

import math

from compiler_core.dtype import int64, of
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.pooling.geometry import Dims, strides_of_windows, to_back, to_front, window_counts
from compiler_core.ops.primitives.decomposed import contiguous_strides
from compiler_core.ops.primitives.strided import flat_by_places, strided_places
from compiler_core.ops.registry import Value


def _strides(shape: Shape, kernel: Dims, stride: Dims, dilation: Dims) -> tuple[int, ...]:
    return strides_of_windows(shape, contiguous_strides(shape), kernel, stride, dilation)


def windows(x: Value, kernel: Dims, stride: Dims, dilation: Dims) -> Value:
    shape, lead = tuple(x.shape), len(x.shape) - len(kernel)
    counts = window_counts("windows", shape[lead:], kernel, stride, dilation)
    return flat_by_places(x, (*shape[:lead], *counts, *kernel), _strides(shape, kernel, stride, dilation))


def _flat(x: Value, kernel: Dims, stride: Dims, dilation: Dims) -> Value:
    """The windows, with the kernel's places in one last dim."""
    view = prims.windows(x, kernel, stride, dilation)
    return prims.reshape(view, (*view.shape[: len(x.shape)], math.prod(kernel)))


def window_sum(x: Value, **window: Dims) -> Value:
    return prims.sum(_flat(x, **window), (len(x.shape),))


def window_max(x: Value, low: Dims = (), **window: Dims) -> Value:
    return prims.max(_flat(x, **window), (len(x.shape),))


def window_argmax(x: Value, **window: Dims) -> Value:
    """The place of the last NaN, else of the first maximum."""
    flat, last = _flat(x, **window), len(x.shape)
    first = prims.argmax(flat, (last,))
    if not of(x.dtype).is_floating_point:
        return first
    nan, index = prims.isnan(flat), prims.iota(tuple(flat.shape), last, int64)
    latest = prims.max(prims.where(nan, index, prims.full_like(index, -1)), (last,))
    return prims.where(prims.lt(latest, prims.full_like(latest, 0)), first, latest)


def _added(values: Value, places: Value, shape: Shape, trailing: int) -> Value:
    """Values added at places of a flat array, which gets `shape`; the first `trailing` dims go to its end."""
    count = (math.prod(values.shape),)
    base = prims.full((math.prod(shape),), 0, of(values.dtype))
    total = prims.scatter_add(base, prims.reshape(places, count), prims.reshape(values, count), 0)
    return prims.permute(prims.reshape(total, shape), to_back(len(shape), trailing))


def windows_add(g: Value, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0) -> Value:
    g = prims.permute(g, to_front(len(g.shape), trailing))
    shape = (*g.shape[: len(g.shape) - 2 * len(kernel)], *size)
    return _added(g, strided_places(tuple(g.shape), _strides(shape, kernel, stride, dilation), 0), shape, trailing)


def windows_put(
    g: Value, place: Value, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> Value:
    g, place = (prims.permute(x, to_front(len(x.shape), trailing)) for x in (g, place))
    counts = tuple(g.shape)
    shape = (*counts[: len(counts) - len(kernel)], *size)
    strides = _strides(shape, kernel, stride, dilation)
    places, rest = strided_places(counts, strides[: len(counts)], 0), place
    for k, step in reversed([*zip(kernel, strides[len(counts) :])]):
        width = prims.full(counts, k, int64)
        along = prims.mul(prims.remainder(rest, width), prims.full(counts, step, int64))
        places, rest = prims.add(places, along), prims.floor_divide(rest, width)
    return _added(g, places, shape, trailing)
