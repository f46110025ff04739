"""Eager definitions of normalisations on a CUDA device: batch and group norm. See device_rules.py.

Channels are normalised by two kernels each way, groups as layer norm's rows. Kept: mean and 1/std of each channel or
group, in the dtype that the kernels compute in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import cuda
from compiler_core.eager.device_define import Grads, alike, define_there, dense_or_none, empty
from compiler_core.eager.device_kernels import F64, I32, I64, U32, DeviceKernels, dense
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import COMPOSITES, Composite, Made

_MOST_IN_CHANNEL = 1 << 31


FEW_IN_CHANNEL = 1 << 13  # elements that one block adds up
_BLOCKS = 1 << 11  # that keep a device busy
_PARTS = 64  # whose sums each thread adds up again


def parts_of(channels: int, n: int) -> int:
    """How many blocks add up a channel of n elements."""
    return max(1, min(n // FEW_IN_CHANNEL, -(-_BLOCKS // channels), _PARTS))


def sums_of_parts(k: DeviceKernels, x: Array, sizes: tuple[Any, Any, Any], parts: int) -> tuple[Array, Array]:
    """[channels, parts]: of a part of each channel the sum, and that of the squared distances to the channel's mean.

    x: dense. sizes: samples, channels, elements of each.
    """
    batch, channels, length = map(int, sizes)
    totals, squares = empty((channels, parts), k.wide), empty((channels, parts), k.wide)
    chunk, grid = U32(-(-batch * length // parts)), (channels, parts)
    k.block("channel_totals", x, totals, *sizes, chunk, grid=grid)
    k.block("channel_squares", x, totals, squares, *sizes, chunk, grid=grid)
    return totals, squares


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(samples, channels, elements of each)."""
    return shape[0], shape[1], math.prod(shape[2:])


def _batch_norm(
    k: DeviceKernels, x: Array, mean: Array | None, variance: Array | None, weight: Array | None, bias: Array | None, *,
    eps: float,
) -> Made:  # fmt: skip
    per_channel = (mean, variance, weight, bias)
    if not alike(k, *per_channel) or not x.size or any(p is not None and p.shape != x.shape[1:2] for p in per_channel):
        return None
    batch, channels, length = _three(x.shape)
    if batch * length >= _MOST_IN_CHANNEL:
        return None
    given, out = dense(x), empty(x.shape, x.dtype)
    if mean is None or variance is None:
        means, scales = empty((channels,), k.wide), empty((channels,), k.wide)
        sizes, parts = (I32(batch), I32(channels), I32(length)), parts_of(channels, batch * length)
        if parts == 1:
            k.rows("channel_statistics", channels, batch * length, given, means, scales, *sizes, F64(eps))
        else:
            k.all("channel_finish", channels, *sums_of_parts(k, given, sizes, parts), means, scales, I64(channels),
                  I32(parts), F64(batch * length), F64(eps))  # fmt: skip
    else:
        means = dense(mean).astype(k.wide)
        scales = 1 / cuda.module().sqrt(variance.astype(k.wide) + k.wide.type(eps))
    affine = dense_or_none(weight), dense_or_none(bias)
    k.all("channel_norm", x.size, given, means, scales, *affine, out, I64(x.size), I32(channels), I32(length))
    return out, (means, scales)


def _batch_norm_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, mean: Array | None,
    variance: Array | None, weight: Array | None, bias: Array | None, **__: Any,
) -> Grads | None:  # fmt: skip
    if needs[1] or needs[2]:
        return None  # gradients of running statistics: the composition's
    (batch, channels, length), given, dx = _three(x.shape), dense(x), None
    sizes, parts = (I32(channels), I32(length)), parts_of(channels, batch * length)
    sums, chunk = empty((2, channels, parts), k.wide), U32(-(-batch * length // parts))
    k.rows("channel_sums", channels, batch * length, g, given, *kept, sums[0], sums[1], I32(batch), *sizes, chunk,
           columns=parts)  # fmt: skip
    sums = sums.reshape(2, channels) if parts == 1 else sums.sum(axis=2)
    along, level = sums[0], sums[1]
    if needs[0]:
        dx, count = empty(x.shape, x.dtype), batch * length if mean is None else 0
        k.all("channel_backward", x.size, g, given, *kept, dense_or_none(weight), along, level, dx, I64(x.size), *sizes,
              F64(count))  # fmt: skip
    dw, db = (s.astype(x.dtype, copy=False) if need else None for s, need in zip((along, level), needs[3:]))
    return dx, None, None, dw, db


def _group_norm(
    k: DeviceKernels, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float
) -> Made:  # fmt: skip
    fits = all(p is None or p.shape == x.shape[1:2] for p in (weight, bias))
    if not alike(k, weight, bias) or not x.size or not fits:
        return None
    if k.dtype.itemsize == 2:
        return None  # CuPy, which scales here, would round twice
    made = _rows().forward(x.reshape(x.shape[0] * groups, -1), None, None, dims=1, eps=eps)
    if made is None:
        return None
    out, kept = made[0].reshape(_three(x.shape)), made[1]
    if weight is not None:
        out *= weight[:, None]
    if bias is not None:
        out += bias[:, None]
    return out.reshape(x.shape), kept


def _group_norm_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Grads | None:  # fmt: skip  # noqa: E501
    given, grads, dx, dw = x.reshape(x.shape[0] * groups, -1), g.reshape(_three(x.shape)), None, None
    if needs[0]:
        inner = grads if weight is None else grads * weight[:, None]
        made = _rows().backward(
            [True, False, False], inner.reshape(given.shape), None, kept, given, None, None, dims=1, eps=eps
        )
        if made is None or made[0] is None:
            return None
        dx = made[0].reshape(x.shape)
    if needs[1]:
        again = _rows().forward(given, None, None, dims=1, eps=eps)
        if again is None:
            return None
        dw = (grads * again[0].reshape(grads.shape)).sum(axis=(0, 2))
    return dx, dw, grads.sum(axis=(0, 2)) if needs[2] else None


def _rows() -> Composite:
    """What normalises rows."""
    found = COMPOSITES["layer_norm"].on_device()
    assert found is not None
    return found


def define_norms() -> None:
    """Define them all."""
    define_there("group_norm", _group_norm, _group_norm_backward, reads=(0, 1))
    define_there("batch_norm", _batch_norm, _batch_norm_backward, reads=(0, 3))
