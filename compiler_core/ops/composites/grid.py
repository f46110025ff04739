"""Sampling at given places over any Value, with torch's names and arguments: grid_sample, affine_grid.

In: T[N, C, *n] with two or three spatial dims, and a grid f[N, *o, rank] of places, last dim first, -1 .. 1 over the
input (align_corners: over the centres of its outermost elements). Out: T[N, C, *o]. Places outside: "zeros" reads 0,
"border" the nearest element, "reflection" the mirrored one. Differentiable in input and grid.
Source: Jaderberg et al. 2015 (spatial transformers); torch.nn.functional.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError, NoKernelError, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, broadcast_to, cast, dtype_of, shape_of, widened
from compiler_core.ops.casting import in_float32
from compiler_core.ops.composites.arithmetic import add, clamp, fmod, mul, sub
from compiler_core.ops.composites.interpolate import cubic_weights
from compiler_core.ops.composites.logic import logical_and, where
from compiler_core.ops.composites.unary import abs, floor, round
from compiler_core.ops.registry import Array, Value


@in_float32
def grid_sample(
    input: Value,
    grid: Value,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Value:
    """input read at the places of `grid`. mode: bilinear, nearest, bicubic (4-d input alone).

    Example:
        >>> F.grid_sample(torch.tensor([[[[1.0, 3.0]]]]), torch.tensor([[[[0.0, 0.0]]]]), align_corners=True)
        tensor([[[[2.]]]])
    """
    x, where_to = as_value(input), as_value(grid)
    rank = len(x.shape) - 2
    _check(x, where_to, rank, mode, padding_mode)
    wide, places = widened(x), widened(where_to)
    sampler = _Sampler(wide, padding_mode, bool(align_corners))
    axes = [_unnormalized(places, rank - 1 - d, x.shape[2 + d], bool(align_corners)) for d in range(rank)]
    if mode == "bicubic":
        out = _bicubic(sampler, axes)
    else:
        axes = [sampler.inside(at, d) for d, at in enumerate(axes)]
        out = _nearest(sampler, axes) if mode == "nearest" else _linear(sampler, axes)
    return cast(out, dtype_of(x))


def _check(x: Value, grid: Value, rank: int, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ShapeError(f"grid_sample: unknown mode {mode!r}", expected="bilinear, nearest or bicubic")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ShapeError(f"grid_sample: unknown padding_mode {padding_mode!r}", expected="zeros, border or reflection")
    fits = rank in (2, 3) and len(grid.shape) == rank + 2 and tuple(grid.shape[:1]) == tuple(x.shape[:1])
    if not fits or grid.shape[-1] != rank or 0 in x.shape[2:]:
        raise ShapeError(
            "grid_sample: input and grid do not fit",
            expected="(N, C, *n) and (N, *o, len(n)), 2 or 3 spatial dims, none empty",
            got=f"{shape_of(x)} and {shape_of(grid)}",
        )
    if mode == "bicubic" and rank != 2:
        raise ShapeError("grid_sample: bicubic interpolation only supports 4D input", got=str(shape_of(x)))
    if dtype_of(x) is not dtype_of(grid) or not dtype_of(x).is_floating_point:
        raise NoKernelError("grid_sample: input and grid need one floating dtype", got=f"{x.dtype}, {grid.dtype}")


def _unnormalized(grid: Value, component: int, n: int, align_corners: bool) -> Value:
    """f[N, *o]: one component of the places, in elements of a dim of size n."""
    shape = shape_of(grid)
    starts = (0,) * (len(shape) - 1) + (component,)
    at = prims.slice(grid, starts, (*shape[:-1], component + 1), (1,) * len(shape))
    at = prims.reshape(at, shape[:-1])
    return mul(add(at, 1.0), (n - 1) / 2) if align_corners else mul(sub(mul(add(at, 1.0), float(n)), 1.0), 0.5)


class _Sampler:
    """Reads f[N, C, *n] at places given as one f[N, *o] a spatial dim."""

    def __init__(self, x: Value, padding_mode: str, align_corners: bool) -> None:
        self.x, self.padding_mode, self.align_corners = x, padding_mode, align_corners
        self.sizes = shape_of(x)[2:]

    def inside(self, at: Value, d: int) -> Value:
        """Places along dim d as the padding mode moves them."""
        n = self.sizes[d]
        if self.padding_mode == "zeros":
            return at
        if self.padding_mode == "reflection":
            at = _reflected(at, 0.0, n - 1.0) if self.align_corners else _reflected(at, -0.5, n - 0.5)
        return clamp(at, 0.0, n - 1.0)

    def read(self, axes: Sequence[Value]) -> Value:
        """f[N, C, *o]: the elements at whole-numbered places, 0 outside."""
        valid, flat = None, None
        for d, (at, n) in enumerate(zip(axes, self.sizes)):
            fits = logical_and(prims.ge(at, prims.full_like(at, 0)), prims.le(at, prims.full_like(at, n - 1)))
            valid = fits if valid is None else logical_and(valid, fits)
            near = cast(clamp(where(fits, at, prims.full_like(at, 0)), 0, n - 1), dt.int64)
            term = mul(near, math.prod(self.sizes[d + 1 :]))
            flat = term if flat is None else add(flat, term)
        lead, shape = shape_of(self.x)[:2], shape_of(flat)[1:]
        numel = math.prod(shape)
        index = broadcast_to(prims.reshape(flat, (lead[0], 1, numel)), (*lead, numel))
        read = prims.gather(prims.reshape(self.x, (*lead, math.prod(self.sizes))), index, 2)
        mask = broadcast_to(prims.reshape(valid, (lead[0], 1, numel)), (*lead, numel))
        return prims.reshape(prims.where(mask, read, prims.full_like(read, 0)), (*lead, *shape))


def _reflected(at: Value, low: float, high: float) -> Value:
    """Places mirrored at low and high until they lie between."""
    span = high - low
    if span == 0:
        return mul(at, 0.0)
    distance = abs(sub(at, low))
    extra = fmod(distance, span)
    flips = prims.detach(floor(mul(distance, 1 / span)))
    is_even = prims.eq(fmod(flips, 2.0), prims.full_like(flips, 0))
    return where(is_even, add(extra, low), add(mul(extra, -1.0), high))


def _over_channels(weight: Value, like: Value) -> Value:
    return broadcast_to(prims.reshape(weight, (weight.shape[0], 1, *weight.shape[1:])), shape_of(like))


def _nearest(sampler: _Sampler, axes: Sequence[Value]) -> Value:
    """The element at the rounded place. Its gradient in the place is zero, not absent, as torch's."""
    read = sampler.read([round(at) for at in axes])
    never = prims.full(shape_of(read), False, dt.bool_)
    return prims.where(never, _over_channels(axes[0], read), read)


def _linear(sampler: _Sampler, axes: Sequence[Value]) -> Value:
    lows = [prims.detach(floor(at)) for at in axes]
    rights = [sub(at, low) for at, low in zip(axes, lows)]
    total = None
    for corner in itertools.product((0, 1), repeat=len(axes)):
        weight = None
        for bit, right in zip(corner, rights):
            part = right if bit else add(mul(right, -1.0), 1.0)
            weight = part if weight is None else mul(weight, part)
        read = sampler.read([add(low, float(bit)) for low, bit in zip(lows, corner)])
        term = prims.mul(read, _over_channels(weight, read))
        total = term if total is None else prims.add(total, term)
    return total


def _bicubic(sampler: _Sampler, axes: Sequence[Value]) -> Value:
    lows = [prims.detach(floor(at)) for at in axes]
    weights = [cubic_weights(sub(at, low)) for at, low in zip(axes, lows)]
    total = None
    for rows, columns in itertools.product(range(4), repeat=2):
        places = [sampler.inside(add(low, float(k - 1)), d) for d, (low, k) in enumerate(zip(lows, (rows, columns)))]
        read = sampler.read([round(place) for place in places])
        term = prims.mul(read, _over_channels(mul(weights[0][rows], weights[1][columns]), read))
        total = term if total is None else prims.add(total, term)
    return total


def _base(n: int, align_corners: bool) -> Array:
    """-1 .. 1 over n places: their outermost centres (align_corners), or their outermost edges."""
    if n <= 1:
        return np.zeros(n)
    line = np.linspace(-1.0, 1.0, n)
    return line if align_corners else line * ((n - 1) / n)


def affine_grid(theta: Value, size: Sequence[int], align_corners: bool | None = None) -> Value:
    """The grid of affine maps theta f[N, rank, rank + 1] over outputs of `size` (N, C, *o): f[N, *o, rank].

    Example:
        >>> F.affine_grid(torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
        tensor([[[[-0.5000,  0.0000],
                  [ 0.5000,  0.0000]]]])
    """
    matrix = as_value(theta)
    rank = len(size) - 2
    if not dtype_of(matrix).is_floating_point:
        raise DTypeError("Expected theta to have floating point type", got=dtype_of(matrix).name)
    if rank not in (2, 3) or tuple(matrix.shape) != (size[0], rank, rank + 1) or min(size) < 1:
        raise ShapeError(
            "affine_grid: theta does not fit the size",
            expected="theta (N, 2, 3) and size (N, C, H, W), or (N, 3, 4) and (N, C, D, H, W)",
            got=f"{shape_of(matrix)} and {tuple(size)}",
        )
    lines = [_base(n, bool(align_corners)) for n in size[2:]]
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(tuple(size[2:]))], -1)
    base = places.reshape(1, -1, rank + 1).astype(dtype_of(matrix).numpy)
    wide = broadcast_to(base, (size[0], *base.shape[1:]))
    return prims.reshape(prims.matmul(wide, prims.permute(matrix, (0, 2, 1))), (size[0], *size[2:], rank))
