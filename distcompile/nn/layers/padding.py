"""Padding as layers: constant, zero, reflected, replicated and circular, in one to three dimensions.

In: f[N, C, ...] or f[C, ...]. Out: the same with its last one to three dimensions longer.
padding: one int for every side, or (left, right[, top, bottom[, front, back]]), last dimension first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from compiler_core.errors import ShapeError
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.module import Module

Padding = int | Sequence[int]


class _Pad(Module):
    spatial: ClassVar[int] = 0
    mode: ClassVar[str] = ""

    def __init__(self, padding: Padding) -> None:
        super().__init__()
        sides = 2 * self.spatial
        self.padding = (padding,) * sides if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != sides:
            raise ArgumentError(f"{type(self).__name__}: padding is an int or {sides} of them", got=str(padding))

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ConstantPad(_Pad):
    def __init__(self, padding: Padding, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Padding) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self.spatial + 1, self.spatial + 2):
            raise ShapeError(f"expected {self.spatial + 1}D or {self.spatial + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class ConstantPad1d(_ConstantPad):
    """`value` around the last dimension."""

    spatial = 1


class ConstantPad2d(_ConstantPad):
    """`value` around the last two dimensions."""

    spatial = 2


class ConstantPad3d(_ConstantPad):
    """`value` around the last three dimensions."""

    spatial = 3


class ZeroPad1d(_ZeroPad):
    """Zeros around the last dimension."""

    spatial = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around the last two dimensions."""

    spatial = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around the last three dimensions."""

    spatial = 3


class ReflectionPad1d(_Pad):
    """The last dimension mirrored at its ends, which are not repeated."""

    spatial, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two dimensions mirrored at their ends, which are not repeated."""

    spatial, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The last three dimensions mirrored at their ends, which are not repeated."""

    spatial, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of the last dimension repeated."""

    spatial, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The ends of the last two dimensions repeated."""

    spatial, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The ends of the last three dimensions repeated."""

    spatial, mode = 3, "replicate"


class CircularPad1d(_CircularPad):
    """The last dimension continued from its other end."""

    spatial = 1


class CircularPad2d(_CircularPad):
    """The last two dimensions continued from their other ends."""

    spatial = 2


class CircularPad3d(_CircularPad):
    """The last three dimensions continued from their other ends."""

    spatial = 3
