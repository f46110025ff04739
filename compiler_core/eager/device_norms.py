"""Eager definitions of normalisations on a CUDA device: layer, RMS, batch and group norm. See device_rules.py.

Rows are normalised by a kernel each way, and one that sums down the rows for weight and bias; channels by two each way.
Kept: mean and 1/std of each row, channel or group, in the dtype that the kernels compute in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import cuda
from compiler_core.eager.device_define import Grads, alike, define_there, dense_or_none, empty
from compiler_core.eager.device_kernels import F64, I32, I64, MOST_ROWS, U32, DeviceKernels, dense
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made

_ROWS_A_PART = 64  # of a sum down the rows, which a block makes


def _normed(
    k: DeviceKernels,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    lead: tuple[int, ...],
    eps: float,
    centered: bool,
) -> Made:
    rows = math.prod(lead)
    if rows >= MOST_ROWS:
        return None
    n = x.size // rows
    out, scale = empty(x.shape, x.dtype), empty(lead, k.wide)
    mean = empty(lead, k.wide) if centered else None
    k.rows(
        "row_norm", rows, n, dense(x), dense_or_none(weight), dense_or_none(bias), out, mean, scale, I64(n), F64(eps)
    )
    return out, (scale,) if mean is None else (scale, mean)


def _normed_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, kept: Any, x: Array, weight: Array | None
) -> Grads:
    scale, mean = kept[0], kept[1] if len(kept) > 1 else None
    rows, ends = scale.size, x.shape[scale.ndim :]
    n = x.size // rows
    given, dx = dense(x), None
    if needs[0]:
        dx = empty(x.shape, x.dtype)
        k.rows("row_norm_backward", rows, n, g, given, dense_or_none(weight), mean, scale, dx, I64(n))
    if not (needs[1] or needs[2]):
        return dx, None, None
    parts = min(-(-rows // _ROWS_A_PART), 128)
    chunk = -(-rows // parts)
    made = empty((2, parts, n), k.wide)
    k.block("row_norm_columns", g, given, mean, scale, made[0], made[1], I64(rows), I64(n), I64(chunk),
            grid=(-(-n // 32), parts))  # fmt: skip
    sums = (made[:, 0] if parts == 1 else cuda.module().sum(made, axis=1)).astype(x.dtype, copy=False)
    dw, db = (sums[number].reshape(ends) if needs[number + 1] else None for number in (0, 1))
    return dx, dw, db


def _define_rows() -> None:
    def layer_norm(
        k: DeviceKernels, x: Array, weight: Array | None, bias: Array | None, *, dims: int, eps: float
    ) -> Made:
        ends = x.shape[-dims:]
        if not alike(k, weight, bias) or not x.size or any(p is not None and p.shape != ends for p in (weight, bias)):
            return None
        return _normed(k, x, weight, bias, x.shape[:-dims], eps, True)

    def rms_norm(k: DeviceKernels, x: Array, weight: Array | None, *, dims: int, eps: float) -> Made:
        if not alike(k, weight) or not x.size or (weight is not None and weight.shape != x.shape[-dims:]):
            return None
        return _normed(k, x, weight, None, x.shape[:-dims], eps, False)

    def layer_norm_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array | None, bias: Array | None, **__: Any) -> Grads:  # fmt: skip  # noqa: E501
        return _normed_backward(k, needs, g, kept, x, weight)

    def rms_norm_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array | None, **__: Any) -> Grads:  # fmt: skip  # noqa: E501
        return _normed_backward(k, (*needs, False), g, kept, x, weight)[:2]

    define_there("layer_norm", layer_norm, layer_norm_backward, reads=(0, 1))
    define_there("rms_norm", rms_norm, rms_norm_backward, reads=(0, 1))


# ---- batch norm

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
    rows = x.shape[0] * groups
    made = _normed(k, x.reshape(rows, -1), None, None, (rows,), eps, True)
    if made is None:
        return None
    out, kept = made[0].reshape(_three(x.shape)), made[1]
    if weight is not None:
        out *= weight[:, None]
    if bias is not None:
        out += bias[:, None]
    return out.reshape(x.shape), kept


def _group_norm_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array | None, bias: Array | None, **__: Any) -> Grads:  # fmt: skip  # noqa: E501
    (scale, mean), dx, dw = kept, None, None
    given, grads = x.reshape(scale.size, -1), g.reshape(_three(x.shape))
    if needs[0]:
        inner = grads if weight is None else grads * weight[:, None]
        (dx, *_others) = _normed_backward(k, (True, False, False), dense(inner), kept, given, None)
        dx = None if dx is None else dx.reshape(x.shape)
    if needs[1]:
        standardized = ((given - mean[:, None]) * scale[:, None]).reshape(grads.shape)
        dw = (grads * standardized).sum(axis=(0, 2))
    return dx, dw, grads.sum(axis=(0, 2)) if needs[2] else None


def define_norms() -> None:
    """Define them all."""
    _define_rows()
    define_there("group_norm", _group_norm, _group_norm_backward, reads=(0, 1))
    define_there("batch_norm", _batch_norm, _batch_norm_backward, reads=(0, 3))
