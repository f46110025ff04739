"""Activations, softmax and dropout over any Value, with torch's names, arguments and derivatives at corners.

In: values; dropout also `rng = (key: u64[3], stream)`, see ops/random/op.py. Out: one value of input's shape.
Softmax subtracts the detached maximum. 16-bit floats are widened to f32 inside and rounded once at the end.
The rectifiers are written with `where`, so that their derivative at 0 is torch's and NaN passes through.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from compiler_core import cuda
from compiler_core.dtype import DType, as_dtype, uint32
from compiler_core.errors import ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_value,
    broadcast_to,
    cast,
    dtype_of,
    floating,
    kept_shape,
    level,
    normalize_dim,
    rounded_once,
    shape_of,
    widened,
)
from compiler_core.ops.composites.arithmetic import add, mul, true_divide
from compiler_core.ops.composites.logic import where
from compiler_core.ops.composites.movement import chunk
from compiler_core.ops.composites.reduction import stable_shift
from compiler_core.ops.composites.unary import abs as magnitude
from compiler_core.ops.composites.unary import neg, sigmoid
from compiler_core.ops.lying import lies
from compiler_core.ops.random.on_device import drawing_on
from compiler_core.ops.random.op import least_kept
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.spent import spent
from compiler_core.ops.whole import COMPOSITES, whole

Rng = tuple[Value, int] | Value


@remembered
def relu(input: Value) -> Value:
    """max(input, 0)."""
    need_kind("relu", "iufc", input)
    return _relu(as_value(input))


@whole(lies="alike", pointwise=True, from_result=True)
def _relu(x: Value) -> Value:
    zero = prims.full_like(x, 0)
    limited = prims.where(prims.lt(x, zero), zero, prims.detach(x))  # -0.0 stays
    return prims.where(prims.le(x, zero), limited, x)


COMPOSITES["relu"].is_piecewise = True


def relu6(input: Value) -> Value:
    """input limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0)


@remembered
def hardtanh(input: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    """input limited to [min_val, max_val], with derivative 0 at both."""
    return _hardtanh(as_value(input), low=min_val, high=max_val)


@whole(lies="alike", pointwise=True)
def _hardtanh(x: Value, *, low: float, high: float) -> Value:
    low, high = level(x, low), level(x, high)
    inside = prims.bitwise_and(prims.gt(x, low), prims.lt(x, high))
    limited = prims.minimum(high, prims.maximum(low, prims.detach(x)))  # of equal ones x; NaN has no gradient
    return prims.where(inside, x, limited)


@remembered
@rounded_once
def leaky_relu(input: Value, negative_slope: float = 0.01) -> Value:
    """input, times negative_slope where not positive."""
    need_kind("leaky_relu", "f", input)
    return _leaky_relu(as_value(input), slope=float(negative_slope))


@whole(lies="alike", pointwise=True)
def _leaky_relu(x: Value, *, slope: float) -> Value:
    return prims.leaky(x, slope)


@remembered
@rounded_once
def elu(input: Value, alpha: float = 1.0) -> Value:
    """input where positive, else alpha * (exp(input) - 1)."""
    need_kind("elu", "fc", input)
    return _elu(as_value(input), alpha=float(alpha))


@whole(lies="alike", pointwise=True)
def _elu(x: Value, *, alpha: float) -> Value:
    return prims.elu(x, alpha)


@remembered
@rounded_once
def selu(input: Value) -> Value:
    """Klambauer et al., "Self-normalizing neural networks", 2017."""
    need_kind("selu", "fc", input)
    return _selu(as_value(input))


@whole(lies="alike", pointwise=True)
def _selu(x: Value) -> Value:
    return prims.elu(x, 1.6732632423543772, 1.0507009873554805)


@remembered
def silu(input: Value) -> Value:
    """input * sigmoid(input)."""
    need_kind("silu", "fc", input)
    return _silu(as_value(input))


@whole(lies="alike", pointwise=True, once=True)
def _silu(x: Value) -> Value:
    return prims.mul(x, prims.sigmoid(x))


@remembered
def gelu(input: Value, approximate: str = "none") -> Value:
    """input * Phi(input), exact by erf, or with the tanh approximation (Hendrycks and Gimpel, 2016)."""
    need_kind("gelu", "f", input)
    if approximate not in ("none", "tanh"):
        raise ShapeError("gelu: unknown approximation", expected="'none' or 'tanh'", got=repr(approximate))
    return (_gelu if approximate == "none" else _gelu_tanh)(as_value(input))


@whole(lies="alike", pointwise=True, once=True)
def _gelu(x: Value) -> Value:
    return prims.mul(x, mul(add(prims.erf(mul(x, math.sqrt(0.5))), 1.0), 0.5))


@whole(lies="alike", pointwise=True, once=True)
def _gelu_tanh(x: Value) -> Value:
    return prims.gelu_tanh(x)


def log1p_exp(x: Value) -> Value:
    """log(1 + exp(x)), without overflow; above 40 it is x to the last bit in every dtype."""
    limit = prims.full_like(x, 40.0)
    large = prims.gt(x, limit)
    small = prims.where(large, limit, x)
    return prims.where(large, x, prims.log1p(prims.exp(small)))


@remembered
@rounded_once
def softplus(input: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input > threshold."""
    need_kind("softplus", "fc", input)
    return _softplus(as_value(input), beta=beta, threshold=threshold)


@whole(lies="alike", pointwise=True)
def _softplus(x: Value, *, beta: float, threshold: float) -> Value:
    scaled = x if beta == 1 else mul(x, beta)
    soft = log1p_exp(scaled)
    return where(prims.gt(scaled, level(x, threshold)), x, soft if beta == 1 else true_divide(soft, beta))


@remembered
@lies("rows")
@rounded_once
def logsigmoid(input: Value) -> Value:
    """log(sigmoid(input))."""
    need_kind("logsigmoid", "fc", input)
    return _logsigmoid(as_value(input))


@whole(lies="rows", pointwise=True)
def _logsigmoid(x: Value) -> Value:
    return prims.sub(prims.full_like(x, 0.0), log1p_exp(prims.neg(x)))  # 0.0, and not -0.0, where x is large


@remembered
@rounded_once
def mish(input: Value) -> Value:
    """input * tanh(softplus(input))."""
    need_kind("mish", "fc", input)
    return _mish(as_value(input))


@whole(lies="alike", pointwise=True)
def _mish(x: Value) -> Value:
    return prims.mul(x, prims.tanh(softplus(x)))


@remembered
@rounded_once
def hardsigmoid(input: Value) -> Value:
    """(input + 3) / 6, limited to [0, 1]."""
    need_kind("hardsigmoid", "fc", input)
    return _hardsigmoid(as_value(input))


@whole(lies="alike", pointwise=True)
def _hardsigmoid(x: Value) -> Value:
    return true_divide(hardtanh(add(x, 3.0), 0.0, 6.0), 6.0)


@remembered
@rounded_once
def hardswish(input: Value) -> Value:
    """input * hardsigmoid(input)."""
    need_kind("hardswish", "fc", input)
    return _hardswish(as_value(input))


@whole(lies="alike", pointwise=True)
def _hardswish(x: Value) -> Value:
    return true_divide(prims.mul(x, hardtanh(add(x, 3.0), 0.0, 6.0)), 6.0)


def softsign(input: Value) -> Value:
    """input / (1 + |input|)."""
    need_kind("softsign", "iufc", input)
    x = as_value(input)
    if dtype_of(x).kind in "iu":
        return true_divide(x, add(magnitude(x), 1))
    return prims.div(x, cast(add(prims.abs(x), 1.0), dtype_of(x)))


@rounded_once
def glu(input: Value, dim: int = -1) -> Value:
    """The first half along `dim` times the sigmoid of the second."""
    need_kind("glu", "f", input)
    d = normalize_dim(dim, len(input.shape))
    if input.shape[d] % 2:
        raise ShapeError("glu halves a dim of odd size", expected="an even size", got=str(input.shape[d]))
    a, b = chunk(input, 2, d)
    return mul(a, sigmoid(b))


# ---- softmax


@remembered
def softmax(input: Value, dim: int, dtype: DType | None = None) -> Value:
    """exp(input) / sum(exp(input)) along `dim`."""
    x = cast(as_value(input), dtype and as_dtype(dtype))
    need_kind("softmax", "fc", x)
    return _softmax(x, dim=normalize_dim(dim, len(x.shape)))


def softmax_gradient(g: Value, out: Value, *, dim: int) -> Value:
    """The operand's cotangent, told from the result."""
    along = prims.reshape(prims.sum(prims.mul(g, out), (dim,)), kept_shape(shape_of(g), (dim,)))
    return prims.mul(out, prims.sub(g, broadcast_to(along, shape_of(g))))


@whole(lies="rows", rows=True, gradient=softmax_gradient)
def _softmax(x: Value, *, dim: int) -> Value:
    wide = widened(x)
    shape, dims = shape_of(x), _one_dim(x, dim)
    if not dims or 0 in shape:
        return prims.exp(prims.sub(x, x))
    e = prims.exp(stable_shift(wide, dims)[1])
    total = prims.reshape(prims.sum(e, dims), kept_shape(shape, dims))
    return cast(prims.div(e, broadcast_to(total, shape)), dtype_of(x))


def softmax_or_zero(input: Value, dim: int) -> Value:
    """softmax where a row of nothing but -inf gives 0, not NaN: attention of a position that may look at nothing."""
    x = floating(as_value(input))
    wide = widened(x)
    dims = _one_dim(x, dim)
    kept = kept_shape(shape_of(x), dims)
    peak = prims.reshape(prims.detach(prims.max(wide, dims)), kept)
    zero, one = prims.full_like(peak, 0.0), prims.full_like(peak, 1.0)
    is_empty = prims.eq(peak, prims.full_like(peak, -math.inf))
    e = prims.exp(prims.sub(wide, broadcast_to(prims.where(is_empty, zero, peak), shape_of(x))))
    total = prims.where(is_empty, one, prims.reshape(prims.sum(e, dims), kept))
    return cast(prims.div(e, broadcast_to(total, shape_of(x))), dtype_of(x))


def softmin(input: Value, dim: int, dtype: DType | None = None) -> Value:
    """softmax of -input."""
    return softmax(neg(input), dim, dtype)


@remembered
def log_softmax(input: Value, dim: int, dtype: DType | None = None) -> Value:
    """log(softmax(input)) along `dim`, without the loss of taking the logarithm afterwards."""
    x = cast(as_value(input), dtype and as_dtype(dtype))
    need_kind("log_softmax", "fc", x)
    return _log_softmax(x, dim=normalize_dim(dim, len(x.shape)))


def _log_softmax_gradient(g: Value, out: Value, *, dim: int) -> Value:
    """The operand's cotangent, told from the result."""
    total = prims.reshape(prims.sum(g, (dim,)), kept_shape(shape_of(g), (dim,)))
    return prims.sub(g, prims.mul(prims.exp(out), broadcast_to(total, shape_of(g))))


@whole(lies="rows", rows=True, gradient=_log_softmax_gradient)
def _log_softmax(x: Value, *, dim: int) -> Value:
    shape, dims = shape_of(x), _one_dim(x, dim)
    if not dims or 0 in shape:
        return prims.sub(x, x)
    _, shifted = stable_shift(widened(x), dims)
    log_total = prims.reshape(prims.log(prims.sum(prims.exp(shifted), dims)), kept_shape(shape, dims))
    return cast(prims.sub(shifted, broadcast_to(log_total, shape)), dtype_of(x))


def _one_dim(x: Value, dim: int) -> tuple[int, ...]:
    d = normalize_dim(dim, len(x.shape))
    return (d,) if x.shape else ()


# ---- dropout


def dropout(input: Value, p: float = 0.5, training: bool = True, *, rng: Rng | None = None) -> Value:
    """input with each element zeroed with probability p, the rest scaled by 1/(1-p).

    rng: needed when training with 0 < p < 1: what is kept, bool[...] that broadcasts to input's shape; or a key and a
    stream: kept are philox bits >= p * 2**32.
    """
    need_kind("dropout", "f", input)
    x = as_value(input)
    if not 0.0 <= p <= 1.0:
        raise ShapeError("dropout: p is no probability", expected="0 <= p <= 1", got=str(p))
    if not training or p == 0.0:
        return x
    if p == 1.0:
        return mul(x, 0.0)
    if rng is not None and not isinstance(rng, tuple):
        return _masked(x, spent(rng), p=p)
    key, stream = (None, 0) if rng is None else rng
    return _dropout(x, key, p=p, stream=stream)


@whole(lies="alike")
def _dropout(x: Value, key: Value | None, *, p: float, stream: int) -> Value:
    with drawing_on(cuda.number_of(x)):
        kept = keep_mask(shape_of(x), p, None if key is None else (key, stream))
    return _kept(x, kept, 1.0 / (1.0 - p))


@whole(lies="alike")
def _masked(x: Value, kept: Value, *, p: float) -> Value:
    """Dropout by a mask, bool[...] that broadcasts to x's shape."""
    return _kept(x, kept, scale_of_kept(dtype_of(x), p))


@cache
def scale_of_kept(dtype: DType, p: float) -> float:
    """1/(1-p), rounded as torch does, which divides a tensor of ones by it."""
    wide: Any = dtype.compute.numpy.type
    return float(dtype.numpy.type(wide(1) / wide(1.0 - p)))


def _kept(x: Value, kept: Value, scale: float) -> Value:
    """scale: rounded to x's dtype before the product. NaN stays NaN."""
    scaled = prims.mul(x, prims.full_like(x, scale))
    return prims.mul(scaled, broadcast_to(prims.cast(kept, dtype_of(x)), shape_of(x)))


def keep_mask(shape: tuple[int, ...], p: float, rng: tuple[Value, int] | None) -> Value:
    """bool[shape], True with probability 1 - p, decided in integers so that it is the same everywhere."""
    if rng is None:
        raise ShapeError("dropout: no generator key", remedy="pass rng=(key, stream)")
    key, stream = rng
    bits = prims.philox(key, shape, stream)
    return prims.ge(bits, prims.full(shape, least_kept(p), uint32))
