"""Dense layers (Linear, Bilinear, Identity) and the layers that only reshape (Flatten, Unflatten).

In: f[..., in_features]. Out: f[..., out_features]. Default initialisation is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core.dtype import DType
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class Identity(Module):
    """Returns its input. It takes and ignores any arguments: a place holder where a layer is taken out.

    Example:
        >>> nn.Identity(54, unused=True)(torch.ones(2))
        tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """A dense layer: y = x Wᵀ + b, with weight W f[out_features, in_features] and bias b f[out_features].

    Both are drawn from U(-1/√in_features, 1/√in_features), as torch does (kaiming_uniform with a=√5 for the weight).

    Args:
        in_features: size of the last dimension of the input
        out_features: size of the last dimension of the output
        bias: False leaves b out; the attribute `bias` is None then
        device, dtype: of the parameters; the defaults of `torch.empty`

    Shape: f[..., in_features] -> f[..., out_features], with any dimensions in front.

    Raises ShapeError if the last dimension of the input is not in_features.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> layer(torch.ones(4, 3)).shape
        (4, 2)
        >>> [(name, tuple(p.shape)) for name, p in layer.named_parameters()]
        [('weight', (2, 3)), ('bias', (2,))]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """A product of two inputs: y[k] = x₁ᵀ W[k] x₂ + b[k], with W f[out, in1, in2] and b f[out].

    Both are drawn from U(-1/√in1, 1/√in1). bias: False leaves b out.

    Shape: f[..., in1_features], f[..., in2_features] -> f[..., out_features]; what stands in front is the same in both.

    Raises ArgumentError if in1_features is not positive.

    Example:
        >>> nn.Bilinear(3, 4, 2)(torch.ones(5, 3), torch.ones(5, 4)).shape
        (5, 2)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ArgumentError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from U(-1/√in1, 1/√in1)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Flatten(Module):
    """Merges the dimensions start_dim..end_dim, both included, into one; by default all but the first, the batch.

    Example:
        >>> nn.Flatten()(torch.ones(2, 3, 4, 5)).shape
        (2, 60)
        >>> nn.Flatten(0, 1)(torch.ones(2, 3, 4)).shape
        (6, 4)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits dimension `dim` into the sizes `unflattened_size`, of which one may be -1: it is computed from the others.

    Example:
        >>> nn.Unflatten(1, (2, -1))(torch.ones(3, 8)).shape
        (3, 2, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
