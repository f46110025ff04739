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
from compiler_core.ops.ranks import at_rank
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

Ints = int | Sequence[int]


def max_pool_nd_with_indices(
    rank: int,
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of each window of f[N, C, {n}].

    Example, in one dimension:
        >>> F.max_pool1d_with_indices(torch.tensor([[1.0, 5.0, 2.0, 3.0]]), kernel_size=2)[1]
        tensor([[1, 3]])
    """
    pool = getattr(pooling, f"max_pool{rank}d")
    return pool(input, kernel_size, stride, padding, dilation, ceil_mode, True)


def adaptive_max_pool_nd_with_indices(
    rank: int, input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """(maxima, places) of f[N, C, {n}] in `output_size` windows.

    Example, in one dimension:
        >>> F.adaptive_max_pool1d_with_indices(torch.tensor([[1.0, 5.0, 2.0, 3.0]]), output_size=2)[1]
        tensor([[1, 3]])
    """
    return getattr(adaptive, f"adaptive_max_pool{rank}d")(input, output_size, True)


max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = (
    at_rank(rank, max_pool_nd_with_indices) for rank in (1, 2, 3)
)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    at_rank(rank, adaptive_max_pool_nd_with_indices) for rank in (1, 2, 3)
)


def max_unpool_nd(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros f[N, C, {n}] with input f[N, C, {o}] put at the places that max pooling returned.

    Output size: (n - 1)*stride - 2*padding + kernel_size, unless given; a given one is within one stride of it.

    Example, in one dimension:
        >>> F.max_unpool1d(torch.tensor([[5.0, 3.0]]), torch.tensor([[1, 3]]), kernel_size=2)
        tensor([[0., 5., 0., 3.]])
    """
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


max_unpool1d = in_float32(at_rank(1, max_unpool_nd))
max_unpool2d = lies("images")(in_float32(at_rank(2, max_unpool_nd)))
max_unpool3d = lies("rows")(in_float32(at_rank(3, max_unpool_nd)))
