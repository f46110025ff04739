"""SyncBatchNorm: batch normalisation whose statistics are those of all ranks' batches together.

In: f[N, C, ...] on each rank, N may differ and be 0. Out: what BatchNorm gives on the joined batch: outputs, gradients
of the input, running statistics; gradients of weight and bias are this rank's sums, which DDP averages as any others.
Method: ranks gather count, mean and sum of squared deviations per channel, joined in float64 about the common mean
(Chan, Golub, LeVeque 1983), so that all ranks hold the same bits. The gradient is that of these formulas: in the
backward, what ranks found for these three numbers is summed over the ranks. Both are ops, in graphs too.
In evaluation, and on one rank, it is BatchNorm.
"""

from __future__ import annotations

from typing import Any

from compiler_core.dtype import DType, float32, float64
from compiler_core.errors import ShapeError
from compiler_core.ops.composites.movement import stack
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.layers.batchnorm import _BatchNorm
from distcompile.nn.module import Module


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all ranks of `process_group` (None: the default group), for f[N, C, ...].

    On one rank, and in evaluation, it is `BatchNorm1d`, whose arguments it takes. Batches may differ in size.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        >>> nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]
        SyncBatchNorm(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any | None = None,
        device: DeviceLike = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() < 2:
            raise ShapeError(f"expected at least 2D input (got {input.dim()}D input)")
        from distcompile.distributed.group import has_peers

        if (self.training or self.running_mean is None) and has_peers(self.process_group):
            return self._joined(input)
        return self._local(input)

    def _local(self, input: Tensor) -> Tensor:
        """What BatchNorm does."""
        use_batch = self.training or self.running_mean is None
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, use_batch, self._share(), self.eps
        )

    def _joined(self, input: Tensor) -> Tensor:
        """Of all ranks' batches together. Raises ShapeError where these have one value a channel."""
        from distcompile.distributed import recorded
        from distcompile.distributed.traced import key_of, ranks_of

        channels = input.shape[1]
        wide = input.float() if input.dtype.itemsize < float32.itemsize else input
        dims, along = [0, *range(2, input.dim())], (1, channels, *[1] * (input.dim() - 2))
        here = input.numel() // channels if channels else 0
        mine = wide.sum(dims, dtype=float64) / max(here, 1)  # f64[C]
        squares = (wide - mine.reshape(along).to(wide.dtype)).square().sum(dims, dtype=float64)
        rows = stack([mine * 0 + here, mine, squares])
        every = recorded.gathered(rows, key_of(self.process_group), ranks_of(self.process_group))  # f64[ranks, 3, C]
        counts, means = every[:, 0].detach(), every[:, 1]
        count = recorded.counted(counts.sum(0))
        mean = (means * counts).sum(0) / count
        deviations = (every[:, 2] + (means - mean).square() * counts).sum(0)
        self._follow(mean.detach(), (deviations / (count - 1)).detach())
        inverse = (deviations / count + self.eps).rsqrt()
        normal = (wide - mean.reshape(along).to(wide.dtype)) * inverse.reshape(along).to(wide.dtype)
        if self.weight is not None:
            normal = normal * self.weight.reshape(along).to(wide.dtype)
        if self.bias is not None:
            normal = normal + self.bias.reshape(along).to(wide.dtype)
        return normal.to(input.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics."""
        share = self._share()
        if self.training and self.running_mean is not None and self.running_var is not None:
            with no_grad():
                self.running_mean.copy_(self.running_mean * (1 - share) + mean * share)
                self.running_var.copy_(self.running_var * (1 - share) + variance * share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any | None = None) -> Module:
        """`module` with each BatchNorm in it replaced by a SyncBatchNorm that has its parameters and buffers."""
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            converted = cls._like(module, process_group)
        for name, child in module.named_children():
            replacement = cls.convert_sync_batchnorm(child, process_group)
            if replacement is not child:
                setattr(converted, name, replacement)
        return converted

    @classmethod
    def _like(cls, module: _BatchNorm, process_group: Any | None) -> SyncBatchNorm:
        made = cls(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group
        )
        made.weight, made.bias = module.weight, module.bias
        made.running_mean, made.running_var = module.running_mean, module.running_var
        made.num_batches_tracked = module.num_batches_tracked
        made.training = module.training
        return made
