"""Losses as modules: each calls the function of `nn.functional` of the same name.

In: predictions and targets. Out: a scalar (reduction "mean" or "sum") or a loss an element ("none").
`size_average` and `reduce` are torch's deprecated way to say `reduction`; given, they win over it.
"""

from __future__ import annotations

from compiler_core.errors import ArgumentTypeError
from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.functional.losses import checked_reduction
from distcompile.nn.module import Module


class _Loss(Module):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = checked_reduction(reduction, size_average, reduce)


class _WeightedLoss(_Loss):
    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """The absolute error, |x - y|.

    Args: reduction says what is made of the loss of each element: "mean", "sum" or "none" (as it is). It means the same
    in every loss; `size_average` and `reduce` are its deprecated forms.

    Shape: x and y alike -> a scalar, or with "none" the shape of x.

    Example:
        >>> nn.L1Loss()(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]))
        tensor(1.5000)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """The squared error, (x - y)².

    Args: reduction, "mean", "sum" or "none".

    Shape: x and y alike -> a scalar, or with "none" the shape of x. Shapes that differ are broadcast, with a warning.

    Example:
        >>> nn.MSELoss()(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]))
        tensor(4.5000)
        >>> nn.MSELoss(reduction="none")(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]))
        tensor([0., 9.])
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """The squared error where it is small, else the absolute one: (x - y)²/(2·beta) where |x - y| < beta, else
    |x - y| - beta/2. Source: Girshick 2015 (Fast R-CNN).

    Args: reduction, "mean", "sum" or "none"; beta, not negative; 0 is `L1Loss`.

    Example:
        >>> nn.SmoothL1Loss(reduction="none")(torch.tensor([0.5, 3.0]), torch.zeros(2))
        tensor([0.1250, 2.5000])
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """(x - y)²/2 where |x - y| ≤ delta, else delta·(|x - y| - delta/2).

    It is delta times `SmoothL1Loss` with beta=delta.

    Args: reduction, "mean", "sum" or "none"; delta, positive, else ArgumentError. Source: Huber 1964.

    Example:
        >>> nn.HuberLoss(reduction="none", delta=2.0)(torch.tensor([1.0, 3.0]), torch.zeros(2))
        tensor([0.5000, 4.0000])
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, (float, int)):
            raise ArgumentTypeError(f"delta must be a float or int, got: {type(delta)}")
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class CrossEntropyLoss(_WeightedLoss):
    """The cross entropy of a softmax: -log softmax(x)[y], for scores x (logits) and classes y.

    With probabilities for y it is -Σ over c of y[c] · log softmax(x)[c].

    Args:
        weight: f[C], a factor a class; the mean divides by the sum of the weights of the targets
        ignore_index: a class whose elements count for nothing, not in the mean either
        reduction: "mean", "sum" or "none"
        label_smoothing: s from 0 to 1; the target is (1-s) of the class and s/C of every class

    Shape: x f[N, C], f[N, C, d1, ...] or f[C]; y i64 without C, or f like x -> a scalar, or with "none" x without C.

    Example:
        >>> loss = nn.CrossEntropyLoss()
        >>> loss(torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1]))
        tensor(0.4100)
        >>> loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
        tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """The negative log likelihood, -x[y], for log probabilities x (of `LogSoftmax`) and classes y.

    Args: weight, ignore_index and reduction as in `CrossEntropyLoss`.

    Shape: x f[N, C], f[N, C, d1, ...] or f[C]; y i64 without C -> a scalar, or with "none" x without C.

    Example:
        >>> nn.NLLLoss()(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([1]))
        tensor(0.2877)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class BCELoss(_WeightedLoss):
    """The cross entropy of two classes, -(y·log x + (1-y)·log(1-x)), for probabilities x.

    The logarithms are clamped at -100, so that the loss stays finite.

    Args: weight, a factor that is broadcast to x; reduction, "mean", "sum" or "none". From scores take
    `BCEWithLogitsLoss`, which is exact where the sigmoid is 0 or 1.

    Shape: x and y alike, else ShapeError -> a scalar, or with "none" the shape of x.

    Example:
        >>> nn.BCELoss()(torch.tensor([0.5, 0.75]), torch.tensor([1.0, 1.0]))
        tensor(0.4904)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """`BCELoss` of sigmoid(x), computed without the sigmoid, so that large scores neither overflow nor saturate.

    Args: weight and reduction as there; pos_weight, a factor of the term y·log σ(x), broadcast to x: one a class.

    Shape: x and y alike, else ShapeError -> a scalar, or with "none" the shape of x.

    Example:
        >>> nn.BCEWithLogitsLoss()(torch.tensor([0.0, 100.0]), torch.tensor([1.0, 1.0]))
        tensor(0.3466)
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(_Loss):
    """The terms of the Kullback-Leibler divergence, y·(log y - x), for log probabilities x and probabilities y.

    Args: reduction, "mean", "sum", "none", or "batchmean": the sum over the batch size, which is the divergence;
    log_target: y is given as its logarithm.

    Example:
        >>> x, y = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]])
        >>> nn.KLDivLoss(reduction="batchmean")(x, y)
        tensor(0.1308)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, "sum" if reduction == "batchmean" else reduction)
        self.log_target = log_target
        if reduction == "batchmean":
            self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)
