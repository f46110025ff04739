"""Distances and similarities of vectors as modules: CosineSimilarity, PairwiseDistance.

In: two values of one shape. Out: one number for each pair of vectors along a dimension.
"""

from __future__ import annotations

from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.module import Module


class PairwiseDistance(Module):
    """‖x₁ - x₂ + eps‖ₚ over the last dimension."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """x₁·x₂ / max(‖x₁‖, eps) / max(‖x₂‖, eps) along dim."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
