"""The poolings of nn.functional that the core has under another form: unpooling, and `*_with_indices`.

In: tensors f[N, C, *n] or f[C, *n]. Out: tensors.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.errors import ShapeError
from compiler_core.ops.casting import in_float32
from compiler_core.ops.convolution.composite import spread
from compiler_core.ops.lying import lies
from compiler_core.ops.pooling import adaptive
from compiler_core.ops.pooling import composite as pooling
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

Ints = int | Sequence[int]


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of each window of f[N, C, L]."""
    return pooling.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of each window of f[N, C, H, W]."""
    return pooling.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of each window of f[N, C, D, H, W]."""
    return pooling.max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of f[N, C, L] in `output_size` windows."""
    return adaptive.adaptive_max_pool1d(input, output_size, True)


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of f[N, C, H, W] in `output_size` windows."""
    return adaptive.adaptive_max_pool2d(input, output_size, True)


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of f[N, C, D, H, W] in `output_size` windows."""
    return adaptive.adaptive_max_pool3d(input, output_size, True)


def _unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    output_size: Sequence[int] | None,
) -> Tensor:
    """Output size: (n - 1)*stride - 2*padding + kernel_size, unless given; a given one is within one stride of it."""
    kernel = spread("kernel_size", kernel_size, rank)
    steps = kernel if stride is None else spread("stride", stride, rank)
    margin = spread("padding", padding, rank)
    sizes = input.shape[input.dim() - rank :]
    default = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(sizes, steps, margin, kernel)]
    if output_size is None:
        return pooling.max_unpool(rank, input, indices, default)
    wanted = list(output_size)[-rank:]
    if len(output_size) not in (rank, rank + 1, rank + 2):
        raise ShapeError(f"output_size should have {rank} or {rank + 2} elements", got=str(tuple(output_size)))
    if any(not d - s < n < d + s for n, d, s in zip(wanted, default, steps)):
        raise ArgumentError("invalid output_size", expected=f"within a stride of {default}", got=str(wanted))
    return pooling.max_unpool(rank, input, indices, wanted)


@in_float32
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros f[N, C, L] with input f[N, C, o] put at the places that max_pool1d returned."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@lies("images")
@in_float32
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros f[N, C, H, W] with input f[N, C, oH, oW] put at the places that max_pool2d returned."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@lies("rows")
@in_float32
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros f[N, C, D, H, W] with input f[N, C, oD, oH, oW] put at the places that max_pool3d returned."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
