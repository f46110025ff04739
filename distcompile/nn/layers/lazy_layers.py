"""The layers of torch that find their input's size themselves: LazyLinear, LazyConv*, LazyBatchNorm*, ...

In: a first input. Out: Linear, Conv1d, ...: what the layer becomes, with its parameters drawn then.
Input channels are dimension 1 (or 0 without a batch), features the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from compiler_core.dtype import DType, int64
from compiler_core.errors import ShapeError
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import zeros
from distcompile.nn.layers.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _NormBase
from distcompile.nn.layers.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    PaddingMode,
    _ConvNd,
)
from distcompile.nn.layers.families import documented
from distcompile.nn.layers.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from distcompile.nn.layers.linear import Linear
from distcompile.nn.lazy import LazyModuleMixin, UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin
from distcompile.nn.module import Module

Ints = int | Sequence[int]
Layer = TypeVar("Layer", bound=type[Module])


def becomes(known: type[Module]) -> Callable[[Layer], Layer]:
    """Makes a class the lazy layer of its family, its first base, that is a `known` after a first call."""

    def make(layer: Layer) -> Layer:
        layer.cls_to_become = known  # type: ignore[attr-defined]  # LazyModuleMixin's
        return documented(layer, known._rank, known=known.__name__)  # type: ignore[attr-defined]

    return make


def _materialize(tensor: object, shape: Sequence[int]) -> None:
    if isinstance(tensor, UninitializedTensorMixin):
        tensor.materialize(shape)


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` without in_features: it is the last size of the first input. Then the layer is a `Linear`.

    Until then the weights have no shape, so make the optimizer after a first call.

    Example:
        >>> layer = nn.LazyLinear(2)
        >>> layer(torch.ones(5, 3)).shape
        (5, 2)
        >>> type(layer).__name__
        'Linear'
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, once there are sizes."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Sizes from an input f[..., in_features]."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            _materialize(self.weight, (self.out_features, self.in_features))
            _materialize(self.bias, (self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:  # its parameters came from a state dict
            self.in_features = self.weight.shape[-1]


class _LazyConv(LazyModuleMixin, _ConvNd):
    """What the lazy convolutions share."""

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, once there are sizes."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Sizes from an input f[N, C, ...] or f[C, ...]. Raises ShapeError for another number of dims."""
        if not self.has_uninitialized_params():
            return
        dims = input.dim()
        if dims not in (self._rank + 1, self._rank + 2):
            raise ShapeError(f"Expected {self._rank + 1}D (unbatched) or {self._rank + 2}D (batched) input to "
                             f"{type(self).__name__}, but got input of size: {tuple(input.shape)}")  # fmt: skip
        self.in_channels = input.shape[1] if dims == self._rank + 2 else input.shape[0]
        if self.in_channels % self.groups:
            raise ShapeError("in_channels must be divisible by groups", got=f"{self.in_channels}, {self.groups}")
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        _materialize(self.weight, (first, second // self.groups, *self.kernel_size))
        _materialize(self.bias, (self.out_channels,))
        self.reset_parameters()

    def _forget_sizes(self, out_channels: int, bias: bool, device: DeviceLike, dtype: DType | None) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)


class _LazyForwardConv(_LazyConv):
    """`{known}` without in_channels: they are those of the first input. Then the layer is a `{known}`.

    Example:
        >>> layer = nn.{name}(4, kernel_size=3)
        >>> layer(torch.ones(2, 3, {each:8})).shape
        (2, 4, {each:6})
        >>> type(layer).__name__
        '{known}'
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: str | Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        options: tuple[Any, ...] = (stride, padding, dilation, groups, False, padding_mode, device, dtype)
        super().__init__(0, 0, kernel_size, *options)
        self._forget_sizes(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConv):
    """`{known}` without in_channels: they are those of the first input. Then the layer is a `{known}`.

    Example:
        >>> layer = nn.{name}(4, kernel_size=3)
        >>> layer(torch.ones(2, 3, {each:8})).shape
        (2, 4, {each:10})
        >>> type(layer).__name__
        '{known}'
    """

    def __init__(
        self,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int = 1,
        padding_mode: PaddingMode = "zeros",
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        options: tuple[Any, ...] = (stride, padding, output_padding, groups, False, dilation, padding_mode)
        super().__init__(0, 0, kernel_size, *options, device, dtype)
        self._forget_sizes(out_channels, bias, device, dtype)


@becomes(Conv1d)
class LazyConv1d(_LazyForwardConv, Conv1d): ...


@becomes(Conv2d)
class LazyConv2d(_LazyForwardConv, Conv2d): ...


@becomes(Conv3d)
class LazyConv3d(_LazyForwardConv, Conv3d): ...


@becomes(ConvTranspose1d)
class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d): ...


@becomes(ConvTranspose2d)
class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d): ...


@becomes(ConvTranspose3d)
class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d): ...


class _LazyNorm(LazyModuleMixin, _NormBase):
    """`{known}` without num_features: they are those of the first input. Then the layer is a `{known}`.

    Example:
        >>> layer = nn.{name}()
        >>> layer(torch.ones(2, 3, {each:8})).shape
        (2, 3, {each:8})
        >>> type(layer).__name__
        '{known}'
    """

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
        if affine and bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = zeros((), dtype=int64, device=device)

    def reset_parameters(self) -> None:
        """Weight one, bias zero, statistics reset, once there are sizes."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Sizes from an input f[N, C, ...]."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
                _materialize(tensor, (self.num_features,))
            self.reset_parameters()


@becomes(BatchNorm1d)
class LazyBatchNorm1d(_LazyNorm, BatchNorm1d): ...


@becomes(BatchNorm2d)
class LazyBatchNorm2d(_LazyNorm, BatchNorm2d): ...


@becomes(BatchNorm3d)
class LazyBatchNorm3d(_LazyNorm, BatchNorm3d): ...


@becomes(InstanceNorm1d)
class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d): ...


@becomes(InstanceNorm2d)
class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d): ...


@becomes(InstanceNorm3d)
class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d): ...
