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
    """functional.interpolate to `size`, or by `scale_factor`."""

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
        result: Tensor = F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )
        return result

    def extra_repr(self) -> str:
        how = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{how}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample by the nearest element."""

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample by bilinear weights, corners aligned."""

    def __init__(self, size: Ints | None = None, scale_factor: float | Sequence[float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(Module):
    """f[*, C*r*r, H, W] -> f[*, C, H*r, W*r]."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = F.pixel_shuffle(input, self.upscale_factor)
        return result

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """f[*, C, H*r, W*r] -> f[*, C*r*r, H, W]."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = F.pixel_unshuffle(input, self.downscale_factor)
        return result

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """f[N, C, *] with its channels taken from each of `groups` in turn."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = F.channel_shuffle(input, self.groups)
        return result

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Fold(Module):
    """Columns f[N, C*kH*kW, L] summed where they overlap: f[N, C, H, W]."""

    def __init__(
        self, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)
        return result

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """The windows of f[N, C, H, W] as columns f[N, C*kH*kW, L]."""

    def __init__(self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
        return result

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
