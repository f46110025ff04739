"""New values: constants and ramps. Random ones: random/composite.py.

In: shapes, dtypes. Out: one value of whoever records now: a graph node under a trace, otherwise an array. An eager
array is writable and contiguous.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.meta import INTEGERS, as_size
from compiler_core.ops import prims
from compiler_core.ops.batching.value import levels_of
from compiler_core.ops.broadcasting import Scalar, as_new, cast, dtype_of, plain, shape_of
from compiler_core.ops.composites.arithmetic import add, mul, sub
from compiler_core.ops.composites.movement import diagonal_mask
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.refusals import check_fits
from compiler_core.ops.registry import Value, current_trace
from compiler_core.ops.size_numbers import quotient
from compiler_core.symbolic.expression import is_symbol


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


def full(size: Sequence[int], fill_value: Any, *, dtype: DType | None = None) -> Value:
    """fill_value everywhere: a number, or, under a trace, a 0-d tensor. dtype: from fill_value unless given."""
    dtype = dt.promote(fill_value) if dtype is None else dtype
    if hasattr(fill_value, "_cell") and current_trace() is not None:
        return as_new(prims.expand(cast(fill_value.detach()._read(), dtype), tuple(size)))
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
    if not (_is_finite(start) and _is_finite(end)):
        raise ShapeError("unsupported range", got=f"{start} -> {end}")
    if step == 0 or (end - start) * step < 0:
        raise ShapeError("arange: the step does not lead from start to end", got=f"{start}, {end}, {step}")
    target = dtype or dt.promote(start, end, step)
    if target is dt.int64:  # torch's other integers count by the numbers that were given
        start, end, step = as_size(start), as_size(end), as_size(step)
        if not step:
            raise ShapeError("step must be nonzero", got=f"a step that is 0 in {target.name}")
    count = _count(start, end, step)
    if target.kind in "iu":
        start, step = as_size(start), as_size(step)
    whole = all(isinstance(v, INTEGERS) for v in (start, step))
    ramp = prims.iota((count,), 0, dt.int64 if whole else dt.float64)
    ramp = ramp if step == 1 else mul(ramp, step)
    return _owned(cast(ramp if start == 0 else add(ramp, start), target))


def _is_finite(number: Scalar) -> bool:
    return is_symbol(number) or math.isfinite(number)


def _count(start: Scalar, end: Scalar, step: Scalar) -> int:
    """How many numbers there are from start to end."""
    if (is_symbol(start) or is_symbol(end)) and all(isinstance(v, INTEGERS) for v in (start, end, step)):
        return -((start - end) // step)  # type: ignore[return-value]
    return max(0, math.ceil((end - start) / step))


def _is_complex(n: Any) -> bool:
    return isinstance(n, complex) or (hasattr(n, "_cell") and dtype_of(n).is_complex)


def _default(wide: DType) -> DType:
    return dt.of_number(complex) if wide is dt.complex128 else dt.get_default_dtype()


def end_of(n: Any) -> Any:
    """An end of a range: a number, or a 0-d value that is none yet: of a trace, or one for each example (vmap)."""
    if hasattr(n, "_cell") and (current_trace() is not None or levels_of(n._cell.raw)):
        return prims.reshape(n.detach(), ())
    return n.item() if hasattr(n, "item") else n


def linspace(start: Any, end: Any, steps: int, *, dtype: DType | None = None) -> Value:
    """`steps` evenly spaced numbers from start to end, both included. start, end: as `end_of` gives them."""
    ramp = prims.iota((steps,), 0, dt.float64)
    if hasattr(start, "_cell") or hasattr(end, "_cell"):
        wide = dt.complex128 if any(_is_complex(n) for n in (start, end)) else dt.float64
        first, last = (cast(n, wide) if hasattr(n, "_cell") else prims.full((), n, wide) for n in (start, end))
        gap = mul(sub(last, first), 1 / max(steps - 1, 1))
        return cast(add(mul(cast(ramp, wide), gap), first), dtype or _default(wide))
    gap = quotient(end - start, steps - 1) if steps > 1 else 0.0
    if isinstance(gap, complex) or isinstance(start, complex):
        return cast(add(mul(ramp, complex(gap)), complex(start)), dtype or dt.of_number(complex))
    return cast(add(mul(ramp, gap), float(start)), dtype or dt.get_default_dtype())


def eye(n: int, m: int | None = None, *, dtype: DType | None = None) -> Value:
    """1 on the diagonal, 0 elsewhere."""
    return prims.cast(diagonal_mask(n, n if m is None else m), dtype or dt.get_default_dtype())
