"""Rearrangements of channels and windows: pixel_shuffle, pixel_unshuffle, channel_shuffle, Tensor.unfold (any Value).

In: values. Out: values with the same elements (`unfold` repeats those in several windows). All are reshapes, permutes
and windows. Sources: Shi et al. 2016 (sub-pixel convolution); Zhang et al. 2017 (ShuffleNet).
"""

from __future__ import annotations

from compiler_core.errors import ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, dtype_of, normalize_dim, shape_of
from compiler_core.ops.composites.movement import reshape
from compiler_core.ops.lying import lies
from compiler_core.ops.registry import Value


@lies("images")
@lies("new")
def pixel_shuffle(input: Value, upscale_factor: int) -> Value:
    """T[*, C*r*r, H, W] -> T[*, C, H*r, W*r].

    Example:
        >>> F.pixel_shuffle(torch.arange(4.0).reshape(4, 1, 1), upscale_factor=2)
        tensor([[[0., 1.],
                 [2., 3.]]])
    """
    x, r = as_value(input), upscale_factor
    if len(x.shape) < 3 or r < 1 or x.shape[-3] % (r * r):
        raise ShapeError(
            "pixel_shuffle needs at least 3 dims, and channels divisible by upscale_factor²",
            expected=f"(*, C*{r * r}, H, W)",
            got=str(shape_of(x)),
        )
    *lead, c, h, w = x.shape
    k = len(lead)
    split = prims.reshape(x, (*lead, c // (r * r), r, r, h, w))
    moved = prims.permute(split, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return prims.reshape(moved, (*lead, c // (r * r), h * r, w * r))


@lies("images")
@lies("new")
def pixel_unshuffle(input: Value, downscale_factor: int) -> Value:
    """T[*, C, H*r, W*r] -> T[*, C*r*r, H, W]: pixel_shuffle undone.

    Example:
        >>> F.pixel_unshuffle(torch.arange(4.0).reshape(1, 2, 2), downscale_factor=2).flatten()
        tensor([0., 1., 2., 3.])
    """
    x, r = as_value(input), downscale_factor
    if len(x.shape) < 3 or r < 1 or x.shape[-2] % r or x.shape[-1] % r:
        raise ShapeError(
            "pixel_unshuffle needs at least 3 dims, height and width divisible by downscale_factor",
            expected=f"(*, C, H*{r}, W*{r})",
            got=str(shape_of(x)),
        )
    *lead, c, h, w = x.shape
    k = len(lead)
    split = prims.reshape(x, (*lead, c, h // r, r, w // r, r))
    moved = prims.permute(split, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return prims.reshape(moved, (*lead, c * r * r, h // r, w // r))


@lies("images")
@lies("new")
def channel_shuffle(input: Value, groups: int) -> Value:
    """T[N, C, *] with channels g*n + k at place k*groups + g, n = C/groups: one of each group in turn.

    Example:
        >>> F.channel_shuffle(torch.arange(4.0).reshape(1, 4, 1, 1), groups=2).flatten()
        tensor([0., 2., 1., 3.])
    """
    x = as_value(input)
    if len(x.shape) < 3 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(
            "channel_shuffle needs at least 3 dims, and channels divisible by groups",
            expected=f"(N, C*{groups}, *)",
            got=str(shape_of(x)),
        )
    shape = shape_of(x)
    split = prims.reshape(x, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return prims.reshape(prims.permute(split, (0, 2, 1, *range(3, len(shape) + 1))), shape)


def unfold(input: Value, dimension: int, size: int, step: int) -> Value:
    """Tensor.unfold: windows of `size` elements, `step` apart, along `dimension`; their elements in a new last dim."""
    x = as_value(input)
    d = normalize_dim(dimension, len(x.shape))
    if not x.shape:
        x = reshape(x, 1)
        return reshape(unfold(x, 0, size, step), size)
    if size > x.shape[d] or size < 0 or step < 1:
        raise ShapeError(
            "unfold: the window does not fit",
            expected=f"0 <= size <= {x.shape[d]} and a positive step",
            got=f"size {size}, step {step}",
        )
    shape, ndim = shape_of(x), len(x.shape)
    if size == 0:
        return prims.full((*shape[:d], shape[d] // step + 1, *shape[d + 1 :], 0), 0, dtype_of(x))
    last = prims.permute(x, (*(k for k in range(ndim) if k != d), d))
    windows = prims.windows(last, (size,), (step,), (1,))
    return prims.permute(windows, (*range(d), ndim - 1, *range(d, ndim - 1), ndim))
