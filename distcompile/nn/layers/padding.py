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
from distcompile.nn.layers.families import of_rank
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
    """`value` around the last {dims} of f[N, C, {n}] or f[C, {n}].

    Args: padding, a number for all sides or {sides}; negative numbers crop.

    Shape: each size grows by its two sides.

    Example:
        >>> nn.{name}((1, 2{rest:, 0, 0}), 9.0)(torch.ones(1, {rest:1, }2)).flatten()
        tensor([9., 1., 1., 9., 9.])
        >>> nn.{name}(1, 9.0)(torch.ones(4, {each:2})).shape
        (4, {each:4})
    """

    def __init__(self, padding: Padding, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """`ConstantPad{rank}d` with zeros.

    Example:
        >>> nn.{name}((1, 2{rest:, 0, 0}))(torch.ones(1, {rest:1, }2)).flatten()
        tensor([0., 1., 1., 0., 0.])
    """

    def __init__(self, padding: Padding) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ReflectionPad(_Pad):
    """The last {dims} mirrored at the ends, which are not repeated. padding as in `ConstantPad{rank}d`, below the size.

    Example:
        >>> nn.{name}((2, 2{rest:, 0, 0}))(torch.tensor([1.0, 2.0, 3.0]).reshape(1, {rest:1, }3)).flatten()
        tensor([3., 2., 1., 2., 3., 2., 1.])
    """

    _mode = "reflect"


class _ReplicationPad(_Pad):
    """The ends of the last {dims} repeated. padding as in `ConstantPad{rank}d`.

    Example:
        >>> nn.{name}((2, 2{rest:, 0, 0}))(torch.tensor([1.0, 2.0, 3.0]).reshape(1, {rest:1, }3)).flatten()
        tensor([1., 1., 1., 2., 3., 3., 3.])
    """

    _mode = "replicate"


class _CircularPad(_Pad):
    """The last {dims} continued from the other end. padding as in `ConstantPad{rank}d`, at most the size.

    Example:
        >>> nn.{name}((2, 2{rest:, 0, 0}))(torch.tensor([1.0, 2.0, 3.0]).reshape(1, {rest:1, }3)).flatten()
        tensor([2., 3., 1., 2., 3., 1., 2.])
    """

    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._rank + 1, self._rank + 2):
            raise ShapeError(f"expected {self._rank + 1}D or {self._rank + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


@of_rank(1)
class ConstantPad1d(_ConstantPad): ...


@of_rank(2)
class ConstantPad2d(_ConstantPad): ...


@of_rank(3)
class ConstantPad3d(_ConstantPad): ...


@of_rank(1)
class ZeroPad1d(_ZeroPad): ...


@of_rank(2)
class ZeroPad2d(_ZeroPad): ...


@of_rank(3)
class ZeroPad3d(_ZeroPad): ...


@of_rank(1)
class ReflectionPad1d(_ReflectionPad): ...


@of_rank(2)
class ReflectionPad2d(_ReflectionPad): ...


@of_rank(3)
class ReflectionPad3d(_ReflectionPad): ...


@of_rank(1)
class ReplicationPad1d(_ReplicationPad): ...


@of_rank(2)
class ReplicationPad2d(_ReplicationPad): ...


@of_rank(3)
class ReplicationPad3d(_ReplicationPad): ...


@of_rank(1)
class CircularPad1d(_CircularPad): ...


@of_rank(2)
class CircularPad2d(_CircularPad): ...


@of_rank(3)
class CircularPad3d(_CircularPad): ...
