"""Convolution layers: Conv1d, Conv2d, Conv3d and their transposes.

In: f[N, C, *n] or f[C, *n]. Out: f[N, O, *o] or f[O, *o]; weight f[O, C/groups, *k] (transposed: f[C, O/groups, *k]),
bias f[O]. Both are drawn from U(-1/√fan_in, 1/√fan_in), as torch does. padding_mode other than "zeros" pads the input
first (functional.pad). Attributes and `state_dict` keys are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops.convolution import composite as C
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.layers.families import of_rank
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

Ints = int | Sequence[int]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share. _rank: how many spatial dims."""

    _rank: ClassVar[int] = 0
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: PaddingMode,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        _check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.transposed, self.output_padding, self.groups = transposed, output_padding, groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _margins(kernel_size, padding, dilation)
        channels = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty(*channels, *kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


def _check(
    in_channels: int,
    out_channels: int,
    stride: tuple[int, ...],
    padding: str | tuple[int, ...],
    groups: int,
    padding_mode: str,
) -> None:
    if groups <= 0:
        raise ArgumentError("groups must be a positive integer")
    if in_channels % groups:
        raise ArgumentError("in_channels must be divisible by groups")
    if out_channels % groups:
        raise ArgumentError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ArgumentError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
        if padding == "same" and any(s != 1 for s in stride):
            raise ArgumentError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _MODES:
        raise ArgumentError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")


def _margins(kernel: tuple[int, ...], padding: str | tuple[int, ...], dilation: tuple[int, ...]) -> list[int]:
    """`padding` as functional.pad takes it: (low, high) pairs from the last dim backwards."""
    if not isinstance(padding, str):
        return [p for p in reversed(padding) for _ in range(2)]
    totals = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel)]
    return [n for total in reversed(totals) for n in (total // 2, total - total // 2)]


class _Conv(_ConvNd):
    """A convolution over {kind} (a cross-correlation) plus a bias a channel, with x padded first:

        y[n, o, i] = b[o] + Σ over c, u of W[o, c, u] · x[n, c, i·stride + u·dilation]

    where i is a place among {o}, and u one among {k}. Weight f[O, C/groups, {k}] and bias f[O] are drawn from
    U(-1/√fan_in, 1/√fan_in), with fan_in the elements of W[o].

    Args:
        in_channels, out_channels: C and O
        kernel_size, stride, padding, dilation: a number, or one a dimension; padding is added on both sides
        padding: also "valid" (none) or "same" (the output is as large as the input; only with stride 1)
        groups: input and output channels are cut into so many parts, and part k sees part k alone
        bias: False leaves b out
        padding_mode: what is padded with, "zeros", "reflect", "replicate" or "circular"

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, O, {o}] or f[O, {o}], where each size of the output is
    (size + 2·padding - dilation·(kernel_size - 1) - 1) // stride + 1.

    Raises ArgumentError if groups does not divide both channel counts, or for padding="same" with a stride.

    Example:
        >>> nn.{name}(3, 8, kernel_size=3, stride=2, padding=1)(torch.ones(2, 3, {each:8})).shape
        (2, 8, {each:4})
        >>> nn.{name}(8, 8, 3, padding="same", groups=8).weight.shape
        (8, 1, {each:3})
    """

    def __init__(
        self,
        in_channels: int,
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
        rank = self._rank
        super().__init__(
            in_channels,
            out_channels,
            C.spread("kernel_size", kernel_size, rank),
            C.spread("stride", stride, rank),
            padding if isinstance(padding, str) else C.spread("padding", padding, rank),
            C.spread("dilation", dilation, rank),
            False,
            (0,) * rank,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: str | Ints = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[self._rank]
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)  # type: ignore[no-any-return]

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


@of_rank(1)
class Conv1d(_Conv): ...


@of_rank(2)
class Conv2d(_Conv): ...


@of_rank(3)
class Conv3d(_Conv): ...


class _ConvTransposeNd(_ConvNd):
    """The transpose of `Conv{rank}d` as a linear map (what its gradient computes), plus a bias: it enlarges {kind}.

    Weight f[C, O/groups, {k}], bias f[O], drawn as Conv{rank}d's are.

    Args:
        in_channels, out_channels, kernel_size, dilation, groups, bias: as in `Conv{rank}d`
        stride: how far apart in the output neighbours of the input come to lie
        padding: how much is cut off the output on both sides
        output_padding: how much is added to the output at the end of each dimension; less than stride or dilation
        padding_mode: only "zeros"

    `forward(input, output_size=None)`: output_size asks for one of the sizes from which Conv{rank}d leads to the
    input's, and computes output_padding.

    Shape: f[N, C, {n}] or f[C, {n}] -> f[N, O, {o}] or f[O, {o}], where each size of the output is
    (size - 1)·stride - 2·padding + dilation·(kernel_size - 1) + output_padding + 1.

    Example:
        >>> up = nn.{name}(8, 3, kernel_size=3, stride=2, padding=1)
        >>> up(torch.ones(2, 8, {each:4})).shape
        (2, 3, {each:7})
        >>> up(torch.ones(2, 8, {each:4}), output_size=[{each:8}]).shape
        (2, 3, {each:8})
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: PaddingMode = "zeros",
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ArgumentError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        rank = self._rank
        super().__init__(
            in_channels,
            out_channels,
            C.spread("kernel_size", kernel_size, rank),
            C.spread("stride", stride, rank),
            C.spread("padding", padding, rank),
            C.spread("dilation", dilation, rank),
            True,
            C.spread("output_padding", output_padding, rank),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._output_padding(input, output_size)
        convolve = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[self._rank]
        assert not isinstance(self.padding, str)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)  # type: ignore[no-any-return]

    def _output_padding(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """What makes the output `output_size`. Raises ShapeError where no output padding does."""
        assert not isinstance(self.padding, str)
        wanted = list(output_size)
        if len(wanted) not in (self._rank, input.dim()):
            raise ShapeError(f"{type(self).__name__}: output_size must have {self._rank} or {input.dim()} elements")
        sizes = input.shape[input.dim() - self._rank :]
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(sizes, self.stride, self.padding, self.dilation, self.kernel_size)
        ]
        extra = tuple(n - m for n, m in zip(wanted[-self._rank :], least))
        if any(not 0 <= e < s for e, s in zip(extra, self.stride)):
            expected = f"from {least} to less than a stride more"
            raise ShapeError("requested an output size that cannot be had", expected=expected, got=str(wanted))
        return extra


@of_rank(1)
class ConvTranspose1d(_ConvTransposeNd): ...


@of_rank(2)
class ConvTranspose2d(_ConvTransposeNd): ...


@of_rank(3)
class ConvTranspose3d(_ConvTransposeNd): ...
