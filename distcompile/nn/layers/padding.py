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
    _rank: ClassVar[int] = 0
    _mode: ClassVar[str] = ""

    def __init__(self, padding: Padding) -> None:
        super().__init__()
        sides = 2 * self._rank
        self.padding = (padding,) * sides if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != sides:
            raise ArgumentError(f"{type(self).__name__}: padding is an int or {sides} of them", got=str(padding))

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

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
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._rank + 1, self._rank + 2):
            raise ShapeError(f"expected {self._rank + 1}D or {self._rank + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class ConstantPad1d(_ConstantPad):
    """`value` around the last dimension."""

    _rank = 1


class ConstantPad2d(_ConstantPad):
    """`value` around the last two dimensions."""

    _rank = 2


class ConstantPad3d(_ConstantPad):
    """`value` around the last three dimensions."""

    _rank = 3


class ZeroPad1d(_ZeroPad):
    """Zeros around the last dimension."""

    _rank = 1


class ZeroPad2d(_ZeroPad):
    """Zeros around the last two dimensions."""

    _rank = 2


class ZeroPad3d(_ZeroPad):
    """Zeros around the last three dimensions."""

    _rank = 3


class ReflectionPad1d(_Pad):
    """The last dimension mirrored at its ends, which are not repeated."""

    _rank, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two dimensions mirrored at their ends, which are not repeated."""

    _rank, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The last three dimensions mirrored at their ends, which are not repeated."""

    _rank, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of the last dimension repeated."""

    _rank, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The ends of the last two dimensions repeated."""

    _rank, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The ends of the last three dimensions repeated."""

    _rank, _mode = 3, "replicate"


class CircularPad1d(_CircularPad):
    """The last dimension continued from its other end."""

    _rank = 1


class CircularPad2d(_CircularPad):
    """The last two dimensions continued from their other ends."""

    _rank = 2


class CircularPad3d(_CircularPad):
    """The last three dimensions continued from their other ends."""

    _rank = 3
