"""Normalisations over any Value, with torch's names and arguments: layer, RMS, group and batch norm.

In: values, and optional weight and bias. Out: one value of input's shape and dtype.
Statistics of 16-bit floats are taken in f32. The variance is taken about the mean (two passes), divided by n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.meta import INTEGERS
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_new,
    as_value,
    broadcast_shapes,
    broadcast_to,
    cast,
    dtype_of,
    floating,
    kept_shape,
    rounded_once,
    shape_of,
    widened,
)
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.composites.arithmetic import add, maximum, mul
from compiler_core.ops.composites.movement import reshape
from compiler_core.ops.composites.reduction import norm, sum
from compiler_core.ops.primitives.deviation import centered
from compiler_core.ops.refusals import need_floating, need_kind, need_parameters_dtype
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import as_float
from compiler_core.ops.whole import whole


def _standardized(wide: Value, dims: tuple[int, ...], eps: float) -> Value:
    """(wide - mean) / sqrt(var + eps) over dims."""
    _, deviation = centered(wide, dims)
    return _over_rms(deviation, prims.mul(deviation, deviation), dims, eps)


def _over_rms(x: Value, squares: Value, dims: tuple[int, ...], eps: float) -> Value:
    """x / sqrt(mean(squares) + eps) over dims."""
    shape = shape_of(x)
    total = prims.sum(squares, dims)
    count = as_float(math.prod(shape[d] for d in dims))
    scale = prims.rsqrt(add(prims.div(total, prims.full_like(total, count)), eps))
    return prims.mul(x, broadcast_to(prims.reshape(scale, kept_shape(shape, dims)), shape))


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    """x * weight + bias, broadcast."""
    x = x if weight is None else mul(x, cast(weight, dtype_of(x)))
    return x if bias is None else add(x, cast(bias, dtype_of(x)))


def _last_dims(name: str, x: Value, normalized_shape: int | Sequence[int], **parameters: Value | None) -> int:
    """How many last dims are normalised. Raises ShapeError, too, for parameters of another shape than these."""
    wanted = (normalized_shape,) if isinstance(normalized_shape, INTEGERS) else tuple(normalized_shape)
    shape, dims = tuple(x.shape), len(wanted)
    if not wanted or shape[-dims:] != wanted:
        raise ShapeError(f"{name}: input does not end in normalized_shape", expected=f"(*, {wanted})", got=str(shape))
    for own, parameter in parameters.items():
        if parameter is not None and tuple(parameter.shape) != wanted:
            raise ShapeError(
                f"{name}: Expected {own} to be of same shape as normalized_shape",
                expected=str(wanted),
                got=str(tuple(parameter.shape)),
            )
    return dims


@remembered
def layer_norm(
    input: Value,
    normalized_shape: int | Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """(input - mean) / sqrt(var + eps) * weight + bias over the last dims (Ba, Kiros and Hinton, 2016)."""
    need_kind("layer_norm", "f", input)
    need_parameters_dtype("layer_norm", input, weight, bias)
    x = floating(input)
    dims = _last_dims("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    return _layer_norm(x, weight, bias, dims=dims, eps=eps)


@whole(lies="rows", rows=True)
def _layer_norm(x: Value, weight: Value | None, bias: Value | None, *, dims: int, eps: float) -> Value:
    n = len(x.shape)
    return cast(_affine(_standardized(widened(x), tuple(range(n - dims, n)), eps), weight, bias), dtype_of(x))


@remembered
def rms_norm(
    input: Value, normalized_shape: int | Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Value:
    """input / sqrt(mean(input^2) + eps) * weight over the last dims. eps: else that of the dtype it is computed in."""
    need_kind("rms_norm", "fc", input)
    x = floating(input)
    epsilon = float(np.finfo(dtype_of(x).compute.name).eps) if eps is None else eps
    return _rms_norm(x, weight, dims=_last_dims("rms_norm", x, normalized_shape, weight=weight), eps=epsilon)


@whole(rows=True)
def _rms_norm(x: Value, weight: Value | None, *, dims: int, eps: float) -> Value:
    wide, n = widened(x), len(x.shape)
    out = _over_rms(wide, prims.mul(wide, wide), tuple(range(n - dims, n)), eps)
    return cast(_affine(out, weight, None), dtype_of(x))


@remembered
def group_norm(
    input: Value, num_groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5
) -> Value:
    """Standardised within each sample's groups of channels. input: T[N, C, *]; weight, bias: T[C]."""
    need_kind("group_norm", "f", input)
    need_parameters_dtype("group_norm", input, weight, bias)
    x = floating(input)
    shape = shape_of(x)
    if len(shape) < 2 or shape[1] % num_groups:
        raise ShapeError("group_norm: channels do not divide", expected=f"a multiple of {num_groups}", got=str(shape))
    return _group_norm(x, weight, bias, groups=num_groups, eps=eps)


@whole(lies="images")
def _group_norm(x: Value, weight: Value | None, bias: Value | None, *, groups: int, eps: float) -> Value:
    shape = shape_of(x)
    if groups == 1:  # as it lies, channels first or last
        out = _standardized(widened(x), tuple(range(1, len(shape))), eps)
    else:
        rows = reshape(widened(x), (shape[0], groups, math.prod(shape[1:]) // groups))
        out = reshape(_standardized(rows, (2,), eps), shape)
    per_channel = (shape[1],) + (1,) * (len(shape) - 2)
    weight, bias = (p if p is None else reshape(p, per_channel) for p in (weight, bias))
    return cast(_affine(out, weight, bias), dtype_of(x))


def _without_channels(x: Value) -> Value:
    """What batch norm gives for x without a dim of channels: itself if it is empty. Raises ShapeError."""
    if math.prod(x.shape):
        raise ShapeError("batch_norm: the input has no channels", expected="(N, C, *)", got=str(shape_of(x)))
    return as_new(x)


@remembered
def batch_norm(
    input: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None = None,
    bias: Value | None = None,
    training: bool = False,
    momentum: float | Value = 0.1,
    eps: float = 1e-5,
) -> Value:
    """Standardised per channel (dim 1), by the batch's statistics when training, else by the running ones.

    Pure: the running statistics are not changed here; `batch_statistics` gives what to update them with.
    """
    need_kind("batch_norm", "f", input)
    need_parameters_dtype("batch_norm", input, running_mean, running_var, weight, bias)
    x = floating(input)
    shape = shape_of(x)
    if len(shape) < 2:
        return _without_channels(x)
    if training or running_mean is None or running_var is None:
        running_mean = running_var = None
    return _batch_norm(x, running_mean, running_var, weight, bias, eps=eps)


@whole(lies="images")
def _batch_norm(
    x: Value, mean: Value | None, variance: Value | None, weight: Value | None, bias: Value | None, *, eps: float
) -> Value:
    """By the statistics given, else by the batch's."""
    shape = shape_of(x)
    per_channel = (shape[1],) + (1,) * (len(shape) - 2)
    weight, bias = (p if p is None else reshape(p, per_channel) for p in (weight, bias))
    wide = widened(x)
    if mean is None or variance is None:
        out = _standardized(wide, tuple(d for d in range(len(shape)) if d != 1), eps)
    else:
        mean, variance = reshape(mean, per_channel), reshape(variance, per_channel)
        out = mul(add(wide, mean, alpha=-1), prims.rsqrt(add(cast(variance, dtype_of(wide)), eps)))
    return cast(_affine(out, weight, bias), dtype_of(x))


def batch_statistics(input: Value) -> tuple[Value, Value]:
    """(mean, unbiased variance) per channel (dim 1), detached: what running statistics move towards."""
    wide = prims.detach(widened(input))
    shape = shape_of(wide)
    dims = tuple(d for d in range(len(shape)) if d != 1)
    average, deviation = centered(wide, dims)
    total = prims.sum(prims.mul(deviation, deviation), dims)
    count = math.prod(shape[d] for d in dims)
    return reshape(average, (shape[1],)), prims.div(total, prims.full_like(total, as_float(max(count - 1, 1))))


@remembered
@in_float32_on_cuda
def normalize(input: Value, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Value:
    """input divided by its p-norm along `dim`, the norm being at least eps."""
    need_kind("normalize", "fc", input)
    x = floating(input)
    size = cast(maximum(norm(x, p, dim, keepdim=True), eps), dtype_of(x))
    return prims.div(x, broadcast_to(size, shape_of(x)))


@remembered
@in_float32_on_cuda
@rounded_once
def cosine_similarity(x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """The cosine of the angle between x1 and x2 along `dim`, each norm being at least eps."""
    dtype = dt.promote(x1, x2)
    need_floating("cosine_similarity", x1, dtype)
    shape = broadcast_shapes(shape_of(x1), shape_of(x2))
    a, b = (broadcast_to(cast(as_value(x), dtype), shape) for x in (x1, x2))
    norms = mul(maximum(norm(a, 2, dim), eps), maximum(norm(b, 2, dim), eps))
    return prims.div(sum(mul(a, b), dim), norms)
