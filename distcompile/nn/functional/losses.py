"""Loss functions with torch's signatures; the arithmetic is the core's (`compiler_core.ops.functional`).

In: predictions and targets. Out: a scalar (reduction "mean" or "sum") or a loss an element ("none").
`size_average` and `reduce` are torch's deprecated way to say `reduction`; given, they win over it.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from compiler_core.errors import ShapeError
from compiler_core.log import warn_once
from compiler_core.ops import functional as C
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

REDUCTIONS = ("mean", "sum", "none")


def checked_reduction(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """The reduction meant by the three arguments. Raises ArgumentError for an unknown one."""
    if size_average is not None or reduce is not None:
        if reduce is False:
            return "none"
        return "sum" if size_average is False else "mean"
    if reduction not in REDUCTIONS:
        raise ArgumentError(f"{reduction} is not a valid value for reduction", expected=", ".join(REDUCTIONS))
    return reduction


def _warn_if_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    if tuple(input.shape) != tuple(target.shape):
        warn_once(
            f"loss.{name}.{tuple(input.shape)}.{tuple(target.shape)}",
            f"{name}: target size {tuple(target.shape)} is different to the input size {tuple(input.shape)}; "
            "they are broadcast, which is rarely what is meant",
            stacklevel=4,
        )


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """An unreduced loss, weighted; its mean is the weighted mean."""
    if tuple(weight.shape) != tuple(loss.shape):
        raise ShapeError("Inputs and weight must have the same size.", expected=str(loss.shape), got=str(weight.shape))
    weighted = loss * weight
    if reduction == "none":
        return weighted
    return weighted.sum() / weight.sum() if reduction == "mean" else weighted.sum()


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared error, (x - y)²; with a weight, the mean is the weighted one.

    Args: reduction, "mean", "sum" or "none". See `MSELoss`.

    Example:
        >>> F.mse_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]))
        tensor(4.5000)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    _warn_if_broadcast("mse_loss", input, target)
    if weight is not None:
        return _weighted(C.mse_loss(input, target, "none"), weight, reduction)
    return C.mse_loss(input, target, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute error, |x - y|; with a weight, the mean is the weighted one.

    Args: reduction, "mean", "sum" or "none".

    Example:
        >>> F.l1_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]), reduction="sum")
        tensor(3.)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    _warn_if_broadcast("l1_loss", input, target)
    if weight is not None:
        return _weighted(C.l1_loss(input, target, "none"), weight, reduction)
    return C.l1_loss(input, target, reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """(x - y)²/2 where |x - y| ≤ delta, else delta·(|x - y| - delta/2). See `HuberLoss`.

    Example:
        >>> F.huber_loss(torch.tensor([1.0, 3.0]), torch.zeros(2), reduction="none")
        tensor([0.5000, 2.5000])
    """
    if delta <= 0:
        raise ArgumentError("huber_loss does not support non-positive values for delta.", got=str(delta))
    _warn_if_broadcast("huber_loss", input, target)
    reduction = checked_reduction(reduction)
    if weight is not None:
        return _weighted(C.huber_loss(input, target, "none", delta), weight, reduction)
    return C.huber_loss(input, target, reduction, delta)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """(x - y)²/(2·beta) where |x - y| < beta, else |x - y| - beta/2. See `SmoothL1Loss`.

    Example:
        >>> F.smooth_l1_loss(torch.tensor([0.5, 3.0]), torch.zeros(2), reduction="none")
        tensor([0.1250, 2.5000])
    """
    if beta < 0:
        raise ArgumentError("smooth_l1_loss does not support negative values for beta.", got=str(beta))
    _warn_if_broadcast("smooth_l1_loss", input, target)
    return C.smooth_l1_loss(input, target, checked_reduction(reduction, size_average, reduce), beta)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(x)[y], for scores x: f[N, C, ...] (or f[C]); y: i64[N, ...] classes, or f[N, C, ...] probabilities.

    Args:
        weight: f[C], a factor a class
        ignore_index: a class whose elements count for nothing
        reduction: "mean" (over the weights of the targets), "sum" or "none"
        label_smoothing: s from 0 to 1; the target is (1-s) of the class and s/C of every class

    Example:
        >>> F.cross_entropy(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        tensor(0.4100)
        >>> F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, -100]), reduction="none")
        tensor([1.0986, 0.0000])
    """
    return C.cross_entropy(
        input,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=checked_reduction(reduction, size_average, reduce),
        label_smoothing=label_smoothing,
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-x[y], for log probabilities x: f[N, C, ...] and classes y: i64[N, ...]. Arguments as in `cross_entropy`.

    Example:
        >>> F.nll_loss(F.log_softmax(torch.zeros(1, 2), dim=1), torch.tensor([1]))
        tensor(0.6931)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    return C.nll_loss(input, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def _same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ShapeError(
            f"{name}: target size must be the same as input size", expected=str(input.shape), got=str(target.shape)
        )


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(y·log x + (1-y)·log(1-x)), for probabilities x; logarithms are clamped at -100, as in torch.

    Raises ShapeError unless x and y have one shape. weight is broadcast to x.

    Example:
        >>> F.binary_cross_entropy(torch.tensor([0.5]), torch.tensor([1.0]))
        tensor(0.6931)
    """
    _same_shape("binary_cross_entropy", input, target)
    return C.binary_cross_entropy(input, target, weight, checked_reduction(reduction, size_average, reduce))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(x), stable. pos_weight: factor of the positive term, a class.

    Example:
        >>> F.binary_cross_entropy_with_logits(torch.tensor([0.0, 200.0]), torch.tensor([1.0, 0.0]), reduction="none")
        tensor([  0.6931, 200.0000])
    """
    _same_shape("binary_cross_entropy_with_logits", input, target)
    reduction = checked_reduction(reduction, size_average, reduce)
    return C.binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """y·(log y - x), for log probabilities x; "batchmean" divides the sum by the batch size. log_target: y is log y.

    Example:
        >>> x, y = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]])
        >>> F.kl_div(x, y, reduction="batchmean")
        tensor(0.1308)
    """
    reduction = reduction if reduction == "batchmean" else checked_reduction(reduction, size_average, reduce)
    return C.kl_div(input, target, reduction, log_target)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x₁·x₂ / max(‖x₁‖, eps) / max(‖x₂‖, eps) along dim.

    Example:
        >>> F.cosine_similarity(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]), dim=0)
        tensor(0.7071)
    """
    return C.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """‖x₁ - x₂ + eps‖ₚ over the last dimension.

    Example:
        >>> F.pairwise_distance(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]))
        tensor([5.])
    """
    return C.norm(x1 - x2 + eps, p, -1, keepdim)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: object = None,
) -> Tensor:
    """cross_entropy(linear(x, W, b), y) for x: f[N, in] (or f[in]), W: f[C, *out, in], b: f[C, *out], y: i64[N, *out].

    options: torch's, which say how to cut the work into chunks, are taken and make no difference.

    Example:
        >>> F.linear_cross_entropy(torch.ones(1, 2), torch.zeros(3, 2), torch.tensor([0]))
        tensor(1.0986)
    """
    if not 1 <= input.dim() <= 2 or linear_weight.dim() < 2 or input.shape[-1] != linear_weight.shape[-1]:
        got = f"{tuple(input.shape)} and {tuple(linear_weight.shape)}"
        raise ShapeError("linear_cross_entropy: input and weight do not fit", expected="(N, in), (C, *, in)", got=got)
    per_row = tuple(linear_weight.shape[:-1])
    if len(per_row) > 1 and input.dim() == 1:
        raise ShapeError("a loss of several dimensions needs a batch", expected="(N, in)", got=str(tuple(input.shape)))
    if target.dtype.is_floating_point and ignore_index is not None:
        raise ArgumentError("ignore_index cannot be specified when target contains probabilities")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = C.linear(input, linear_weight.reshape(-1, input.shape[-1]), bias)
    return cross_entropy(
        logits.reshape(*input.shape[:-1], *per_row),
        target,
        weight=weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
