"""The gradients of a convolution as convolutions: for engines that have that one alone.

In, out, attributes: as convolution_input and convolution_weight (op.py). Method: the gradient in x is a convolution of
the cotangent, its elements `stride` apart, with the filters turned round; that in the weight one of x with the
cotangent as filters, batch and channels exchanged, stride and dilation too (Dumoulin and Visin, 2016, section 4).
"""

from __future__ import annotations

import math

from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.registry import Value

Dims = tuple[int, ...]


def _apart(x: Value, stride: Dims) -> Value:
    """x[N, C, *n] with stride - 1 zeros between its elements: [N, C, *((n - 1) stride + 1)]."""
    for dim, step in enumerate(stride, 2):
        if step == 1 or 0 in x.shape:
            continue
        shape, zeros = tuple(x.shape), (0,) * (len(x.shape) + 1)
        column = prims.reshape(x, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
        wide = prims.pad(column, zeros, (*zeros[: dim + 1], step - 1, *zeros[dim + 2 :]))
        wide = prims.reshape(wide, (*shape[:dim], shape[dim] * step, *shape[dim + 1 :]))
        stops = (*shape[:dim], (shape[dim] - 1) * step + 1, *shape[dim + 1 :])
        x = prims.slice(wide, zeros[1:], stops, (1,) * len(shape))
    return x


def _cut(x: Value, low: Dims, high: Dims) -> Value:
    """x without so many elements at the ends of its spatial dims."""
    if not (any(low) or any(high)):
        return x
    stops = tuple(n - b for n, b in zip(x.shape[2:], high))
    return prims.slice(x, (0, 0, *low), (*x.shape[:2], *stops), (1,) * len(x.shape))


def of_input(
    g: Value, weight: Value, size: Shape, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> Value:
    """convolution_input."""
    rank, (outs, inner, *kernel) = len(size), weight.shape
    apart, ones = _apart(g, stride), (1,) * rank
    reach = [d * (k - 1) for d, k in zip(dilation, kernel)]
    before = [r - a for r, a in zip(reach, low)]
    after = [n - m - b + r for n, m, b, r in zip(size, apart.shape[2:], before, reach)]
    apart = _cut(apart, tuple(max(-b, 0) for b in before), tuple(max(-b, 0) for b in after))
    split = prims.reshape(weight, (groups, outs // groups, inner, *kernel))
    turned = prims.reshape(
        prims.permute(split, (0, 2, 1, *range(3, 3 + rank))), (groups * inner, outs // groups, *kernel)
    )
    turned = prims.flip(turned, tuple(range(2, 2 + rank)))
    first, last = (tuple(max(b, 0) for b in side) for side in (before, after))
    return prims.convolution(apart, turned, ones, first, last, dilation, groups)


def of_weight(
    x: Value, g: Value, kernel: Dims, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> Value:
    """convolution_weight."""
    rank, (batch, channels, *sizes) = len(kernel), x.shape
    spatial = tuple(range(3, 3 + rank))
    split = prims.reshape(x, (batch, groups, channels // groups, *sizes))
    split = prims.permute(split, (2, 1, 0, *spatial))
    wide = prims.reshape(split, (channels // groups, groups * batch, *sizes))
    filters = prims.permute(g, (1, 0, *range(2, 2 + rank)))
    if not math.prod((batch, *g.shape[2:])):
        return prims.full((g.shape[1], channels // groups, *kernel), 0, x.dtype)
    whole = prims.convolution(wide, filters, dilation, low, high, stride, groups)
    high_cut = tuple(n - k for n, k in zip(whole.shape[2:], kernel))
    return prims.permute(_cut(whole, (0,) * rank, high_cut), (1, 0, *range(2, 2 + rank)))
