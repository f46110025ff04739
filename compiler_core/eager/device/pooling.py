"""Eager definitions of pooling on a CUDA device: maxima and averages of windows. See rules.py.

In: x: T[N, C, *n] of one or two dims n, row-major or with channels last in memory, of any dtype that there are kernels
of. Out: results that lie as x does; x's gradient, in its dtype, of sums in the dtype computed in. Padding is nowhere
written: a window ends where x does. Kept of a maximum: which element of its window it is, one byte. Kernels:
pools.cu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import I32, U32, DeviceKernels, kernels
from compiler_core.eager.device.orders import Order, as_it_lies, as_seen, last, lies_last
from compiler_core.eager.device.sums import NBYTES
from compiler_core.ops.pooling import composite as composite_pooling  # noqa: F401  declares the composites
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import empty, replays, replays_backward

Dims = tuple[int, ...]
_MOST = 1 << 31
_MOST_IN_WINDOW = 254  # of which a byte tells one
_BLOCKS = 1 << 15


@lru_cache(maxsize=4096)
def _sizes(shape: Dims, order: Order, windows: Dims) -> tuple[int, tuple[Any, ...]]:
    """(channels that lie last, H, W, P, Q)."""
    channels = shape[1] if order[-1] == 1 else 1
    ones = (1,) * (4 - len(shape))
    return channels, tuple(map(I32, (*ones, *shape[2:], *ones, *windows)))


@lru_cache(maxsize=4096)
def _two(dims: Dims, alone: int) -> tuple[Any, ...]:
    """The numbers of two spatial dims; `alone`: that of the first where there is one."""
    return tuple(map(I32, (*(alone,) * (2 - len(dims)), *dims)))


def _counts(sizes: Dims, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims) -> Dims:
    around = zip(sizes, kernel, stride, dilation, low, high)
    return tuple((n + a + b - d * (k - 1) - 1) // s + 1 for n, k, s, d, a, b in around)


def _launch(k: DeviceKernels, name: str, made: Array, channels: int, arrays: Sequence[Array], numbers: Any) -> None:
    width = NBYTES // made.itemsize
    is_wide = not (channels % width or any(x.data.ptr % NBYTES for x in arrays if x.itemsize > 1))  # type: ignore[attr-defined]
    n = made.size // width if is_wide else made.size
    k.all(name, n, *arrays, U32(n), U32(channels), *numbers, I32(is_wide), blocks=_BLOCKS)


def _order(x: Array) -> Order:
    return last(x.ndim) if lies_last(x) else tuple(range(x.ndim))


def _empty_in(order: Order, shape: Dims, dtype: Any) -> Array:
    return empty(tuple([shape[d] for d in order]), dtype)


def _takes(x: Array, kernel: Dims, windows: Dims) -> bool:
    rank = len(kernel)
    sizes = (x.size, math.prod((*x.shape[:2], *windows)))
    return rank in (1, 2) and x.ndim == rank + 2 and min(sizes) > 0 and max(sizes) < _MOST


@replays
def _maxima(
    k: DeviceKernels, x: Array, *, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims
) -> Made:  # fmt: skip
    windows = _counts(x.shape[2:], kernel, stride, dilation, low, high)
    if not _takes(x, kernel, windows) or math.prod(kernel) > _MOST_IN_WINDOW:
        return None
    order, shape = _order(x), (*x.shape[:2], *windows)
    out, chosen = _empty_in(order, shape, x.dtype), _empty_in(order, shape, "u1")
    channels, sizes = _sizes(x.shape, order, windows)
    numbers = (*sizes, *_two(kernel, 1), *_two(stride, 1), *_two(dilation, 1), *_two(low, 0))
    _launch(k, "maxima", out, channels, (as_it_lies(x, order), out, chosen), numbers)
    return as_seen(out, order), (as_seen(chosen, order),)


@replays_backward
def _maxima_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Any, *, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims) -> Grads:  # fmt: skip  # noqa: E501
    order = _order(kept[0])
    dx, slope = _empty_in(order, x.shape, g.dtype), as_it_lies(g, order)
    channels, sizes = _sizes(tuple(x.shape), order, tuple(g.shape[2:]))
    numbers = (*sizes, *_two(kernel, 1), *_two(stride, 1), *_two(dilation, 1), *_two(low, 0))
    _launch(k, "maxima_backward", dx, channels, (slope, as_it_lies(kept[0], order), dx), numbers)
    return (as_seen(dx, order),)


@replays
def _averages(
    k: DeviceKernels, x: Array, *, kernel: Dims, stride: Dims, low: Dims, high: Dims, counts: Dims,
    count_include_pad: bool, divisor_override: int | None,
) -> Made:  # fmt: skip
    divisor = divisor_override or 0
    if not _takes(x, kernel, counts) or abs(divisor) >= _MOST:
        return None
    order = _order(x)
    out, (channels, sizes) = _empty_in(order, (*x.shape[:2], *counts), x.dtype), _sizes(x.shape, order, counts)
    numbers = (*sizes, *_two(kernel, 1), *_two(stride, 1), *_two(low, 0), I32(count_include_pad), I32(divisor))
    _launch(k, "averages", out, channels, (as_it_lies(x, order), out), numbers)
    return as_seen(out, order), ()


@replays_backward
def _averages_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Any, *, kernel: Dims, stride: Dims, low: Dims, high: Dims, counts: Dims, count_include_pad: bool, divisor_override: int | None) -> Grads:  # fmt: skip  # noqa: E501
    order = _order(g)
    dx, slope = _empty_in(order, x.shape, g.dtype), as_it_lies(g, order)
    channels, sizes = _sizes(tuple(x.shape), order, counts)
    both = I32(count_include_pad), I32(divisor_override or 0)
    numbers = (*sizes, *_two(kernel, 1), *_two(stride, 1), *_two(low, 0), *both)
    _launch(k, "averages_backward", dx, channels, (slope, dx), numbers)
    return (as_seen(dx, order),)


def define_pooling() -> None:
    """Define them."""

    def find(dtype: Any) -> DeviceKernels | None:
        return kernels(dtype, "pools.cu")

    define_there("maxima_of_windows", _maxima, _maxima_backward, reads=(), find=find, arrange=None)
    define_there("averages_of_windows", _averages, _averages_backward, reads=(), find=find, arrange=None)
