"""Dropout: in training, zero elements (or whole channels) at random and scale the rest.

In: f[...]. Out: the same shape. The mask is drawn from the default generator: the same bits eager and compiled.
Source: Srivastava et al. 2014.
"""

from __future__ import annotations

from typing import ClassVar

from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.layers.families import of_rank
from distcompile.nn.module import Module


class _DropoutNd(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes each element with probability p and multiplies the others by 1/(1-p); in evaluation it returns its input.

    Args:
        p: probability of being zeroed, from 0 to 1; else ArgumentError
        inplace: overwrite the input

    Shape: any -> the same. The mask comes from the default generator, so `manual_seed` repeats it, eager or compiled.
    Source: Srivastava et al. 2014.

    Example:
        >>> layer = nn.Dropout(0.5)
        >>> sorted(set(layer(torch.ones(1000)).tolist()))
        [0.0, 2.0]
        >>> layer.eval()(torch.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class _ChannelDropout(_DropoutNd):
    """`Dropout` of whole channels of f[N, C, {n}] or f[C, {n}]. Source: Tompson et al. 2015.

    Example:
        >>> y = nn.{name}(0.5)(torch.ones(4, 8, {each:5})).flatten(2)
        >>> bool((y == y[..., :1]).all())
        True
    """

    _rank: ClassVar[int] = 0

    def forward(self, input: Tensor) -> Tensor:
        drop = {1: F.dropout1d, 2: F.dropout2d, 3: F.dropout3d}[self._rank]
        return drop(input, self.p, self.training, self.inplace)


@of_rank(1)
class Dropout1d(_ChannelDropout): ...


@of_rank(2)
class Dropout2d(_ChannelDropout): ...


@of_rank(3)
class Dropout3d(_ChannelDropout): ...


class AlphaDropout(_DropoutNd):
    """Dropout for SELU: elements become SELU's lower limit, and mean and variance stay. Source: Klambauer et al. 2017.

    Args: those of `Dropout`.

    Example:
        >>> y = nn.AlphaDropout(0.2)(torch.randn(100_000))
        >>> abs(y.mean().item()) < 0.02, abs(y.std().item() - 1) < 0.02
        (True, True)
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels of f[N, C, ...].

    Example:
        >>> y = nn.FeatureAlphaDropout(0.5)(torch.ones(4, 8, 16))
        >>> bool((y == y[..., :1]).all())
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
