"""Pooling layers: maximum, average, LP, adaptive; and MaxUnpool, which undoes the first.

In: f[N, C, *n] or f[C, *n]. Out: f[..., *o]. No parameters. Arguments, defaults and printed forms are torch's; the
arithmetic is in compiler_core/ops/pooling/composite.py and pooling/adaptive.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from compiler_core.ops.convolution.composite import spread
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.module import Module

Ints = int | Sequence[int]
Sizes = int | None | Sequence[int | None]


class _Pool(Module):
    """_rank: how many spatial dims. _shown: the options that are printed."""

    _rank: ClassVar[int] = 0
    _shown: ClassVar[tuple[str, ...]] = ("kernel_size", "stride", "padding")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPoolNd(_Pool):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[self._rank]
        result: Tensor = pool(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )
        return result


class MaxPool1d(_MaxPoolNd):
    """The maximum of each window of f[N, C, L]; with return_indices, (maxima, places)."""

    _rank = 1


class MaxPool2d(_MaxPoolNd):
    """The maximum of each window of f[N, C, H, W]; with return_indices, (maxima, places)."""

    _rank = 2


class MaxPool3d(_MaxPoolNd):
    """The maximum of each window of f[N, C, D, H, W]; with return_indices, (maxima, places)."""

    _rank = 3


class _MaxUnpoolNd(_Pool):
    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()
        self.kernel_size = spread("kernel_size", kernel_size, self._rank)
        self.stride = self.kernel_size if stride is None else spread("stride", stride, self._rank)
        self.padding = spread("padding", padding, self._rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}[self._rank]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """Zeros f[N, C, L] with the input put at the places that MaxPool1d returned."""

    _rank = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Zeros f[N, C, H, W] with the input put at the places that MaxPool2d returned."""

    _rank = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Zeros f[N, C, D, H, W] with the input put at the places that MaxPool3d returned."""

    _rank = 3


class AvgPool1d(_Pool):
    """The mean of each window of f[N, C, L]."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = spread("kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else spread("stride", stride, 1)
        self.padding = spread("padding", padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )
        return result


class _AvgPoolNd(_Pool):
    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        pool = {2: F.avg_pool2d, 3: F.avg_pool3d}[self._rank]
        result: Tensor = pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )
        return result


class AvgPool2d(_AvgPoolNd):
    """The mean of each window of f[N, C, H, W]."""

    _rank = 2


class AvgPool3d(_AvgPoolNd):
    """The mean of each window of f[N, C, D, H, W]."""

    _rank = 3


class _LPPoolNd(_Pool):
    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.lp_pool1d, 2: F.lp_pool2d, 3: F.lp_pool3d}[self._rank]
        result: Tensor = pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)
        return result


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of f[N, C, L]."""

    _rank = 1


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of f[N, C, H, W]."""

    _rank = 2


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of f[N, C, D, H, W]."""

    _rank = 3


class _AdaptiveMaxPoolNd(_Pool):
    _shown = ("output_size",)

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}[self._rank]
        result: Tensor = pool(input, self.output_size, self.return_indices)
        return result


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The maxima of f[N, C, L] in output_size windows: f[N, C, output_size]."""

    _rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The maxima of f[N, C, H, W] in output_size windows a dim."""

    _rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The maxima of f[N, C, D, H, W] in output_size windows a dim."""

    _rank = 3


class _AdaptiveAvgPoolNd(_Pool):
    _shown = ("output_size",)

    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[self._rank]
        result: Tensor = pool(input, self.output_size)
        return result


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """f[N, C, L] averaged into f[N, C, output_size]."""

    _rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """f[N, C, H, W] averaged into f[N, C, *output_size]."""

    _rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """f[N, C, D, H, W] averaged into f[N, C, *output_size]."""

    _rank = 3


class _FractionalMaxPoolNd(Module):
    _rank: ClassVar[int] = 0

    def __init__(
        self,
        kernel_size: Ints,
        output_size: Ints | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        rank, name = self._rank, type(self).__name__
        self.kernel_size = spread("kernel_size", kernel_size, rank)
        if min(self.kernel_size) < 1:
            raise ArgumentError(f"kernel_size must be greater than 0, but got {kernel_size}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else spread("output_size", output_size, rank)
        self.output_ratio = (output_ratio,) * rank if isinstance(output_ratio, int | float) else output_ratio
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"{name} requires specifying either an output size, or a pooling ratio")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ArgumentError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        pool = {2: F.fractional_max_pool2d, 3: F.fractional_max_pool3d}[self._rank]
        samples = self._random_samples
        assert samples is None or isinstance(samples, Tensor)
        return pool(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The maxima of f[N, C, H, W] in windows at random distances (Graham 2014)."""

    _rank = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The maxima of f[N, C, D, H, W] in windows at random distances (Graham 2014)."""

    _rank = 3
