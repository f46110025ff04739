"""Losses over any Value, with torch's names, arguments and defaults.

In: predictions, targets, `reduction` ("none", "mean", "sum"). Out: one value.
Class indices are compared with an iota rather than gathered: log-softmax, selection, and the whole backward of
cross_entropy are then pointwise work and row reductions on one pass over the logits, with nothing scattered.
A target outside the classes raises IndexError_ (`check_index`), in generated code too.
`size_average` and `reduce`, deprecated in torch, are not taken.
"""

from __future__ import annotations

import math

from compiler_core import dtype as dt
from compiler_core.errors import ArgumentTypeError, DTypeError, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    broadcast_to,
    cast,
    dtype_of,
    floating,
    kept_shape,
    level,
    rounded_once,
    shape_of,
    widened,
)
from compiler_core.ops.casting import in_float32, refused_on_cuda
from compiler_core.ops.composites.activation import log1p_exp
from compiler_core.ops.composites.arithmetic import add, mul, sub, true_divide
from compiler_core.ops.composites.reduction import mean, stable_shift, sum
from compiler_core.ops.composites.trigonometry import floating_operands
from compiler_core.ops.composites.unary import abs
from compiler_core.ops.refusals import need_kind, need_one_dtype
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import as_float, as_like, quotient
from compiler_core.ops.whole import whole


def reduced(loss: Value, reduction: str) -> Value:
    """`loss` itself, its mean, or its sum."""
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ShapeError("unknown reduction", expected="'none', 'mean' or 'sum'", got=repr(reduction))
    return mean(loss) if reduction == "mean" else sum(loss)


# ---- classes


@remembered
@in_float32
def cross_entropy(
    input: Value,
    target: Value,
    weight: Value | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Value:
    """-log softmax(input)[target].

    input: logits T[C], T[N, C] or T[N, C, *]. target: class indices i64[], [N] or [N, *]; or probabilities in input's
    shape. weight: T[C] per class. "mean" divides by the summed weight of the targets that are not ignored.
    """
    need_kind("cross_entropy", "f", input)
    x = floating(input)
    if not 0 <= label_smoothing <= 1:
        raise ShapeError("label_smoothing must be between 0.0 and 1.0", got=str(label_smoothing))
    if ignore_index >= 0 and dtype_of(target).is_floating_point:
        raise DTypeError("ignore_index is not supported for floating point target", got=dtype_of(target).name)
    is_plain = weight is None and dt.number_type(label_smoothing) in (float, int)
    if is_plain and not dtype_of(target).is_floating_point:
        return _cross_entropy(x, target, ignore_index=ignore_index, reduction=reduction, smoothing=label_smoothing)
    return _any_cross_entropy(x, target, weight, ignore_index, reduction, label_smoothing)


@whole
def _cross_entropy(x: Value, target: Value, *, ignore_index: int, reduction: str, smoothing: float) -> Value:
    return _any_cross_entropy(x, target, None, ignore_index, reduction, smoothing)


def _any_cross_entropy(
    x: Value, target: Value, weight: Value | None, ignore_index: int, reduction: str, label_smoothing: float
) -> Value:
    wide = widened(x)
    dim = _class_dim(x)
    _, shifted = stable_shift(wide, (dim,))
    log_total = prims.log(prims.sum(prims.exp(shifted), (dim,)))  # (N, *)
    if dtype_of(target).is_floating_point:
        loss = _soft_cross_entropy(shifted, log_total, target, weight, dim, label_smoothing)
        count = math.prod(shape_of(loss))
        return cast(_mean_over(loss, prims.full((), as_float(count), dtype_of(wide)), reduction), dtype_of(x))
    classes = Classes(target, x, dim, weight, ignore_index)
    loss = classes.weighted(prims.sub(log_total, classes.pick(shifted)))
    if label_smoothing:
        spread = _spread(shifted, log_total, weight, dim)
        loss = add(
            mul(loss, 1.0 - label_smoothing), mul(spread, as_like(spread, quotient(label_smoothing, x.shape[dim])))
        )
    return cast(_mean_over(classes.valid_only(loss), classes.total_weight(wide), reduction), dtype_of(x))


@remembered
@in_float32
def nll_loss(
    input: Value,
    target: Value,
    weight: Value | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Value:
    """-input[target]: input holds log-probabilities. Shapes as for cross_entropy with class indices."""
    need_kind("nll_loss", "f", input)
    x = floating(input)
    if weight is None:
        return _nll_loss(x, target, ignore_index=ignore_index, reduction=reduction)
    return _any_nll_loss(x, target, weight, ignore_index, reduction)


@whole
def _nll_loss(x: Value, target: Value, *, ignore_index: int, reduction: str) -> Value:
    return _any_nll_loss(x, target, None, ignore_index, reduction)


def _any_nll_loss(x: Value, target: Value, weight: Value | None, ignore_index: int, reduction: str) -> Value:
    classes = Classes(target, x, _class_dim(x), weight, ignore_index)
    loss = classes.valid_only(classes.weighted(prims.neg(classes.pick(x))))
    return _mean_over(loss, classes.total_weight(x), reduction)


class Classes:
    """Class indices against scores: which entry each target picks, which targets count, and for how much."""

    def __init__(self, target: Value, scores: Value, dim: int, weight: Value | None, ignore_index: int) -> None:
        shape = shape_of(scores)
        rows = (*shape[:dim], *shape[dim + 1 :])
        if dtype_of(target) not in (dt.int64, dt.uint8):
            raise DTypeError("expected target dtype to be Long or Byte", got=dtype_of(target).name, remedy="use long()")
        if tuple(target.shape) != rows:
            raise ShapeError("targets do not fit the scores", expected=str(rows), got=str(tuple(target.shape)))
        if weight is not None and tuple(weight.shape) != (scores.shape[dim],):
            what = "weight is to have an element for each class"
            raise ShapeError(what, expected=f"({scores.shape[dim]},)", got=str(tuple(weight.shape)))
        if weight is not None:
            need_one_dtype("nll_loss", scores, weight)
        self.shape, self.dim, self.weight = shape, dim, weight
        target = cast(target, dt.int64)
        self.valid = prims.ne(target, prims.full_like(target, ignore_index))
        counted = prims.where(self.valid, target, prims.full_like(target, 0))
        self.index = prims.check_index(counted, shape[dim])

    def pick(self, scores: Value) -> Value:
        """scores[n, index[n], *]: the sum over classes of scores where iota == index. i32 keeps f32's lane width."""
        index = prims.reshape(cast(self.index, dt.int32), kept_shape(self.shape, (self.dim,)))
        chosen = prims.eq(prims.iota(self.shape, self.dim, dt.int32), broadcast_to(index, self.shape))
        return prims.sum(prims.where(chosen, scores, prims.full_like(scores, 0.0)), (self.dim,))

    def weighted(self, loss: Value) -> Value:
        """loss times the weight of its class."""
        return loss if self.weight is None else mul(loss, prims.take(self.weight, self.index))

    def valid_only(self, loss: Value) -> Value:
        """loss with 0 where the target is ignored."""
        return prims.where(self.valid, loss, prims.full_like(loss, 0.0))

    def total_weight(self, like: Value) -> Value:
        """The sum of the weights of the targets that count, in like's dtype."""
        if self.weight is None:
            return sum(cast(self.valid, dtype_of(like)))
        return sum(self.valid_only(cast(prims.take(self.weight, self.index), dtype_of(like))))


def _class_dim(x: Value) -> int:
    if not x.shape:
        raise ShapeError("class scores need a class dim", expected="(C), (N, C) or (N, C, *)", got="()")
    return 0 if len(x.shape) == 1 else 1


def _mean_over(loss: Value, total: Value, reduction: str) -> Value:
    """reduced, but "mean" divides by `total`."""
    return prims.div(sum(loss), cast(total, dtype_of(loss))) if reduction == "mean" else reduced(loss, reduction)


def _per_class(weight: Value, shape: tuple[int, ...], dim: int) -> Value:
    """weight T[C] expanded to `shape` along `dim`."""
    return broadcast_to(prims.reshape(weight, tuple(n if d == dim else 1 for d, n in enumerate(shape))), shape)


def _spread(shifted: Value, log_total: Value, weight: Value | None, dim: int) -> Value:
    """The sum over classes of -log p, weighted: what label smoothing adds."""
    shape = shape_of(shifted)
    if weight is None:
        return prims.sub(mul(log_total, as_float(shape[dim])), prims.sum(shifted, (dim,)))
    log_p = prims.sub(shifted, broadcast_to(prims.reshape(log_total, kept_shape(shape, (dim,))), shape))
    return prims.neg(prims.sum(mul(log_p, _per_class(weight, shape, dim)), (dim,)))


def _soft_cross_entropy(
    shifted: Value, log_total: Value, target: Value, weight: Value | None, dim: int, label_smoothing: float
) -> Value:
    """-sum over classes of target * log p."""
    shape = shape_of(shifted)
    if tuple(target.shape) != shape:
        raise ShapeError("probability targets do not fit the logits", expected=str(shape), got=str(tuple(target.shape)))
    p = cast(target, dtype_of(shifted))
    if label_smoothing:
        p = add(mul(p, 1.0 - label_smoothing), label_smoothing / shape[dim])
    log_p = prims.sub(shifted, broadcast_to(prims.reshape(log_total, kept_shape(shape, (dim,))), shape))
    terms = prims.mul(p, log_p)
    if weight is not None:
        terms = mul(terms, _per_class(weight, shape, dim))
    return prims.neg(prims.sum(terms, (dim,)))


# ---- distances


@remembered
@in_float32
def mse_loss(input: Value, target: Value, reduction: str = "mean") -> Value:
    """(input - target)^2."""
    need_kind("mse_loss", "f", input, target)
    return reduced(_mse(input, target), reduction)


@whole(lies="alike", pointwise=True)
def _mse(x: Value, target: Value) -> Value:
    difference = sub(x, target)
    return prims.mul(difference, difference)


@remembered
@in_float32
def l1_loss(input: Value, target: Value, reduction: str = "mean") -> Value:
    """|input - target|."""
    return reduced(_l1(input, target), reduction)


@whole(lies="alike", pointwise=True)
def _l1(x: Value, target: Value) -> Value:
    return abs(sub(x, target))


@remembered
@in_float32
@rounded_once
def huber_loss(input: Value, target: Value, reduction: str = "mean", delta: float = 1.0) -> Value:
    """Half the square within delta of the target, linear beyond."""
    need_kind("huber_loss", "f", input)
    if dt.number_type(delta) not in (float, int):
        raise ArgumentTypeError(f"delta must be a float or int, got: {type(delta)}")
    return reduced(_huber(input, target, delta=delta, half=0.5 * delta), reduction)


@whole(lies="alike", pointwise=True)
def _huber(x: Value, target: Value, *, delta: float, half: float) -> Value:
    distance = abs(sub(x, target))
    is_near = prims.logical_not(prims.gt(distance, level(distance, delta)))  # also NaN
    within = prims.where(is_near, distance, prims.full_like(distance, 0.0))  # of infinities the square has no gradient
    near = mul(prims.mul(within, within), 0.5)
    return prims.where(is_near, near, mul(sub(distance, half), delta))


@remembered
@in_float32
@rounded_once
def smooth_l1_loss(input: Value, target: Value, reduction: str = "mean", beta: float = 1.0) -> Value:
    """huber_loss / beta; l1_loss for beta = 0."""
    need_kind("smooth_l1_loss", "f", input)
    if beta == 0.0:
        return l1_loss(input, target, reduction)
    loss = huber_loss(input, target, reduction, beta)
    return loss if dt.number_type(beta) in (float, int) and beta == 1 else mul(loss, 1.0 / beta)


# ---- probabilities


@remembered
@in_float32
@rounded_once
def binary_cross_entropy_with_logits(
    input: Value,
    target: Value,
    weight: Value | None = None,
    reduction: str = "mean",
    pos_weight: Value | None = None,
) -> Value:
    """-(target log s + (1 - target) log(1 - s)) with s = sigmoid(input), from the logits without overflow."""
    need_kind("binary_cross_entropy_with_logits", "f", input)
    x = floating(input)
    if tuple(x.shape) != tuple(target.shape):
        raise ShapeError("targets do not fit the logits", expected=str(tuple(x.shape)), got=str(tuple(target.shape)))
    if pos_weight is None:
        loss = _bce_with_logits(x, target)
    else:
        loss = _scaled_bce(x, target, add(mul(sub(pos_weight, 1.0), target), 1.0))
    return reduced(loss if weight is None else mul(loss, weight), reduction)


@whole(lies="alike", pointwise=True)
def _bce_with_logits(x: Value, target: Value) -> Value:
    positive = log1p_exp(prims.neg(x))  # -log s
    return add(mul(sub(1.0, target), x), positive)


@whole(lies="alike", pointwise=True)
def _scaled_bce(x: Value, target: Value, scale: Value) -> Value:
    positive = log1p_exp(prims.neg(x))
    return add(mul(sub(1.0, target), x), mul(scale, positive))


@remembered
@refused_on_cuda("use binary_cross_entropy_with_logits")
@in_float32
@rounded_once
def binary_cross_entropy(input: Value, target: Value, weight: Value | None = None, reduction: str = "mean") -> Value:
    """-(target log p + (1 - target) log(1 - p)); logarithms, and the gradient's divisor, are held as in torch.

    Raises RuntimeError, compiled too, for an input or a target outside of [0, 1].
    """
    need_kind("binary_cross_entropy", "f", input)
    x = floating(input)
    x = _within_unit("input", x)
    target = _within_unit("target", target)
    loss = _bce(x, target)
    return reduced(loss if weight is None else mul(loss, weight), reduction)


@whole(lies="alike", pointwise=True)
def _bce(x: Value, target: Value) -> Value:
    return prims.bce(*floating_operands(x, target))


def _within_unit(name: str, x: Value) -> Value:
    """x, once it was seen that it lies in [0, 1]."""
    inside = prims.bitwise_and(prims.le(prims.full_like(x, 0), x), prims.le(x, prims.full_like(x, 1)))
    return prims.require(x, prims.logical_not(inside), "value", f"all elements of {name} should be between 0 and 1")


@remembered
@in_float32
def kl_div(input: Value, target: Value, reduction: str = "mean", log_target: bool = False) -> Value:
    """target (log target - input): input holds log-probabilities; 0 where target is 0. reduction may be "batchmean"."""
    need_kind("kl_div", "biuf", input, target)
    loss = (_kl_of_logs if log_target else _kl)(input, target)
    if reduction == "batchmean":
        return true_divide(sum(loss), input.shape[0] if input.shape else 1)
    return reduced(loss, reduction)


@whole(lies="alike", pointwise=True)
def _kl(x: Value, target: Value) -> Value:
    return sub(prims.xlogy(target, target), mul(target, x))  # NaN for a negative target, as in torch


@whole(lies="alike", pointwise=True)
def _kl_of_logs(x: Value, target: Value) -> Value:
    return mul(prims.exp(target), sub(target, x))
