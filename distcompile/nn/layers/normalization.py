"""Normalisation layers without running statistics: LayerNorm, RMSNorm, GroupNorm, local response norms.

In: f[..., *normalized_shape]. Out: the same shape, normalised over the last dimensions (GroupNorm: channel groups).
Sources: Ba, Kiros, Hinton 2016 (LayerNorm); Zhang, Sennrich 2019 (RMSNorm); Wu, He 2018 (GroupNorm).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.dtype import DType
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty, from_numpy, matmul
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class _Affine(Module):
    """weight and bias f[*shape], of which the second or both may be left out: they are None."""

    def _make_affine(
        self, shape: Sequence[int], affine: bool, bias: bool, device: DeviceLike, dtype: DType | None
    ) -> None:
        for name, there in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(empty(*shape, device=device, dtype=dtype)) if there else None)

    def reset_parameters(self) -> None:
        """Weight one, bias zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(_Affine):
    """Normalises each sample over its last dimensions: y = (x - mean) / √(var + eps) · weight + bias.

    Mean and variance (divided by the count) are taken over the last len(normalized_shape) dimensions, in training and
    evaluation alike. Weight starts at one, bias at zero. Source: Ba, Kiros, Hinton 2016.

    Args:
        normalized_shape: sizes of the last dimensions; a number is the last one's
        eps: added to the variance
        elementwise_affine: False leaves weight and bias out; both are f[*normalized_shape]
        bias: False leaves the bias alone out

    Shape: f[..., *normalized_shape] -> the same.

    Example:
        >>> nn.LayerNorm(2)(torch.tensor([[1.0, 3.0], [10.0, 30.0]])).detach()
        tensor([[-1.0000,  1.0000],
                [-1.0000,  1.0000]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._make_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = self.elementwise_affine
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divides each sample by its root mean square: y = x / √(mean(x²) + eps) · weight, over the last dimensions.

    Args:
        normalized_shape: sizes of the last dimensions; a number is the last one's
        eps: added to the mean; None: the epsilon of the dtype
        elementwise_affine: False leaves weight f[*normalized_shape] out

    Shape: f[..., *normalized_shape] -> the same. Source: Zhang, Sennrich 2019.

    Example:
        >>> nn.RMSNorm(2)(torch.tensor([[3.0, 3.0], [0.0, 1.0]])).detach()
        tensor([[1.0000, 1.0000],
                [0.0000, 1.4142]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        affine = Parameter(empty(*self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", affine)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight one."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalises each sample over groups of channels: y = (x - mean) / √(var + eps) · weight + bias.

    Mean and variance are those of a group with all its positions; weight and bias are f[num_channels]. One group is a
    LayerNorm over channels and positions, a group a channel is an InstanceNorm. Source: Wu, He 2018.

    Args:
        num_groups: how many groups; it divides num_channels, else ArgumentError
        num_channels: C
        eps: added to the variance
        affine: False leaves weight and bias out
        bias: False leaves the bias alone out

    Shape: f[N, C, ...] -> the same.

    Example:
        >>> nn.GroupNorm(2, 4)(torch.tensor([[1.0, 3.0, 10.0, 30.0]])).detach()
        tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ArgumentError("num_channels must be divisible by num_groups", got=f"{num_channels}, {num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make_affine((num_channels,), affine, bias, device, dtype)
        self.reset_parameters()

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        bias = self.bias is not None
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={bias}"


class LocalResponseNorm(Module):
    """Divides by what the neighbouring channels hold: x / (k + alpha · mean of x² over `size` channels)^beta.

    The window is centred on the channel; outside there are zeros. Source: Krizhevsky et al. 2012, section 3.3.

    Shape: f[N, C, ...] -> the same.

    Example:
        >>> nn.LocalResponseNorm(1, alpha=1.0, beta=1.0, k=1.0)(torch.tensor([[[1.0], [2.0]]])).flatten()
        tensor([0.5000, 0.4000])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """x / (k + alpha/size · sum of x² over neighbouring channels)^beta, on f[N, C, H, W]: an older `LocalResponseNorm`.

    The neighbours are those of torch's layer: its sum runs over the channels and keeps channel 0 where the window
    should leave it behind. The gradient is that of this function (torch's own is that of the window as it should be).

    Example:
        >>> nn.CrossMapLRN2d(3)(torch.ones(1, 4, 2, 2)).shape
        (1, 4, 2, 2)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ArgumentError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        channels = input.shape[1]
        window = from_numpy(_neighbours(channels, self.size)).to(input.dtype)  # (C, C)
        sums = matmul(window, (input * input).flatten(2)).reshape(input.shape)
        return input * (sums * (self.alpha / self.size) + self.k) ** -self.beta  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _neighbours(channels: int, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """f[C, C]: which channels torch's CrossMapLRN2d adds up for each: a running sum, as it keeps one."""
    reach = int((size - 1) / 2 + 1)
    rows = np.zeros((channels, channels))
    rows[:1, :reach] = 1
    for c in range(1, channels):
        rows[c] = rows[c - 1]
        if c < channels - reach + 1:
            rows[c, c + reach - 1] += 1
        if c > reach:
            rows[c, c - reach] -= 1
    return rows
