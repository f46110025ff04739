"""Losses on pairs, triplets, margins, likelihoods and label sequences: modules that call functions of `nn.functional`.

In: predictions and targets. Out: a scalar (reduction "mean" or "sum") or a loss an element, row or pair ("none").
"""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler_core.dtype import DType
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.layers.distance import PairwiseDistance
from distcompile.nn.layers.linear import Linear
from distcompile.nn.layers.loss import _Loss, _WeightedLoss


class _MarginLoss(_Loss):
    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class CosineEmbeddingLoss(_MarginLoss):
    """For pairs that belong together (y = 1) or not (y = -1): 1 - cos(x₁, x₂), or max(0, cos(x₁, x₂) - margin).

    Shape: f[N, D], f[N, D] and y[N], or without N. margin: 0 unless given; reduction as in `L1Loss`.

    Example:
        >>> a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> nn.CosineEmbeddingLoss()(a, b, torch.tensor([1]))
        tensor(1.)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_MarginLoss):
    """max(0, -y·(x₁ - x₂) + margin): x₁ should be the larger where y is 1, x₂ where it is -1.

    Args: margin, 0 unless given; reduction as in `L1Loss`.

    Example:
        >>> nn.MarginRankingLoss(reduction="none")(torch.tensor([3.0, 3.0]), torch.zeros(2), torch.tensor([1.0, -1.0]))
        tensor([0., 3.])
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """For distances x: x where y is 1, max(0, margin - x) where y is -1.

    Args: margin, 1 unless given; reduction as in `L1Loss`.

    Example:
        >>> loss = nn.HingeEmbeddingLoss(reduction="none")
        >>> loss(torch.tensor([0.25, 0.25]), torch.tensor([1.0, -1.0]))
        tensor([0.2500, 0.7500])
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-y·x)), for y of 1 and -1. reduction as in `L1Loss`.

    Example:
        >>> nn.SoftMarginLoss()(torch.zeros(2), torch.tensor([1.0, -1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Every label against every class that is none: Σ over labels j, other classes i of max(0, 1 - x[j] + x[i]) / C.

    Shape: x f[N, C] or f[C], y i64 alike: the labels, up to the first -1. reduction as in `L1Loss`.

    Example:
        >>> nn.MultiLabelMarginLoss()(torch.tensor([[0.0, 2.0, 0.5]]), torch.tensor([[1, -1, -1]]))
        tensor(0.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Several labels a row: the mean over classes of `BCEWithLogitsLoss`.

    Shape: x f[N, C] and y alike, 1 at the labels. weight: f[C]; reduction as in `L1Loss`.

    Example:
        >>> nn.MultiLabelSoftMarginLoss()(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """The hinge loss of several classes: Σ over j ≠ y of max(0, margin - x[y] + x[j])ᵖ / C.

    Args: p, 1 or 2; margin; weight f[C], a factor by the class y; reduction as in `L1Loss`.

    Shape: x f[N, C] or f[C], y i64 without C.

    Example:
        >>> nn.MultiMarginLoss()(torch.tensor([[1.0, 0.5, 0.0]]), torch.tensor([0]))
        tensor(0.1667)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ArgumentError("only p == 1 and p == 2 supported", got=str(p))
        if weight is not None and weight.dim() != 1:
            raise ArgumentError(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D")
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options = {"weight": self.weight, "reduction": self.reduction}
        return F.multi_margin_loss(input, target, self.p, self.margin, **options)  # type: ignore[arg-type]


class PoissonNLLLoss(_Loss):
    """The negative log likelihood of counts y under a Poisson distribution: exp(x) - y·x, or x - y·log(x + eps).

    Args: log_input: x is the logarithm of the rate (the first formula); full: add Stirling's approximation of log y!,
    where y > 1; eps; reduction as in `L1Loss`.

    Example:
        >>> nn.PoissonNLLLoss()(torch.tensor([0.0]), torch.tensor([2.0]))
        tensor(1.)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """The negative log likelihood of y under a normal distribution: (log v + (x - y)²/v)/2 with v = max(var, eps).

    `forward(input, target, var)`. full: add log(2π)/2; reduction as in `L1Loss`.

    Example:
        >>> nn.GaussianNLLLoss()(torch.tensor([0.0]), torch.tensor([2.0]), torch.tensor([1.0]))
        tensor(2.)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """An anchor should be nearer to a positive than to a negative: max(0, margin + ‖a - p‖ₚ - ‖a - n‖ₚ).

    Args: margin, positive; p of the norm; eps, added to each difference; swap: take ‖p - n‖ₚ where that is less than
    ‖a - n‖ₚ; reduction as in `L1Loss`.

    Shape: f[N, D] each. Source: Schroff et al. 2015; swap: Balntas et al. 2016.

    Example:
        >>> a, p, n = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.5]])
        >>> nn.TripletMarginLoss()(a, p, n)
        tensor(0.5000)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        _check_margin(type(self).__name__, margin)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance, distance_function(x₁, x₂); `PairwiseDistance` unless given.

    Example:
        >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(-1))
        >>> loss(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2))
        tensor(1.)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        _check_margin(type(self).__name__, margin)
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


def _check_margin(name: str, margin: float) -> None:
    if margin <= 0:
        raise ArgumentError(f"{name}: expected margin to be greater than 0, got {margin} instead")


class CTCLoss(_Loss):
    """Connectionist temporal classification: -log p of a sequence of labels, however it lies in the frames.

    Args:
        blank: the class that stands for no label
        reduction: "none", "sum", or "mean": each loss over the length of its target, then the mean
        zero_infinity: zero in place of an infinite loss, where a sequence cannot fit into its frames

    `forward(log_probs, targets, input_lengths, target_lengths)`. Source: Graves et al. 2006.

    Shape: log_probs f[T, N, C], targets i64[N, S] or all in a row, lengths i64[N] -> a scalar, or f[N] with "none".

    Example:
        >>> frames = torch.full((2, 1, 2), 0.5).log()
        >>> nn.CTCLoss()(frames, torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1]))
        tensor(0.2877)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """`CrossEntropyLoss` of a `Linear` layer, which it holds as `linear`: f[N, in_features] and y i64[N] -> a loss.

    Args:
        in_features, num_classes, bias: of the layer
        out_features: more dimensions of its output; y is then i64[N, *out_features]
        weight, reduction, label_smoothing: as in `CrossEntropyLoss`
        ignore_index: as there; None: no class is left out
        options: torch's, about cutting the work into chunks; it makes no difference here

    Example:
        >>> loss = nn.LinearCrossEntropyLoss(4, 10)
        >>> loss(torch.zeros(3, 4), torch.tensor([1, 2, 3])).detach()
        tensor(2.3026)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: DeviceLike = None,
        dtype: DType | None = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: object = None,
    ) -> None:
        super().__init__(weight, None, None, reduction)
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ArgumentError("weight is one number a class", expected=str((num_classes,)), got=str(weight.shape))
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        self.num_classes, self.out_features, self.options = num_classes, out_features, options
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.linear = Linear(
            in_features, math.prod(out_features, start=num_classes), bias=bias, device=device, dtype=dtype
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        rows = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*rows, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(rows),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        linear = self.linear
        return (
            f"in_features={linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
