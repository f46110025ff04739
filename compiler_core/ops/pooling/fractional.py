"""Fractional max pooling over any Value: maxima of windows whose distances vary at random (Graham 2014).

In: T[N, C, *n] or T[C, *n], kernel and output sizes, and samples f[N, C, rank] in [0, 1), one a plane and dim (torch's
order: the last dim's first). Out: (maxima, places), T and i64 of [N, C, *o]. Window i starts at
int((i + u)*a) - int(u*a) with a = (n - k) / (o - 1), the last one at n - k (torch's sequence).
"""

from __future__ import annotations

import math

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import broadcast_to, cast, dtype_of, shape_of
from compiler_core.ops.composites.arithmetic import add, mul, sub
from compiler_core.ops.composites.unary import trunc
from compiler_core.ops.convolution.composite import Ints, batched, spread, unbatched
from compiler_core.ops.pooling.composite import take_flat
from compiler_core.ops.registry import Value


def fractional_max_pool(rank: int, input: Value, kernel_size: Ints, output_size: Ints, samples: Value) -> Value:
    """See the head of this file."""
    x, had_batch = batched(f"fractional_max_pool{rank}d", input, rank)
    kernel, target = spread("kernel_size", kernel_size, rank), spread("output_size", output_size, rank)
    sizes = shape_of(x)[2:]
    if any(o < 1 or o + k - 1 > n for n, o, k in zip(sizes, target, kernel)):
        raise ShapeError(
            f"fractional_max_pool{rank}d: output and kernel do not fit the input",
            expected=f"output + kernel - 1 <= {sizes}",
            got=f"output {target}, kernel {kernel}",
        )
    if tuple(samples.shape) != (*x.shape[:2], rank):
        expected = f"({x.shape[0]}, {x.shape[1]}, {rank})"
        raise ShapeError("fractional_max_pool: wrong shape of samples", expected=expected, got=str(shape_of(samples)))
    places = _places(samples, sizes, kernel, target)  # (N, C, *o, prod(k))
    read = prims.detach(take_flat(x, places))
    local = prims.argmax(read, (rank + 2,))
    picked = prims.gather(places, prims.reshape(local, (*local.shape, 1)), rank + 2)
    picked = prims.reshape(picked, shape_of(local))
    return unbatched(take_flat(x, picked), had_batch), unbatched(picked, had_batch)


def _places(samples: Value, sizes: tuple[int, ...], kernel: tuple[int, ...], target: tuple[int, ...]) -> Value:
    """i64[N, C, *o, prod(k)]: offsets into the flattened input of what each window holds."""
    rank, lead = len(sizes), shape_of(samples)[:2]
    shape = (*lead, *target, *kernel)
    flat = None
    for d in range(rank):
        at = prims.slice(samples, (0, 0, rank - 1 - d), (*lead, rank - d), (1, 1, 1))  # (N, C, 1)
        starts = _starts(at, sizes[d], kernel[d], target[d])
        starts = prims.reshape(starts, (*lead, *(target[d] if e == d else 1 for e in range(2 * rank))))
        inner = np.arange(kernel[d]).reshape(tuple(-1 if e == rank + d else 1 for e in range(2 * rank)))
        place = mul(add(broadcast_to(starts, shape), inner), math.prod(sizes[d + 1 :]))
        flat = place if flat is None else add(flat, place)
    return prims.reshape(flat, (*lead, *target, math.prod(kernel)))


def _starts(sample: Value, n: int, k: int, o: int) -> Value:
    """i64[N, C, o] from f[N, C, 1]."""
    lead = shape_of(sample)[:2]
    last = prims.full((*lead, 1), n - k, dt.int64)
    if o == 1:
        return last
    numpy = dtype_of(sample).numpy
    alpha = float(np.divide(n - k, o - 1, dtype=numpy if numpy.itemsize > 2 else np.float32))
    steps = np.arange(o - 1).astype(dtype_of(sample).numpy)
    moved = trunc(mul(add(broadcast_to(sample, (*lead, o - 1)), steps), alpha))
    first = sub(moved, trunc(mul(sample, alpha)))
    return prims.cat([cast(prims.detach(first), dt.int64), last], 2)
