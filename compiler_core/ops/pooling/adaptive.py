"""Adaptive pooling over any Value, with torch's names and arguments: average and maximum into a given size.

In: T[N, C, *n] or T[C, *n]; output_size: one int or one a spatial dim, None keeping a size. Out: T[..., *output_size].
Window i of o over n elements is floor(i*n/o) .. ceil((i+1)*n/o). Where o divides n the windows are equal and this is
plain pooling; otherwise windows of the largest size are read by index, and what they hold too much is masked.
Source: torch.nn.functional.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import broadcast_to, cast, dtype_of, shape_of, widened
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.composites.arithmetic import add, clamp, div, mul
from compiler_core.ops.composites.logic import logical_and, lt
from compiler_core.ops.composites.reduction import averaged
from compiler_core.ops.convolution.composite import batched, unbatched
from compiler_core.ops.lying import lies
from compiler_core.ops.pooling.composite import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    take_flat,
)
from compiler_core.ops.pooling.windows import lowest
from compiler_core.ops.ranks import at_rank
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import of_sizes
from compiler_core.symbolic.expression import is_same

Sizes = int | None | Sequence[int | None]
_AVERAGE = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}
_MAXIMUM = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}


def _target(output_size: Sizes, sizes: Shape) -> tuple[int, ...]:
    wanted = (output_size,) * len(sizes) if output_size is None or isinstance(output_size, int) else tuple(output_size)
    wanted = wanted * len(sizes) if len(wanted) == 1 else wanted
    if len(wanted) != len(sizes):
        raise ShapeError(f"output_size needs one int or {len(sizes)}", got=str(wanted))
    if any(o is not None and o < 0 for o in wanted):
        raise ShapeError("elements of output_size must be greater than or equal to 0", got=str(wanted))
    return tuple(n if o is None else o for o, n in zip(wanted, sizes))


def _bins(sizes: Shape, target: Shape) -> tuple[Value, Value]:
    """(i64[*o, L], bool[*o, L]): for each window, offsets into the flattened input, and which of them count."""
    rank = len(sizes)
    places: Value = np.zeros((1,) * (2 * rank), np.int64)
    valid: Value = np.ones((1,) * (2 * rank), np.bool_)
    longest = 1
    for d, (n, o) in enumerate(zip(sizes, target)):
        step = prims.iota((o,), 0, dt.int64)
        starts = div(mul(step, n), o, rounding_mode="floor")
        ends = div(add(mul(add(step, 1), n), o - 1), o, rounding_mode="floor")
        length = 1 if is_same(n, o) or not o else (n + 2 * o - 2) // o  # at least that of the longest
        line = [1] * (2 * rank)
        line[d] = o
        starts, ends = prims.reshape(starts, line), prims.reshape(ends, line)
        line[d], line[rank + d] = 1, length
        at = add(starts, prims.reshape(prims.iota((length,), 0, dt.int64), line))
        places = add(places, mul(clamp(at, max=n - 1), math.prod(sizes[d + 1 :])))
        valid = logical_and(valid, lt(at, ends))
        longest *= length
    return prims.reshape(places, (*target, longest)), prims.reshape(valid, (*target, longest))


def _read_bins(x: Value, places: Value) -> Value:
    """T[N, C, *o, L]."""
    shape = (*x.shape[:2], *places.shape)
    return take_flat(x, broadcast_to(places, shape))


def _is_even(sizes: Shape, target: Shape) -> bool:
    return all(o > 0 and n >= o and n % o == 0 for n, o in zip(sizes, target))


def _kernel(sizes: Shape, target: Shape) -> tuple[int, ...]:
    return tuple(n // o for n, o in zip(sizes, target))


def adaptive_avg_pool_nd(rank: int, input: Value, output_size: Sizes) -> Value:
    """T[N, C, {n}] averaged into T[N, C, {o}], whatever the sizes of the input.

    output_size: a number or one a dimension; None keeps a dimension.

    Example, in two dimensions:
        >>> F.adaptive_avg_pool2d(torch.ones(2, 8, 10, 7), (None, 1)).shape
        (2, 8, 10, 1)
    """
    x, had_batch = batched(f"adaptive_avg_pool{rank}d", input, rank)
    need_kind(f"adaptive_avg_pool{rank}d", "f", x)
    sizes = shape_of(x)[2:]
    target = _target(output_size, sizes)
    if _is_even(sizes, target):
        return unbatched(_average_evenly(x, sizes, target), had_batch)
    places, valid = of_sizes(_bins, sizes, target)
    wide = widened(_read_bins(x, places))
    total = prims.sum(prims.where(broadcast_to(valid, shape_of(wide)), wide, prims.full_like(wide, 0)), (rank + 2,))
    counts = prims.sum(cast(valid, dtype_of(wide)), (rank,))
    return unbatched(cast(div(total, counts), dtype_of(x)), had_batch)


adaptive_avg_pool1d = lies("signals")(at_rank(1, adaptive_avg_pool_nd))
adaptive_avg_pool2d = remembered(lies("images")(at_rank(2, adaptive_avg_pool_nd)))
adaptive_avg_pool3d = lies("rows")(in_float32_on_cpu(at_rank(3, adaptive_avg_pool_nd)))


def _average_evenly(x: Value, sizes: Shape, target: Shape) -> Value:
    if math.prod(target) != 1:
        return _AVERAGE[len(sizes)](x, _kernel(sizes, target))
    return averaged(x, tuple(range(2, 2 + len(sizes))), keepdim=True)


def adaptive_max_pool_nd(rank: int, input: Value, output_size: Sizes, return_indices: bool = False) -> Value:
    """The maxima of windows of T[N, C, {n}]: T[N, C, {o}]; with return_indices, also their places.

    Example, in one dimension:
        >>> F.adaptive_max_pool1d(torch.tensor([[1.0, 5.0, 2.0, 3.0]]), output_size=2)
        tensor([[5., 3.]])
    """
    x, had_batch = batched(f"adaptive_max_pool{rank}d", input, rank)
    need_kind(f"adaptive_max_pool{rank}d", "f", x)
    sizes = shape_of(x)[2:]
    target = _target(output_size, sizes)
    if _is_even(sizes, target):
        values, places = _MAXIMUM[rank](x, _kernel(sizes, target), return_indices=True)
    else:
        bins, valid = of_sizes(_bins, sizes, target)
        read = prims.detach(_read_bins(x, bins))
        shape = shape_of(read)
        masked = prims.where(broadcast_to(valid, shape), read, prims.full(shape, lowest(dtype_of(x)), dtype_of(x)))
        local = prims.argmax(masked, (rank + 2,))
        index = prims.reshape(local, (*local.shape, 1))
        picked = prims.gather(broadcast_to(bins, shape), index, rank + 2)
        places = prims.reshape(cast(picked, dt.int64), shape_of(local))
        values = take_flat(x, places)
    values, places = unbatched(values, had_batch), unbatched(places, had_batch)
    return (values, places) if return_indices else values


adaptive_max_pool1d = lies("signals")(at_rank(1, adaptive_max_pool_nd))
adaptive_max_pool2d = lies("images")(at_rank(2, adaptive_max_pool_nd))
adaptive_max_pool3d = lies("rows")(in_float32_on_cpu(at_rank(3, adaptive_max_pool_nd)))
