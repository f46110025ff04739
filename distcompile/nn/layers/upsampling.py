"""Layers that resize or rearrange: Upsample and its kin, PixelShuffle, PixelUnshuffle, ChannelShuffle, Fold, Unfold.

In: f[N, C, *n]. Out: f[N, C', *o]. No parameters; arguments, defaults and printed forms are torch's.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.tensor.tensor import Tensor
from distcompile.nn import functional as F
from distcompile.nn.module import Module

Ints = int | Sequence[int]


class Upsample(Module):
    """Resizes f[N, C, *n] along its spatial dimensions, to `size` or by `scale_factor`.

    Args:
        size, scale_factor: a number or one a dimension; exactly one of the two
        mode: "nearest", "nearest-exact", "linear" (1-d), "bilinear" and "bicubic" (2-d), "trilinear" (3-d), "area"
        align_corners: the middles of the outer elements stay where they are, else the edges; for linear and cubic modes
        recompute_scale_factor: compute with the factor that the rounded size has

    Example:
        >>> nn.Upsample(scale_factor=2)(torch.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.]]])
        >>> nn.Upsample(size=3, mode="linear", align_corners=True)(torch.tensor([[[1.0, 2.0]]]))
        tensor([[[1.0000, 1.5000, 2.0000]]])
    """

    def __init__(
        self,
        size: Ints | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.mode, self.align_corners = size, mode, align_corners
        many = isinstance(scale_factor, Sequence)
        self.scale_factor = (
            tuple(float(f) for f in scale_factor)  # type: ignore[union-attr]
            if many
            else float(scale_factor)  # type: ignore[arg-type]
            if scale_factor
            else None
        )
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(  # type: ignore[no-any-return]
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        how = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{how}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` of images by the nearest element.

    Example:
        >>> nn.UpsamplingNearest2d(scale_factor=2)(torch.ones(1, 3, 4, 4)).shape
        (1, 3, 8, 8)
    """

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` of images by bilinear weights, corners aligned.

    Example:
        >>> nn.UpsamplingBilinear2d(size=(1, 3))(torch.tensor([[[[1.0, 2.0]]]]))
        tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """Channels into places: f[*, C·r·r, H, W] -> f[*, C, H·r, W·r], r = upscale_factor. Source: Shi et al. 2016.

    Example:
        >>> nn.PixelShuffle(2)(torch.arange(4.0).reshape(4, 1, 1))
        tensor([[[0., 1.],
                 [2., 3.]]])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """`PixelShuffle` undone: f[*, C, H·r, W·r] -> f[*, C·r·r, H, W], r = downscale_factor.

    Example:
        >>> nn.PixelUnshuffle(2)(torch.ones(1, 3, 4, 6)).shape
        (1, 12, 2, 3)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """f[N, C, *] with its channels taken from each of `groups` in turn. Source: Zhang et al. 2017 (ShuffleNet).

    Example:
        >>> nn.ChannelShuffle(2)(torch.arange(4.0).reshape(1, 4, 1)).flatten()
        tensor([0., 2., 1., 3.])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Fold(Module):
    """Columns summed where they overlap, the transpose of `Unfold`: f[N, C·kH·kW, L] -> f[N, C, *output_size].

    Args: output_size, and those of `Unfold`. ShapeError if there are not as many columns as the output has windows.

    Example:
        >>> nn.Fold((2, 3), 2)(torch.ones(1, 4, 2))
        tensor([[[[1., 2., 1.],
                  [1., 2., 1.]]]])
    """

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """The windows of images as columns: f[N, C, H, W] -> f[N, C·kH·kW, L], with L the number of windows.

    Args: kernel_size, dilation, padding and stride as in `Conv2d`, a number or (height, width).

    Example:
        >>> nn.Unfold(2)(torch.arange(6.0).reshape(1, 1, 2, 3))
        tensor([[[0., 1.],
                 [1., 2.],
                 [3., 4.],
                 [4., 5.]]])
    """

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
