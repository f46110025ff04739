"""New values: constants, ramps, and random numbers drawn from a key.

In: shapes, dtypes; for random ones `key: u64[3]` and `stream` (see random.py). Out: one value of whoever records now:
a graph node under a trace, otherwise an array. An eager array is writable and contiguous.
Random floats are made of whole numbers of bits by steps that are rounded alike: the same bits eager and compiled.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops import draws, prims
from compiler_core.ops.broadcasting import Scalar, cast, dtype_of, plain, shape_of
from compiler_core.ops.composite_indexing import diagonal_mask
from compiler_core.ops.composite_movement import narrow, reshape
from compiler_core.ops.composite_pointwise import add, mul
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.random_there import drawing, normal_there, uniform_there
from compiler_core.ops.refusals import check_fits
from compiler_core.ops.registry import Value


class _Elsewhere(threading.local):
    """Whether what is made goes to another device at once: one number is enough then."""

    now = False


elsewhere = _Elsewhere()


def _owned(x: Value) -> Value:
    """x, as an array of its own if it is a zero-stride view. Zeros touch no memory: most are overwritten at once."""
    if not isinstance(x, np.ndarray) or x.flags.writeable or elsewhere.now:
        return x
    is_zeros = x.size and not any(x.strides) and not any(x.flat[0].tobytes())
    return np.zeros(x.shape, x.dtype) if is_zeros else np.array(x)


def full(size: Sequence[int], fill_value: Scalar, *, dtype: DType | None = None) -> Value:
    """fill_value everywhere. dtype: from fill_value unless given."""
    dtype = dt.promote(fill_value) if dtype is None else dtype
    check_fits(dtype, fill_value)
    return _owned(prims.full(tuple(size), plain(fill_value), dtype))


def zeros(size: Sequence[int], *, dtype: DType | None = None) -> Value:
    """0 everywhere; the default dtype unless given."""
    return full(size, 0, dtype=dtype or dt.get_default_dtype())


def ones(size: Sequence[int], *, dtype: DType | None = None) -> Value:
    """1 everywhere."""
    return full(size, 1, dtype=dtype or dt.get_default_dtype())


def full_like(input: Value, fill_value: Scalar, *, dtype: DType | None = None) -> Value:
    """fill_value in input's shape, and its dtype unless given."""
    if isinstance(input, MetaValue):
        return MetaValue(input.shape, dtype or input.dtype)
    return full(shape_of(input), fill_value, dtype=dtype or dtype_of(input))


def zeros_like(input: Value, *, dtype: DType | None = None) -> Value:
    """0 in input's shape."""
    return full_like(input, 0, dtype=dtype)


def ones_like(input: Value, *, dtype: DType | None = None) -> Value:
    """1 in input's shape."""
    return full_like(input, 1, dtype=dtype)


def arange(start: Scalar, end: Scalar | None = None, step: Scalar = 1, *, dtype: DType | None = None) -> Value:
    """start, start + step, ... before end. arange(n) counts from 0. i64 for ints, the default dtype for floats."""
    start, end, step = (0, plain(start), plain(step)) if end is None else (plain(start), plain(end), plain(step))
    if not all(math.isfinite(v) for v in (start, end)):
        raise ShapeError("unsupported range", got=f"{start} -> {end}")
    if step == 0 or (end - start) * step < 0:
        raise ShapeError("arange: the step does not lead from start to end", got=f"{start}, {end}, {step}")
    target = dtype or dt.promote(start, end, step)
    if target.kind in "iu" and not int(step):
        raise ShapeError("step must be nonzero", got=f"{step} as {target.name}")
    count = max(0, math.ceil((end - start) / step))
    whole = all(isinstance(v, int) for v in (start, step))
    ramp = prims.iota((count,), 0, dt.int64 if whole else dt.float64)
    ramp = ramp if step == 1 else mul(ramp, step)
    return _owned(cast(ramp if start == 0 else add(ramp, start), target))


def linspace(start: float, end: float, steps: int, *, dtype: DType | None = None) -> Value:
    """`steps` evenly spaced numbers from start to end, both included."""
    ramp = prims.iota((steps,), 0, dt.float64)
    gap = (end - start) / (steps - 1) if steps > 1 else 0.0
    if isinstance(gap, complex) or isinstance(start, complex):
        return cast(add(mul(ramp, complex(gap)), complex(start)), dtype or dt.of_number(complex))
    return cast(add(mul(ramp, gap), float(start)), dtype or dt.get_default_dtype())


def eye(n: int, m: int | None = None, *, dtype: DType | None = None) -> Value:
    """1 on the diagonal, 0 elsewhere."""
    return prims.cast(diagonal_mask(n, n if m is None else m), dtype or dt.get_default_dtype())


# ---- random numbers


def _unit(bits: Value, dtype: DType) -> Value:
    """u32 bits as floats in [0, 1): their upper 24 bits, exact in f32."""
    upper = prims.floor_divide(bits, prims.full_like(bits, 256))
    return mul(prims.cast(upper, dtype), 2.0**-24)


def _unit_pair(key: Value, shape: tuple[int, ...], stream: int, dtype: DType) -> tuple[Value, Value]:
    """Two independent uniform values per element, from one draw."""
    first, second = _word_pair(key, shape, stream)
    return _unit(first, dtype), _unit(second, dtype)


def _word_pair(key: Value, shape: tuple[int, ...], stream: int) -> tuple[Value, Value]:
    both = prims.philox(key, (2, *shape), stream)
    first, second = (reshape(narrow(both, 0, k, 1), shape) for k in (0, 1))
    return first, second


def rand(
    key: Value, size: Sequence[int], *, stream: int = 0, low: float = 0.0, high: float = 1.0, dtype: DType | None = None
) -> Value:
    """Uniform in [low, high). f64 uses 48 random bits, narrower dtypes 24."""
    target = dtype or dt.get_default_dtype()
    shape = tuple(size)
    if target.is_complex:  # both parts in the same range
        return prims.view_as_complex(rand(key, (*shape, 2), stream=stream, low=low, high=high, dtype=target.real))
    if drawing.number is None and draws.is_large(key, shape, target):
        return draws.uniform(key, shape, stream, target, *_scale(high - low, low))
    if drawing.number is not None and type(key) is np.ndarray and target is not dt.float64:
        unit: Value = uniform_there(key, shape, stream, drawing.number)
    elif target is dt.float64:
        coarse, fine = _unit_pair(key, shape, stream, target)
        unit = add(coarse, mul(fine, 2.0**-24))
    else:
        unit = _unit(prims.philox(key, shape, stream), dt.float32)
    scaled = unit if (low, high) == (0.0, 1.0) else add(mul(unit, high - low), low)
    return cast(scaled, target)


def _scale(scale: float, shift: float) -> tuple[float | None, float]:
    """What a large draw is multiplied with, if anything, and what is added then."""
    return (None if (scale, shift) == (1.0, 0.0) else scale), shift


def randn(
    key: Value, size: Sequence[int], *, stream: int = 0, mean: float = 0.0, std: float = 1.0, dtype: DType | None = None
) -> Value:
    """Normal, of two random words an element (box_muller.py): the same bits on every device."""
    target = dtype or dt.get_default_dtype()
    if target.is_complex:  # each part has half of the variance, as in torch
        share = std / math.sqrt(2.0)
        return prims.view_as_complex(randn(key, (*size, 2), stream=stream, mean=mean, std=share, dtype=target.real))
    shape, wide = tuple(size), target.compute
    if drawing.number is not None and type(key) is np.ndarray:
        unit: Value = normal_there(key, shape, stream, drawing.number, wide)
    elif draws.is_large(key, shape, wide):
        return cast(draws.normal(key, shape, stream, wide, *_scale(std, mean)), target)
    else:
        unit = (prims.normal64 if wide is dt.float64 else prims.normal32)(*_word_pair(key, shape, stream))
    scaled = unit if (mean, std) == (0.0, 1.0) else add(mul(unit, std), mean)
    return cast(scaled, target)


def randint(
    key: Value, low: int, high: int, size: Sequence[int], *, stream: int = 0, dtype: DType | None = None
) -> Value:
    """Whole numbers in [low, high), by remainder: the bias is below (high - low) / 2**32."""
    if not 0 < high - low <= 2**32:
        raise ShapeError("randint: empty or too wide a range", expected="0 < high - low <= 2**32", got=f"{low}..{high}")
    bits = prims.cast(prims.philox(key, tuple(size), stream), dt.int64)
    return cast(add(prims.remainder(bits, prims.full_like(bits, high - low)), low), dtype or dt.int64)


def bernoulli(key: Value, p: float, size: Sequence[int], *, stream: int = 0, dtype: DType | None = None) -> Value:
    """1 with probability p, else 0."""
    bits = prims.cast(prims.philox(key, tuple(size), stream), dt.int64)
    return prims.cast(prims.lt(bits, prims.full_like(bits, round(p * 2**32))), dtype or dt.get_default_dtype())
