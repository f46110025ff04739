"""Eager definition of group norm on a CUDA device. See rules.py.

In: x, row-major, or with channels last in memory where one group has them all, of any dtype that there are kernels of;
parameters of x's dtype, or, beside 16-bit floats, of f32. Out: a result that lies as x does; gradients of parameters in
their own dtype, of sums that were never rounded to x's. Kept: mean and 1/std of each sample and group.
Method: groups are shared by blocks, whose parts a second kernel joins, so that a few large groups keep a device busy,
too. The backward adds up, for each sample and channel, g and g times what is normalised: of these few numbers both x's
gradient and the parameters' are told. The order of adding depends on sizes alone. Kernels: groups.cu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import F64, I32, I64, MOST, U32, DeviceKernels, kernels
from compiler_core.eager.device.orders import Order, as_it_lies, as_seen, last, lies_last
from compiler_core.eager.device.sums import NBYTES, added, levels, pieces
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import empty, replays, replays_backward

_FILE = "groups.cu"
_MOST = 1 << 31
_BLOCKS = 1 << 12  # that keep a device busy
_LEAST = 1 << 12  # elements of a part, at least


class _Sizes(NamedTuple):
    """What kernels of one shape are told. grid: a block for each part of each row; sizes: what they begin with, wide
    what those that know channels end with. moments: the kernel that adds up a sample's channels, with its grid, sizes,
    and the shape of what it makes, and of which dim the sums over parts are left."""

    order: Order
    rows: int
    parts: int
    grid: tuple[int]
    sizes: tuple[Any, ...]
    channels: tuple[Any, ...]
    wide: Any
    moments: tuple[str, tuple[int], tuple[Any, ...], tuple[int, ...], int]


@lru_cache(maxsize=4096)
def _sizes(shape: tuple[int, ...], groups: int, is_last: bool, vector: int) -> _Sizes | None:
    """vector: elements that are moved at once, if they fit. None: too many."""
    samples, all_channels, length = shape[0], shape[1], math.prod(shape[2:])
    channels, rows = all_channels // groups, samples * groups
    n = channels * length
    is_last = is_last or length == 1
    vector = 1 if (channels if is_last else length) % vector else vector
    if max(n, samples * all_channels) >= _MOST or n * rows >= _MOST * 64:
        return None
    parts = max(1, min(n // _LEAST, -(-_BLOCKS // rows), MOST))
    chunk = -(-n // (parts * vector)) * vector
    parts = -(-n // chunk)
    if is_last and groups == 1:
        lanes, across, splits, share = levels(samples, length, channels, vector)
        name, shape_made, dim = "last_moments", (2, samples, splits, channels), 2
        told = (*map(I64, (samples, length, channels, splits, share, across)), I32(lanes), I32(vector > 1))
        moments = name, (across * samples * splits,), told, shape_made, dim
    else:
        planes = samples * all_channels
        lanes, splits, share = pieces(planes, length, vector)
        wide = I32(vector > 1 and not length % vector)
        told = (*map(I64, (planes, length)), I32(channels), I64(splits), I64(share), I32(lanes), wide)
        moments = "plane_moments", (-(-planes * splits * lanes // MOST),), told, (2, samples, all_channels, splits), 3
    sizes, told = (U32(n), U32(chunk), I32(parts)), (U32(length), I32(channels), I32(is_last), I32(groups))
    order = last(len(shape)) if is_last and length > 1 else tuple(range(len(shape)))
    return _Sizes(order, rows, parts, (rows * parts,), sizes, told, I32(vector > 1), moments)


def _vector(x: Array, *others: Array) -> int:
    is_odd = any(one.data.ptr % NBYTES for one in (x, *others))  # type: ignore[attr-defined]
    return 1 if is_odd else NBYTES // x.itemsize


def _as_computed(k: DeviceKernels, parameter: Array | None) -> Array | None:
    return None if parameter is None else as_it_lies(parameter, (0,)).astype(k.wide, copy=False)


@replays
def _group_norm(
    k: DeviceKernels, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float
) -> Made:
    fits = all(p is None or (p.shape == x.shape[1:2] and p.dtype in (k.dtype, k.wide)) for p in (weight, bias))
    if not fits or not x.size:
        return None
    is_last = groups == 1 and lies_last(x)
    order = last(x.ndim) if is_last else tuple(range(x.ndim))
    given = as_it_lies(x, order)
    sizes = _sizes(x.shape, groups, is_last, _vector(given))
    if sizes is None:
        return None
    means, squares = empty((2, sizes.rows * sizes.parts), k.wide)
    k.block("group_parts", given, means, squares, *sizes.sizes, sizes.wide, grid=sizes.grid)
    out, mean, scale = empty(given.shape, x.dtype), empty((sizes.rows,), k.wide), empty((sizes.rows,), k.wide)
    affine = _as_computed(k, weight), _as_computed(k, bias)
    k.block("group_norm", given, means, squares, *affine, out, mean, scale, *sizes.sizes, *sizes.channels, sizes.wide,
            F64(eps), grid=sizes.grid)  # fmt: skip
    return as_seen(out, order), (mean, scale)


@replays_backward
def _group_norm_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Grads | None:  # fmt: skip  # noqa: E501
    is_last = groups == 1 and lies_last(x)
    order = last(x.ndim) if is_last else tuple(range(x.ndim))
    given, slope = as_it_lies(x, order), as_it_lies(g, order)
    sizes = _sizes(x.shape, groups, is_last, _vector(given, slope))
    assert sizes is not None  # as in the forward
    name, grid, told, shape, dim = sizes.moments
    sums = empty(shape, k.wide)
    k.block(name, slope, given, *kept, sums, *told, grid=grid)
    sums = added(sums, dim)
    dx = None
    if needs[0]:
        dx = empty(given.shape, x.dtype)
        k.block("group_backward", slope, given, *kept, _as_computed(k, weight), sums, dx, *sizes.sizes, *sizes.channels,
                sizes.wide, I64(sums.size // 2), grid=sizes.grid)  # fmt: skip
        dx = as_seen(dx, order)
    totals = added(sums, 1) if needs[1] or needs[2] else sums
    own = [
        None if p is None or not need else one.astype(p.dtype, copy=False)
        for p, need, one in zip((weight, bias), needs[1:], totals)
    ]
    return [dx, *own]


def define_norms() -> None:
    """Define it."""
    define_there(
        "group_norm", _group_norm, _group_norm_backward, reads=(0, 1), find=lambda dtype: kernels(dtype, _FILE),
        arrange=None,
    )  # fmt: skip
