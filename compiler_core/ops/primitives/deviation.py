"""std: the standard deviation over `dims`, which the result drops. Its gradient is 0 where it is 0, as torch has it.

In: an array of f32 or f64, dims ascending, correction (the divisor is the count less it), and `wide`: whether the
squares of f32 are added up in f64, as torch does on the CPU: those of numbers above 1e19 are beyond f32, and those
below 1e-19. Out: an array of x's dtype. Compiled code adds up so; eager code does where f32 did not suffice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.dtype import DType, float32, float64, of
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import broadcast_to, kept_shape
from compiler_core.ops.checks import check_dims, check_dtype
from compiler_core.ops.primitives.pointwise import as_array
from compiler_core.ops.primitives.reduction import Dims, reduced_shape, restore
from compiler_core.ops.quiet import quietly
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.rules import OVER_DIMS, Composed
from compiler_core.ops.size_numbers import as_float, as_like, less

_DTYPES: tuple[DType, ...] = (float32, float64)
_LEAST = 1e-15  # from there on f32 holds the squares of what makes up a deviation, if it holds their sum


def centered(wide: Value, dims: Dims) -> tuple[Value, Value]:
    """(mean with dims kept, wide minus that mean)."""
    shape = tuple(wide.shape)
    total = prims.sum(wide, dims)
    average = prims.div(total, prims.full_like(total, as_float(math.prod(shape[d] for d in dims))))
    average = prims.reshape(average, kept_shape(shape, dims))
    return average, prims.sub(wide, broadcast_to(average, shape))


def _infer(x: TensorMeta, dims: Dims, correction: float, wide: bool) -> TensorMeta:
    check_dtype("std", x, _DTYPES)
    check_dims("std", dims, x.ndim)
    return x.with_shape(reduced_shape(x.shape, dims))


def _divided(x: Value, total: Value, dims: Dims, correction: float) -> Value:
    return prims.div(total, as_like(total, less(math.prod(x.shape[d] for d in dims), correction)))


def _std(x: Value, dims: Dims, correction: float, wide: bool) -> Value:
    dtype = of(x.dtype)
    _, away = centered(prims.cast(x, float64) if wide else x, dims)
    total = prims.sum(prims.mul(away, away), dims)
    return prims.cast(prims.sqrt(_divided(x, total, dims, correction)), dtype)


@quietly
def _eager(xp: Any, x: Array, dims: Dims, correction: float, wide: bool) -> Array:
    found = as_array(xp, _std(x, dims, correction, wide=False))
    if xp is np and wide and not np.all((found > _LEAST) & (found < np.inf)):
        found = as_array(xp, _std(x, dims, correction, wide=True))
    return found  # type: ignore[no-any-return]


def _vjp(g: Value, out: Value, x: Value, dims: Dims, correction: float, wide: bool) -> tuple[Value]:
    """g (x - mean) / (divisor out)."""
    zero = prims.full_like(out, 0.0)
    flat = prims.eq(out, zero)
    slope = prims.where(flat, zero, prims.div(g, prims.where(flat, prims.full_like(out, 1.0), out)))
    _, away = centered(x, dims)
    return (prims.mul(restore(_divided(x, slope, dims, correction), tuple(x.shape), dims), away),)


STD = register(
    Op(
        "std",
        _infer,
        _eager,
        _vjp,
        Composed(_std),
        tuple(
            Sample((shape,), {"dims": dims, "correction": correction, "wide": wide})
            for shape, dims, correction, wide in (
                ((3, 4), (1,), 1.0, True),
                ((3, 4), (0,), 0.0, False),
                ((2, 3, 4), (0, 2), 1.0, True),
                ((5,), (0,), 1.5, False),
            )
        ),
        _DTYPES,
        vmap=OVER_DIMS,
    )
)
