"""Instance normalisation: InstanceNorm1d, InstanceNorm2d, InstanceNorm3d.

In: f[N, C, L], f[N, C, H, W] or f[N, C, D, H, W] (or without N). Out: the same shape, per sample and channel
normalised; with track_running_stats, evaluation uses the running statistics. Source: Ulyanov et al. 2016.
"""

from __future__ import annotations

from typing import ClassVar

from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.layers.batchnorm import _NormBase
from distcompile.nn.layers.families import of_rank


class _InstanceNorm(_NormBase):
    """Normalises each channel of each sample over its positions: y = (x - mean) / √(var + eps) · weight + bias.

    Args: those of `BatchNorm{rank}d`, but affine and track_running_stats are False unless asked for. With
    track_running_stats evaluation uses the running statistics. Source: Ulyanov et al. 2016.

    Shape: f[N, C, {n}] or f[C, {n}] -> the same.

    Example:
        >>> x = torch.tensor([[1.0, 3.0], [10.0, 30.0]]).reshape(2, 1, {rest:1, }2)
        >>> nn.{name}(1)(x).flatten()
        tensor([-1.0000,  1.0000, -1.0000,  1.0000])
    """

    _rank: ClassVar[int] = 0

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._rank + 1, self._rank + 2):
            raise ShapeError(f"expected {self._rank + 1}D or {self._rank + 2}D input (got {input.dim()}D input)")
        channels = input.shape[-1 - self._rank]
        if self.affine and channels != self.num_features:
            raise ArgumentError(f"expected input's size at dim={-1 - self._rank} to match num_features",
                                expected=str(self.num_features), got=str(channels))  # fmt: skip
        is_batched = input.dim() == self._rank + 2
        out = F.instance_norm(
            input if is_batched else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return out if is_batched else out[0]


@of_rank(1)
class InstanceNorm1d(_InstanceNorm): ...


@of_rank(2)
class InstanceNorm2d(_InstanceNorm): ...


@of_rank(3)
class InstanceNorm3d(_InstanceNorm): ...
