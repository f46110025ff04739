"""Distances and similarities of vectors as modules: CosineSimilarity, PairwiseDistance.

In: two values of one shape. Out: one number for each pair of vectors along a dimension.
"""

from __future__ import annotations

from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.module import Module


class PairwiseDistance(Module):
    """The distance of two vectors, ‖x₁ - x₂ + eps‖ₚ over the last dimension; keepdim: which stays, with size 1.

    Example:
        >>> nn.PairwiseDistance()(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
        tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between two vectors, x₁·x₂ / (max(‖x₁‖, eps) · max(‖x₂‖, eps)) along dim.

    Example:
        >>> nn.CosineSimilarity()(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
