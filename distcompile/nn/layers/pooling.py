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
from distcompile.nn.layers.families import of_rank
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
    """The maximum of each window of {kind}. Padding counts as -inf.

    Args:
        kernel_size: size of the window, a number or one a dimension
        stride: from window to window; None: kernel_size, so that windows do not overlap
        padding: added on both sides; at most half the kernel
        dilation: distance between the elements of a window
        return_indices: also return the places of the maxima in the flattened last {dims}, for `MaxUnpool{rank}d`
        ceil_mode: count a last window that begins inside but ends outside

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, C, {o}] or f[C, {o}], where each size of the output is
    (size + 2·padding - dilation·(kernel_size - 1) - 1) // stride + 1, rounded up with ceil_mode.

    Example:
        >>> x = torch.tensor([1.0, 5.0, 2.0, 3.0]).reshape(1, {rest:1, }4)
        >>> maxima, places = nn.{name}({row:2}, stride=1, return_indices=True)(x)
        >>> maxima.flatten(), places.flatten()
        (tensor([5., 5., 3.]), tensor([1, 1, 3]))
        >>> nn.{name}(2)(torch.ones(1, 3, {each:8})).shape
        (1, 3, {each:4})
    """

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
        return pool(  # type: ignore[no-any-return]
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


@of_rank(1)
class MaxPool1d(_MaxPoolNd): ...


@of_rank(2)
class MaxPool2d(_MaxPoolNd): ...


@of_rank(3)
class MaxPool3d(_MaxPoolNd): ...


class _MaxUnpoolNd(_Pool):
    """`MaxPool{rank}d` undone as far as that goes: zeros, with the input put at the places of the maxima.

    Args: kernel_size, stride and padding of the pooling.

    `forward(input, indices, output_size=None)`: indices as the pooling returned them. output_size: the size before
    pooling, where several lead to the same; unless given each is (size - 1)·stride - 2·padding + kernel_size.

    Shape: f[N, C, {o}] or f[C, {o}] -> f[N, C, {n}] or f[C, {n}].

    Example:
        >>> x = torch.tensor([1.0, 2.0, 4.0, 3.0]).reshape(1, {rest:1, }4)
        >>> maxima, places = nn.MaxPool{rank}d({row:2}, return_indices=True)(x)
        >>> nn.{name}({row:2})(maxima, places).flatten()
        tensor([0., 2., 4., 0.])
    """

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        super().__init__()
        self.kernel_size = spread("kernel_size", kernel_size, self._rank)
        self.stride = self.kernel_size if stride is None else spread("stride", stride, self._rank)
        self.padding = spread("padding", padding, self._rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        unpool = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}[self._rank]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)


@of_rank(1)
class MaxUnpool1d(_MaxUnpoolNd): ...


@of_rank(2)
class MaxUnpool2d(_MaxUnpoolNd): ...


@of_rank(3)
class MaxUnpool3d(_MaxUnpoolNd): ...


class AvgPool1d(_Pool):
    """`AvgPool2d` with one dimension, and its arguments but divisor_override: f[N, C, L] or f[C, L] -> f[N, C, o].

    Example:
        >>> nn.AvgPool1d(2, padding=1)(torch.tensor([[1.0, 3.0, 5.0, 7.0]]))
        tensor([[0.5000, 4.0000, 3.5000]])
    """

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
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)  # type: ignore[no-any-return]


class _AvgPoolNd(_Pool):
    """The mean of each window of {kind}.

    Args:
        kernel_size, stride, padding, ceil_mode: as in `MaxPool{rank}d`
        count_include_pad: zeros of the padding count as elements; False: the mean is of what is there
        divisor_override: divide the sum by this number instead

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, C, {o}] or f[C, {o}], sizes as in `MaxPool{rank}d`.

    Example:
        >>> nn.{name}({row:2})(torch.tensor([1.0, 3.0, 5.0, 9.0]).reshape(1, {rest:1, }4)).flatten()
        tensor([2., 7.])
        >>> nn.{name}(2)(torch.ones(1, 3, {each:8})).shape
        (1, 3, {each:4})
    """

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
        return pool(  # type: ignore[no-any-return]
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


@of_rank(2)
class AvgPool2d(_AvgPoolNd): ...


@of_rank(3)
class AvgPool3d(_AvgPoolNd): ...


class _LPPoolNd(_Pool):
    """The p-norm of each window of {kind}, (Σ xᵖ)^(1/p).

    Args: norm_type is p; kernel_size, stride and ceil_mode as in `MaxPool{rank}d`.

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, C, {o}] or f[C, {o}], sizes as in `MaxPool{rank}d`.

    Example:
        >>> nn.{name}(2, {row:2})(torch.tensor([3.0, 4.0, 5.0, 12.0]).reshape(1, {rest:1, }4)).flatten()
        tensor([ 5., 13.])
    """

    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.lp_pool1d, 2: F.lp_pool2d, 3: F.lp_pool3d}[self._rank]
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)  # type: ignore[no-any-return]


@of_rank(1)
class LPPool1d(_LPPoolNd): ...


@of_rank(2)
class LPPool2d(_LPPoolNd): ...


@of_rank(3)
class LPPool3d(_LPPoolNd): ...


class _AdaptiveMaxPoolNd(_Pool):
    """The maxima of {kind} in a grid of output_size windows, which lie as in `AdaptiveAvgPool{rank}d`.

    Args: output_size as there; return_indices: also the places of the maxima in the flattened last {dims}.

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, C, {o}] or f[C, {o}].

    Example:
        >>> nn.{name}({row:2})(torch.tensor([1.0, 2.0, 3.0]).reshape(1, {rest:1, }3)).flatten()
        tensor([2., 3.])
        >>> nn.{name}(2)(torch.ones(1, 3, {each:5})).shape
        (1, 3, {each:2})
    """

    _shown = ("output_size",)

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}[self._rank]
        return pool(input, self.output_size, self.return_indices)  # type: ignore[no-any-return]


@of_rank(1)
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd): ...


@of_rank(2)
class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd): ...


@of_rank(3)
class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd): ...


class _AdaptiveAvgPoolNd(_Pool):
    """The means of {kind} in a grid of output_size windows, whatever their size.

    Window k of o along a dimension of size n is from ⌊k·n/o⌋ to before ⌈(k+1)·n/o⌉.

    Args: output_size is ({o}), or a number for all; None keeps a dimension.

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, C, {o}] or f[C, {o}].

    Example:
        >>> nn.{name}({row:2})(torch.tensor([1.0, 2.0, 3.0]).reshape(1, {rest:1, }3)).flatten()
        tensor([1.5000, 2.5000])
        >>> nn.{name}(2)(torch.ones(1, 3, {each:5})).shape
        (1, 3, {each:2})
    """

    _shown = ("output_size",)

    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        pool = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[self._rank]
        return pool(input, self.output_size)  # type: ignore[no-any-return]


@of_rank(1)
class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd): ...


@of_rank(2)
class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd): ...


@of_rank(3)
class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd): ...


class _FractionalMaxPoolNd(Module):
    """The maxima of {kind} in windows at random distances, so that a size shrinks by any factor. Source: Graham 2014.

    Args:
        kernel_size: size of the windows
        output_size, output_ratio: sizes of the output, or factors between 0 and 1; exactly one of the two
        return_indices: also the places of the maxima in the flattened last {dims}

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, C, {o}] or f[C, {o}].

    Example:
        >>> nn.{name}(2, output_ratio=0.7)(torch.ones(1, 3, {each:10})).shape
        (1, 3, {each:7})
    """

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


@of_rank(2)
class FractionalMaxPool2d(_FractionalMaxPoolNd): ...


@of_rank(3)
class FractionalMaxPool3d(_FractionalMaxPoolNd): ...
