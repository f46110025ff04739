"""AdaptiveLogSoftmaxWithLoss: log softmax over many classes, rare ones in clusters with small projections.

In: f[N, in_features] and classes i64[N] (or f[in_features] and i64[]). Out: (log p of the class f[N], mean loss).
Every cluster is computed for every row, so that nothing reads data and all of it compiles: right where the classes
matter, without the paper's saving. Source: Grave et al. 2017 (efficient softmax approximation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops import prims
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import cat, gather, where
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.layers.containers import ModuleList, Sequential
from distcompile.nn.layers.linear import Linear
from distcompile.nn.module import Module


class ASMOutput(NamedTuple):
    """output: log p of each target; loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A log softmax over many classes: frequent ones in a head, rare ones in clusters with small projections.

    Every cluster is computed for every row, so the saving of time of the paper is not had. Source: Grave et al. 2017.

    Args:
        in_features: width of the input
        n_classes: how many classes, sorted by frequency, the most frequent first
        cutoffs: where clusters begin, increasing, from 1 to n_classes - 1
        div_value: cluster i has in_features/div_valueⁱ features
        head_bias: whether the head has a bias

    Shape: f[N, in_features] and i64[N], or without N -> (output: log p of each target, f[N]; loss: minus their mean).

    Example:
        >>> softmax = nn.AdaptiveLogSoftmaxWithLoss(8, 100, cutoffs=[10, 50])
        >>> result = softmax(torch.randn(4, 8), torch.tensor([0, 20, 60, 99]))
        >>> result.output.shape, softmax.log_prob(torch.randn(4, 8)).shape
        ((4,), (4, 100))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        fits = bool(cutoffs) and cutoffs == sorted(set(cutoffs)) and cutoffs[0] > 0 and cutoffs[-1] < n_classes
        if not fits or any(int(c) != c for c in cutoffs):
            raise ArgumentError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1",
                got=str(cutoffs),
            )
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs, self.head_bias = [*cutoffs, n_classes], head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            width = int(in_features // div_value ** (i + 1))
            down = Linear(in_features, width, bias=False, device=device, dtype=dtype)
            self.tail.append(Sequential(down, Linear(width, high - low, bias=False, device=device, dtype=dtype)))

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for module in self.tail.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> ASMOutput:
        if target_.dim() > 1 or input_.dim() != target_.dim() + 1 or input_.shape[:-1] != target_.shape:
            got = f"{tuple(input_.shape)} and {tuple(target_.shape)}"
            raise ShapeError("input and target do not fit", expected="(N, in_features) and (N), or without N", got=got)
        rows = self.log_prob(input_ if target_.dim() else input_.unsqueeze(0))
        target: Tensor = prims.check_index(target_.reshape(-1), self.n_classes)
        output: Tensor = gather(rows, 1, target.unsqueeze(1))[:, 0]
        return ASMOutput(output if target_.dim() else output[0], (-output).mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """log p of every class: f[N, in_features] -> f[N, n_classes]."""
        return self._log_prob(input, self.head(input))

    def _log_prob(self, input: Tensor, head: Tensor) -> Tensor:
        scores = F.log_softmax(head, dim=1)
        parts = [scores[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.log_softmax(cluster(input), dim=1) + scores[:, at : at + 1])
        return cat(parts, 1)  # type: ignore[no-any-return]

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class, i64[N]; a class of the shortlist wins if it beats every cluster as a whole."""
        head = self.head(input)
        best = head.argmax(1)
        return where(best < self.shortlist_size, best, self._log_prob(input, head).argmax(1))  # type: ignore[no-any-return]
