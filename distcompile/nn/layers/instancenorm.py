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


class _InstanceNorm(_NormBase):
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


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample over its positions: y = (x - mean) / √(var + eps) · weight + bias.

    Args: those of `BatchNorm1d`, but affine and track_running_stats are False unless asked for. With
    track_running_stats evaluation uses the running statistics. Source: Ulyanov et al. 2016.

    Shape: f[N, C, L] or f[C, L] -> the same.

    Example:
        >>> nn.InstanceNorm1d(1)(torch.tensor([[[1.0, 3.0]], [[10.0, 30.0]]]))
        tensor([[[-1.0000,  1.0000]],
        <BLANKLINE>
                [[-1.0000,  1.0000]]])
    """

    _rank = 1


class InstanceNorm2d(_InstanceNorm):
    """`InstanceNorm1d` of images, with its arguments.

    Shape: f[N, C, H, W] or f[C, H, W] -> the same.

    Example:
        >>> nn.InstanceNorm2d(3, affine=True)(torch.ones(2, 3, 4, 4)).shape
        (2, 3, 4, 4)
    """

    _rank = 2


class InstanceNorm3d(_InstanceNorm):
    """`InstanceNorm1d` of volumes, with its arguments.

    Shape: f[N, C, D, H, W] or f[C, D, H, W] -> the same.

    Example:
        >>> nn.InstanceNorm3d(3)(torch.ones(2, 3, 4, 4, 4)).shape
        (2, 3, 4, 4, 4)
    """

    _rank = 3
