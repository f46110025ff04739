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
    """`value` around the last dimension of f[N, C, L] or f[C, L].

    Args: padding, a number for both sides or (left, right); negative numbers crop.

    Example:
        >>> nn.ConstantPad1d((1, 2), 9.0)(torch.ones(1, 2))
        tensor([[9., 1., 1., 9., 9.]])
    """

    _rank = 1


class ConstantPad2d(_ConstantPad):
    """`value` around the last two dimensions of f[N, C, H, W] or f[C, H, W].

    Args: padding, a number for all sides or (left, right, top, bottom); negative numbers crop.

    Example:
        >>> nn.ConstantPad2d((1, 0, 0, 1), 9.0)(torch.ones(1, 2, 2))
        tensor([[[9., 1., 1.],
                 [9., 1., 1.],
                 [9., 9., 9.]]])
    """

    _rank = 2


class ConstantPad3d(_ConstantPad):
    """`value` around the last three dimensions of f[N, C, D, H, W] or f[C, D, H, W].

    Args: padding, a number for all sides or (left, right, top, bottom, front, back); negative numbers crop.

    Example:
        >>> nn.ConstantPad3d(1, 9.0)(torch.ones(1, 2, 3, 4)).shape
        (1, 4, 5, 6)
    """

    _rank = 3


class ZeroPad1d(_ZeroPad):
    """`ConstantPad1d` with zeros.

    Example:
        >>> nn.ZeroPad1d(1)(torch.ones(1, 2))
        tensor([[0., 1., 1., 0.]])
    """

    _rank = 1


class ZeroPad2d(_ZeroPad):
    """`ConstantPad2d` with zeros.

    Example:
        >>> nn.ZeroPad2d((1, 1, 0, 0))(torch.ones(1, 1, 2))
        tensor([[[0., 1., 1., 0.]]])
    """

    _rank = 2


class ZeroPad3d(_ZeroPad):
    """`ConstantPad3d` with zeros.

    Example:
        >>> nn.ZeroPad3d(1)(torch.ones(1, 2, 3, 4)).shape
        (1, 4, 5, 6)
    """

    _rank = 3


class ReflectionPad1d(_Pad):
    """The last dimension mirrored at its ends, which are not repeated. padding: less than the size.

    Example:
        >>> nn.ReflectionPad1d(2)(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    _rank, _mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """The last two dimensions mirrored at their ends, which are not repeated. padding as in `ConstantPad2d`.

    Example:
        >>> nn.ReflectionPad2d((1, 1, 0, 0))(torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[2., 1., 2., 3., 2.]]])
    """

    _rank, _mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """The last three dimensions mirrored at their ends, which are not repeated. padding as in `ConstantPad3d`.

    Example:
        >>> nn.ReflectionPad3d(1)(torch.ones(1, 2, 3, 4)).shape
        (1, 4, 5, 6)
    """

    _rank, _mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """The ends of the last dimension repeated. padding as in `ConstantPad1d`.

    Example:
        >>> nn.ReplicationPad1d(2)(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 1., 1., 2., 3., 3., 3.]])
    """

    _rank, _mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """The ends of the last two dimensions repeated. padding as in `ConstantPad2d`.

    Example:
        >>> nn.ReplicationPad2d((1, 1, 0, 0))(torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[1., 1., 2., 3., 3.]]])
    """

    _rank, _mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """The ends of the last three dimensions repeated. padding as in `ConstantPad3d`.

    Example:
        >>> nn.ReplicationPad3d(1)(torch.ones(1, 2, 3, 4)).shape
        (1, 4, 5, 6)
    """

    _rank, _mode = 3, "replicate"


class CircularPad1d(_CircularPad):
    """The last dimension continued from its other end. padding as in `ConstantPad1d`, at most the size.

    Example:
        >>> nn.CircularPad1d(2)(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[2., 3., 1., 2., 3., 1., 2.]])
    """

    _rank = 1


class CircularPad2d(_CircularPad):
    """The last two dimensions continued from their other ends. padding as in `ConstantPad2d`.

    Example:
        >>> nn.CircularPad2d((1, 1, 0, 0))(torch.tensor([[[1.0, 2.0, 3.0]]]))
        tensor([[[3., 1., 2., 3., 1.]]])
    """

    _rank = 2


class CircularPad3d(_CircularPad):
    """The last three dimensions continued from their other ends. padding as in `ConstantPad3d`.

    Example:
        >>> nn.CircularPad3d(1)(torch.ones(1, 2, 3, 4)).shape
        (1, 4, 5, 6)
    """

    _rank = 3
