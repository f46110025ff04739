"""Losses on pairs, triplets and margins, and likelihoods of counts and Gaussians; torch's signatures and numbers.

In: predictions and targets. Out: a scalar (reduction "mean" or "sum") or a loss an element, row or pair ("none").
Classes are compared with an iota or gathered; nothing reads data, so all of it compiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler_core.errors import ShapeError
from compiler_core.ops import functional as C
from compiler_core.ops import prims
from compiler_core.ops.casting import in_float32
from compiler_core.ops.refusals import need_floating, need_kind
from compiler_core.tensor.making.creation import arange
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.functional.losses import checked_reduction, pairwise_distance

Distance = Callable[[Tensor, Tensor], Tensor]


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


@in_float32
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where y is 1, max(0, cos - margin) where it is -1; x: f[N, D] (or f[D]), y: [N] (or []).

    Example:
        >>> F.cosine_embedding_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
        tensor(1.)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    if input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        got = f"{tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(target.shape)}"
        raise ShapeError("cosine_embedding_loss: inputs have one dimension more than the target", got=got)
    squares = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    apart = (cosine - margin).clamp(min=0)
    return _reduced(C.where(target == 1, 1 - cosine, C.where(target == -1, apart, 0.0 * cosine)), reduction)


@in_float32
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """x where y is 1, max(0, margin - x) where it is -1.

    Example:
        >>> F.hinge_embedding_loss(torch.tensor([0.5, 0.5]), torch.tensor([1.0, -1.0]), reduction="none")
        tensor([0.5000, 0.5000])
    """
    need_kind("hinge_embedding_loss", "f", input)
    reduction = checked_reduction(reduction, size_average, reduce)
    near = C.where(target != -1, input, 0.0)
    return _reduced(near + C.where(target != 1, (margin - input).clamp(min=0), 0.0), reduction)


@in_float32
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -y·(x₁ - x₂) + margin).

    Example:
        >>> F.margin_ranking_loss(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]))
        tensor(2.)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        got = f"{tuple(input1.shape)}, {tuple(input2.shape)} and {tuple(target.shape)}"
        raise ShapeError("margin_ranking_loss : All input tensors should have same dimension", got=got)
    return _reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@in_float32
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-y·x)), for y of 1 and -1; without overflow.

    Example:
        >>> F.soft_margin_loss(torch.tensor([0.0]), torch.tensor([1.0]))
        tensor(0.6931)
    """
    need_floating("soft_margin_loss", input)
    return _reduced(-C.logsigmoid(input * target.to(input.dtype)), checked_reduction(reduction, size_average, reduce))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of binary cross entropies of sigmoid(x): f[..., C] -> f[...].

    Example:
        >>> F.multilabel_soft_margin_loss(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    loss = -(target * C.logsigmoid(input) + (1 - target) * C.logsigmoid(-input))
    loss = loss if weight is None else loss * weight
    return _reduced(loss.sum(-1) / input.shape[-1], reduction)


@in_float32
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Σ_{j≠y} weight[y]·max(0, margin - x[y] + x[j])ᵖ / C, for x: f[N, C] (or f[C]) and classes y: i64[N] (or []).

    Example:
        >>> F.multi_margin_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
        tensor(1.)
    """
    need_kind("multi_margin_loss", "f", input)
    reduction = checked_reduction(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ArgumentError("only p == 1 and p == 2 supported", got=str(p))
    if weight is not None and weight.dim() != 1:
        raise ArgumentError("weight must be one-dimensional", got=f"{weight.dim()}-d")
    scores, classes = (input, target) if input.dim() == 2 else (input.reshape(1, -1), target.reshape(1))
    if scores.dim() != 2 or tuple(classes.shape) != (scores.shape[0],):
        got = f"{tuple(input.shape)} and {tuple(target.shape)}"
        raise ShapeError("multi_margin_loss: targets do not fit the scores", expected="(N, C) and (N)", got=got)
    chosen = C.gather(scores, 1, classes.unsqueeze(1))
    loss = C.relu(margin - chosen + scores)  # whose slope is 0 at the margin
    loss = loss if p == 1 else loss * loss
    loss = loss if weight is None else loss * C.index_select(weight, 0, classes).unsqueeze(1)
    others = arange(scores.shape[1], device=scores.device).unsqueeze(0) != classes.unsqueeze(1)
    loss = C.where(others, loss, 0.0).sum(1) / scores.shape[1]
    return _reduced(loss if input.dim() == 2 else loss[0], reduction)


@in_float32
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Σ_{j in y, i not in y} max(0, 1 - x[j] + x[i]) / C; x: f[N, C] (or f[C]), y: i64 alike, up to the first -1.

    Example:
        >>> F.multilabel_margin_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[0, -1]]))
        tensor(1.)
    """
    need_kind("multilabel_margin_loss", "f", input)
    reduction = checked_reduction(reduction, size_average, reduce)
    if input.shape[-1:] == (0,):
        raise ShapeError("Expected non-empty vector or matrix with optional 0-dim batch size", got=str(input.shape))
    if tuple(input.shape) != tuple(target.shape) or input.dim() > 2:
        raise ShapeError(
            "multilabel_margin_loss: inconsistent target size", expected=str(input.shape), got=str(target.shape)
        )
    scores, classes = (input, target) if input.dim() == 2 else (input.reshape(1, -1), target.reshape(1, -1))
    count = scores.shape[1]
    counts = (classes < 0).to(classes.dtype).cumsum(1) == 0  # (N, C): before the first -1
    place = C.where(counts, classes, 0)
    matches = (place.unsqueeze(2) == arange(count, device=place.device)) & counts.unsqueeze(
        2
    )  # (N, j, i): label j is class i
    distance = C.relu(1 - C.gather(scores, 1, place).unsqueeze(2) + scores.unsqueeze(1))
    pairs = counts.unsqueeze(2) & matches.any(1, keepdim=True).logical_not()
    loss = C.where(pairs, distance, 0.0).sum((1, 2)) / count
    return _reduced(loss if input.dim() == 2 else loss[0], reduction)


@in_float32
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(x) - y·x, or x - y·log(x + eps) without log_input; full: plus Stirling's log y! where y > 1.

    Example:
        >>> F.poisson_nll_loss(torch.tensor([0.0]), torch.tensor([2.0]))
        tensor(1.)
    """
    reduction = checked_reduction(reduction, size_average, reduce)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        safe = C.where(target > 1, target, 1.0)
        stirling = safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log()
        loss = loss + C.where(target > 1, stirling, 0.0)
    return _reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log v + (x - y)²/v)/2, v = max(var, eps), whose gradient ignores the maximum; full: plus log(2π)/2.

    var: as input, or 1 in (or without) the last dimension. Raises: DomainError if an element of it is negative.

    Example:
        >>> F.gaussian_nll_loss(torch.tensor([1.0]), torch.tensor([3.0]), var=torch.tensor([1.0]))
        tensor(2.)
    """
    need_kind("gaussian_nll_loss", "f", input)
    reduction = checked_reduction(reduction)
    variance = (
        input.new_full(tuple(input.shape), var) if isinstance(var, (int, float)) else _fitting_variance(var, input)
    )
    variance = prims.require(variance, variance < 0, "value", "var has negative entry/entries")
    variance = variance + (variance.clamp(min=eps) - variance).detach()
    loss = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    return _reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def _fitting_variance(var: Tensor, input: Tensor) -> Tensor:
    shape, own = tuple(input.shape), tuple(var.shape)
    if own == shape[:-1] and own != shape:
        return var.unsqueeze(-1)
    if own == shape or (len(own) == len(shape) and sum(n for m, n in zip(shape, own, strict=True) if m != n) == 1):
        return var
    raise ArgumentError("var is of incorrect size", expected=f"{shape}, or 1 in one dimension", got=str(own))


@in_float32
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + d(a, p) - d(a, n)) with d the p-norm of the difference; swap: d(p, n) where that is less.

    Example:
        >>> F.triplet_margin_loss(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[2.0, 0.0]]))
        tensor(0.4142)
    """

    def distance(x: Tensor, y: Tensor) -> Tensor:
        return pairwise_distance(x, y, p, eps)

    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=distance,
        margin=margin,
        swap=swap,
        reduction=checked_reduction(reduction, size_average, reduce),
    )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Distance | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance (pairwise_distance unless given).

    Example:
        >>> F.triplet_margin_with_distance_loss(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[2.0, 0.0]]))
        tensor(0.4142)
    """
    reduction = checked_reduction(reduction)
    if margin <= 0:
        raise ArgumentError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        got = f"anchor {anchor.dim()}D, positive {positive.dim()}D, negative {negative.dim()}D"
        raise ShapeError("the anchor, positive, and negative tensors have the same number of dimensions", got=got)
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = C.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp(min=0), reduction)
