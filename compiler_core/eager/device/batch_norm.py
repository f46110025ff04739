"""Eager definition of batch norm on a CUDA device, and of how it moves running statistics. See rules.py.

In: x, row-major or with channels last in memory, of any dtype that there are kernels of; what belongs to a channel of
x's dtype, or, beside 16-bit floats, of f32, in which they are computed. Out: a result that lies as x does; gradients of
parameters in their own dtype, never rounded to x's. Kept: mean, 1/std and variance of each channel, which is also what
running statistics move towards, so that x is read for them once a step. Kernels: channels.cu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import F64, I32, I64, MOST, DeviceKernels, dense, kernels
from compiler_core.eager.device.orders import Order, as_it_lies, as_seen, last, lies_last
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import empty, replays, replays_backward

FILE = "channels.cu"
_MOST_UNITS = 1 << 31
_NBYTES = 16  # that are moved at once
_LANES = 32  # threads side by side along channels
SUMMING, MAPPING = 1 << 10, 1 << 12  # blocks that keep a device busy, of kernels that add up, and of others
FEW, SOME = 4, 8  # units of each thread at least before there are more blocks, of these kernels


class Sizes(NamedTuple):
    """What kernels of one shape are told. order: how x's dims lie. numel: elements of a channel.

    sums, maps: blocks along channels, parts of their elements, and all sizes: of kernels that add up, and of others.
    each: elements of a part that is added up.
    """

    order: Order
    channels: int
    numel: int
    each: int
    sums: tuple[tuple[int, int], tuple[Any, ...]]
    maps: tuple[tuple[int, int], tuple[Any, ...]]


@lru_cache(maxsize=4096)
def _sizes(shape: tuple[int, ...], is_last: bool, width: int) -> Sizes | None:
    """width: elements that are moved at once, if they fit. None: too many."""
    channels, length = shape[1], math.prod(shape[2:])
    order = last(len(shape)) if is_last else tuple(range(len(shape)))
    is_last = is_last or length == 1
    width = 1 if (channels if is_last else length) % width else width
    units, columns, lanes, height = shape[0] * length // width, channels, 0, MOST
    if is_last:
        pieces = channels // width
        lanes = min(_LANES, 1 << (pieces - 1).bit_length())
        units, columns, height = shape[0] * length, -(-pieces // lanes), MOST // lanes
    if units >= _MOST_UNITS or columns >= _MOST_UNITS:
        return None
    found = []
    for blocks, least in ((SUMMING, FEW), (MAPPING, SOME)):
        parts = max(1, min(blocks // columns, units // (height * least)))
        share = -(-units // parts)
        parts = -(-units // share)
        told = (I64(units), I32(channels), I32(length), I32(lanes), I64(share), I32(width > 1))
        found.append(((columns, parts), told))
    each = int(found[0][1][4]) * (1 if is_last else width)
    return Sizes(order, channels, shape[0] * length, each, *found)


def _lying(x: Array, *others: Array) -> tuple[Sizes | None, list[Array]]:
    """The sizes, and all arrays as x lies, row-major if it has gaps."""
    is_last = lies_last(x)
    order = last(x.ndim) if is_last else tuple(range(x.ndim))
    arrays = [as_it_lies(array, order) for array in (x, *others)]
    starts_well = not any(array.data.ptr % _NBYTES for array in arrays)  # type: ignore[attr-defined]
    return _sizes(x.shape, is_last, _NBYTES // x.itemsize if starts_well else 1), arrays


def _statistics(k: DeviceKernels, x: Array, sizes: Sizes, eps: float) -> Array:
    """[3, channels]: mean, 1/std, variance of x, which lies in that order."""
    parts = empty((sizes.sums[0][1], 2, sizes.channels), k.wide)
    made = empty((3, sizes.channels), k.wide)
    grid, told = sizes.sums
    k.block("channel_parts", x, parts, *told, grid=grid)
    k.block("channel_finish", parts, made, I32(sizes.channels), I32(grid[1]), I64(sizes.each), I64(sizes.numel),
            F64(eps), grid=(-(-sizes.channels // 8),))  # fmt: skip
    return made


def _wide(k: DeviceKernels, parameter: Array | None) -> Array | None:
    return None if parameter is None else dense(parameter.astype(k.wide, copy=False))


def _fits(k: DeviceKernels, x: Array, *per_channel: Array | None) -> bool:
    shape, dtypes = x.shape[1:2], (k.dtype, k.wide)
    return all(p is None or (p.shape == shape and p.dtype in dtypes) for p in per_channel)


@replays
def _batch_norm(
    k: DeviceKernels, x: Array, mean: Array | None, variance: Array | None, weight: Array | None, bias: Array | None, *,
    eps: float,
) -> Made:  # fmt: skip
    if not x.size or not _fits(k, x, mean, variance, weight, bias):
        return None
    sizes, (given,) = _lying(x)
    if sizes is None:
        return None
    channels = I32(sizes.channels)
    if mean is None or variance is None:
        statistics = _statistics(k, given, sizes, eps)
    else:
        statistics = empty((3, sizes.channels), k.wide)
        k.all("channel_given", sizes.channels, _wide(k, mean), _wide(k, variance), statistics, channels, F64(eps))
    out, (grid, told) = empty(given.shape, x.dtype), sizes.maps
    k.block("channel_norm", given, statistics, _wide(k, weight), _wide(k, bias), out, *told, grid=grid)
    return as_seen(out, sizes.order), (statistics,)


@replays_backward
def _batch_norm_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, mean: Array | None,
    variance: Array | None, weight: Array | None, bias: Array | None, **__: Any,
) -> Grads | None:  # fmt: skip
    if needs[1] or needs[2]:
        return None  # gradients of running statistics: the composition's
    (sizes, (given, slopes)), (statistics,), dx = _lying(x, g), kept, None
    assert sizes is not None, "the forward had them"
    (grid, told), channels = sizes.sums, I32(sizes.channels)
    parts, sums = empty((grid[1], 2, sizes.channels), k.wide), empty((2, sizes.channels), k.wide)
    k.block("channel_slopes", slopes, given, statistics, parts, *told, grid=grid)
    k.block("channel_sums", parts, statistics, sums, channels, I32(grid[1]), grid=(-(-sizes.channels // 8),))
    if needs[0]:
        grid, told = sizes.maps
        out, count = empty(given.shape, x.dtype), sizes.numel if mean is None else 0
        k.block("channel_backward", slopes, given, statistics, _wide(k, weight), sums, out, *told, F64(count),
                grid=grid)  # fmt: skip
        dx = as_seen(out, sizes.order)
    pairs = zip(sums, (weight, bias), needs[3:])
    return dx, None, None, *[s.astype(p.dtype, copy=False) if need and p is not None else None for s, p, need in pairs]


def statistics_of(k: DeviceKernels, x: Array) -> Array | None:
    """What batch norm keeps of x; None: there are too many elements."""
    sizes, (given,) = _lying(x)
    return None if sizes is None else _statistics(k, given, sizes, 0.0)


def moved_by(
    k: DeviceKernels, statistics: Array, mean: Array, variance: Array, count: int, momentum: float
) -> tuple[Array, Array]:
    """Running statistics, moved towards those of `count` elements a channel."""
    channels = len(mean)
    moved = empty((channels,), k.wide), empty((channels,), k.wide)
    k.all("channel_moved", channels, statistics, dense(mean), dense(variance), *moved, I32(channels), I64(count),
          F64(momentum))  # fmt: skip
    return moved


def channel_kernels(dtype: Any) -> DeviceKernels | None:
    return kernels(dtype, FILE)


def define_batch_norm() -> None:
    """Define it."""
    define_there("batch_norm", _batch_norm, _batch_norm_backward, reads=(0, 3), find=channel_kernels, arrange=None)
