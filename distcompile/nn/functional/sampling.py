"""The resizings of nn.functional by other names (upsample*), and fractional pooling, which draws random numbers.

In: tensors f[N, C, *n]. Out: tensors.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.ops.casting import in_float32
from compiler_core.ops.pooling.fractional import fractional_max_pool
from compiler_core.ops.ranks import at_rank
from compiler_core.tensor.making.random_creation import rand
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

Ints = int | Sequence[int]
Ratios = float | Sequence[float]


def upsample(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: Ratios | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """interpolate, by its old name.

    Example:
        >>> F.upsample(torch.tensor([[[1.0, 3.0]]]), scale_factor=2)
        tensor([[[1., 1., 3., 3.]]])
    """
    return _interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Ints | None = None, scale_factor: Ratios | None = None) -> Tensor:
    """interpolate by the nearest element.

    Example:
        >>> F.upsample_nearest(torch.tensor([[[1.0, 3.0]]]), scale_factor=2)
        tensor([[[1., 1., 3., 3.]]])
    """
    return _interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Ints | None = None, scale_factor: Ratios | None = None) -> Tensor:
    """interpolate f[N, C, H, W] by bilinear weights, corners aligned.

    Example:
        >>> F.upsample_bilinear(torch.tensor([[[[1.0, 3.0]]]]), size=(1, 3))
        tensor([[[[1., 2., 3.]]]])
    """
    return _interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _interpolate(*args: Any, **kwargs: Any) -> Tensor:
    """The public function, which may be overridden."""
    from distcompile.nn import functional

    return functional.interpolate(*args, **kwargs)


def fractional_max_pool_nd_with_indices(
    rank: int,
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of f[N, C, {n}] in windows at random distances.

    Example, in two dimensions:
        >>> F.fractional_max_pool2d_with_indices(torch.ones(1, 4, 4), 2, output_size=(2, 2))[0]
        tensor([[[1., 1.],
                 [1., 1.]]])
    """
    sizes = tuple(input.shape)[-rank:]
    if output_size is None:
        if output_ratio is None:
            raise ArgumentError(
                f"fractional_max_pool{rank}d requires specifying either an output_size or an output_ratio"
            )
        ratios = (output_ratio,) * rank if isinstance(output_ratio, int | float) else tuple(output_ratio)
        output_size = [int(n * r) for n, r in zip(sizes, ratios)]
    if _random_samples is None:
        batch = 1 if input.dim() == rank + 1 else input.shape[0]
        _random_samples = rand(batch, input.shape[-rank - 1], rank, dtype=input.dtype, device=input.device)
    return fractional_max_pool(rank, input, kernel_size, output_size, _random_samples)


def fractional_max_pool_nd(
    rank: int,
    input: Tensor,
    kernel_size: Ints,
    output_size: Ints | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """The maxima of f[N, C, {n}] in windows at random distances; with return_indices, also their places.

    Example, in two dimensions:
        >>> F.fractional_max_pool2d(torch.ones(1, 4, 4), 2, output_ratio=0.5)
        tensor([[[1., 1.],
                 [1., 1.]]])
    """
    options = (output_size, output_ratio, return_indices, _random_samples)
    found = fractional_max_pool_nd_with_indices(rank, input, kernel_size, *options)
    return found if return_indices else found[0]


fractional_max_pool2d_with_indices = at_rank(2, fractional_max_pool_nd_with_indices)
fractional_max_pool3d_with_indices = at_rank(3, fractional_max_pool_nd_with_indices)
fractional_max_pool2d = in_float32(at_rank(2, fractional_max_pool_nd))
fractional_max_pool3d = in_float32(at_rank(3, fractional_max_pool_nd))
